"""Every command and snippet that the pages show is run; links lead somewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pages import ELSEWHERE, PAGES, ROOT, Workspace, commands, read_blocks

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(````?)\w*\n.*?^\1$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ELSEWHERE], ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    workspace = Workspace(tmp_path, tiny_folder)
    for block in read_blocks(page.read_text()):
        if not block.skipped or (block.skipped == "slow" and os.environ.get("FASTSLOW_SLOW_PAGES")):
            try:
                workspace.run(block)
            except Exception as error:
                raise AssertionError(f"{page.name}, line {block.line}: {error}") from error


def test_blocks_are_found() -> None:
    page = """
<!-- file rows.jsonl
{}
-->
```python
# grading.py
x = 1
```
<!-- not run: no card -->
```bash
fastslow a
```
````text
```python
no code
```
````
<!-- bash
fastslow b
-->
"""
    assert [(block.language, block.name, block.skipped) for block in read_blocks(page)] == [
        ("file", "rows.jsonl", ""),
        ("python", "grading.py", ""),
        ("bash", "", "not run: no card"),
        ("text", "", ""),
        ("bash", "", ""),
    ]


def test_commands_are_expanded_as_bash_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run-0", "run-1"):
        (tmp_path / name).mkdir()
    block = "fastslow compare run-* \\\n  --rollouts 5    # both\n# only a comment\nfastslow eval {a,b}-0\n"
    assert list(commands(block)) == [
        ["fastslow", "compare", "run-0", "run-1", "--rollouts", "5"],
        ["fastslow", "eval", "a-0", "b-0"],
    ]
