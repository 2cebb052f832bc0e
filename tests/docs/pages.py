"""The code blocks of the pages, and a workspace in which they are run.

A page is run from top to bottom in one folder that has the repository's recipes, examples and documents. `fastslow` commands
run as they are shown, with further settings that make them small: a tiny model, two steps, answers of a few tokens. A block
whose first line is a comment with a file name is that file. Four comments, which readers do not see, help:

    <!-- not run: REASON -->        before a block that cannot be run here
    <!-- slow -->                   before a block that is run only where FASTSLOW_SLOW_PAGES is set
    <!-- file NAME … -->            a file that the page takes for granted
    <!-- bash … -->, <!-- python … -->    what the next blocks take for granted
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GENERATED = {"recipe.md", "tasks.md"}
"""Made from the code and checked by `make pages`; what stands in them is no code of a user's."""
ELSEWHERE = {"python.md", "trl.md", "gepa.md", "dspy.md", "CONTRIBUTING.md"}
"""Run by test_python_pages.py and tests/test_contributing.py."""
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
    *sorted(ROOT.glob("examples/*/README.md")),
]
SMALL = [
    *("model.device=cpu", "model.lora=null", "slow.steps=2", "slow.problems=2", "slow.microbatch=2", "fast.cycle=1"),
    *("fast.anchors=2", "fast.budget=8", "fast.reflection=lessons", "sampling.max_tokens=4", "evaluation.problems=2"),
    *("evaluation.k=1", "output.checkpoint_every=1"),
]
PIECE = re.compile(
    r"^<!-- (?P<reason>not run: .+?|slow) -->\n|^<!-- file (?P<name>\S+)\n(?P<file>.*?)^-->$"
    r"|^<!-- (?P<kind>python|bash)\n(?P<hidden>.*?)^-->$"
    r"|^(?P<fence>````?)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A piece of a page that is run: `language` is a fence's, or `file`."""

    line: int
    language: str
    text: str
    name: str = ""
    """Of a file."""
    skipped: str = ""
    """Why it is not run: `not run: REASON` or `slow`."""


def read_blocks(page: str) -> Iterator[Block]:
    reason, ended = "", 0
    for piece in PIECE.finditer(page):
        line = page.count("\n", 0, piece.start()) + 1
        if piece["reason"]:
            reason, ended = piece["reason"], piece.end()
            continue
        skipped = reason if piece.start() == ended else ""
        if piece["name"]:
            yield Block(line, "file", piece["file"], piece["name"])
        elif piece["hidden"]:
            yield Block(line, piece["kind"], piece["hidden"], skipped=skipped)
        else:
            named = re.match(r"# (\S+\.(?:py|yaml))\b.*\n", piece["text"])
            yield Block(line, piece["language"], piece["text"], named[1] if named else "", skipped)
        reason = ""


def commands(block: str) -> Iterator[list[str]]:
    """The commands of a shell block, with names expanded as bash expands them in the current folder."""
    for line in block.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            shown = re.sub(r"\s#\s.*$", "", line)
            expand = ["bash", "-c", f'printf "%s\\0" {shown}']
            expanded = subprocess.run(expand, capture_output=True, text=True, check=True)
            yield expanded.stdout.split("\0")[:-1] or words


class Workspace:
    """A folder like the repository's, in which the blocks of one page are run."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        self.names: dict[str, Any] = {"__name__": "page"}
        for name in ("recipes", "examples", "docs", "benchmarks", "src", "pyproject.toml", "Makefile"):
            (folder / name).symlink_to(ROOT / name)

    def run(self, block: Block) -> None:
        if block.name:
            (self.folder / block.name).write_text(block.text)
        if block.language == "bash":
            for words in commands(block.text):
                self._command(words)
        elif block.language == "python":
            exec(compile(block.text, block.name or "<page>", "exec"), self.names)
        elif block.language == "yaml":
            self._recipe(yaml.safe_load(block.text))
        elif block.language == "toml":
            tomllib.loads(block.text)

    def _command(self, words: list[str]) -> None:
        program, *arguments = words
        if words == ["fastslow", "doctor"]:
            return  # it trains for a while, and tests/launch/test_doctor.py runs it
        if program == "cd":
            os.chdir(arguments[0])
        elif program == "fastslow":
            self._fastslow(arguments)
        elif program == "make":
            subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, check=True)
        elif program == "cp":
            subprocess.run(words, check=True)
        elif program == "python":
            path = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
            subprocess.run([sys.executable, *arguments], env=path, capture_output=True, check=True)
        elif program == "pip":
            self._install(arguments)
        else:
            raise AssertionError(f"nobody knows how to run {shlex.join(words)}; say why: <!-- not run: REASON -->")

    def _fastslow(self, arguments: list[str]) -> None:
        from fastslow.commands.app import main

        command = arguments[0]
        small = [f"model={self.model}", *SMALL, *(each for each in arguments if re.match(r"[\w.]+=", each))]
        if command == "train" and "--resume" not in arguments:
            arguments = [each for each in arguments if each != "--board" and "=" not in each] + small
        elif command == "check":
            short = SMALL if "--probe" in arguments else ["sampling.max_tokens=4"]
            arguments = [*arguments, f"model={self.model}", *short]
        elif command in ("quickstart", "study"):
            arguments = [*arguments, *small]
        elif command == "board" and "--snapshot" not in arguments:
            arguments = [*arguments, "--snapshot", "board.html"]  # else it serves until it is stopped
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code, f"fastslow {shlex.join(arguments)} ended with {ended.value.code}"

    def _install(self, arguments: list[str]) -> None:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for wanted in re.findall(r"\[(.*?)\]", " ".join(arguments)):
            assert set(wanted.split(",")) <= set(extras), f"pip install {arguments}: no such extra"

    def _recipe(self, settings: dict[str, Any]) -> None:
        from fastslow.recipe import build_recipe

        build_recipe({"model": "nano", **({} if "stages" in settings else {"task": "rulebook"}), **settings})
