"""The commands of docs/results.md get exactly the runs of the tables that they redraw."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pages import ROOT, commands, read_blocks

from benchmarks import handbooks

STORED = ROOT / "docs" / "results" / "qwen-1.5b"
WORDS = {f"rl-{words}": 5 for words in ("retry", "distil", "rank")}
ALL = {"fst": 5, "rl": 5, "gepa": 3, "distill": 3}
TEXTS = {"text-digest": 5, "text-gepa": 5}
COMPARED: list[dict[str, int]] = [
    *({"fst-digest": 5, "rl": 5}, {"fst": 5, "rl": 5}, {"fst-digest": 5, "rl": 5}, {"fst-digest": 5, "rl": 5}),
    {"fst": 5, "rl": 5, **WORDS},  # formats
    {"fst": 5, "rl": 5, **WORDS, "rl-retry": 4, "rl-distil": 4},  # manual
    {"fst": 5, "rl": 5, "text": 5},  # agent
    *(ALL, {"fst": 5, "digest": 5}, {"fst": 5, "digest": 5}, {"fst": 5, "digest": 5}, {"fst": 3, "digest": 5}),
    *({"fst": 5, "rl": 5}, {"fst": 5, "rl": 5}, {"fst": 4}),
    {"ahead0": 3, "ahead1": 3, "ahead2": 3},
    *(ALL, {"fst": 5, "rl": 5}, {"policy": 3, "rl": 3}, ALL, {**ALL, "fst": 3, "rl": 3}),
    *({"fst": 3, "rl": 3}, {"star-after-fst": 3, "star-after-rl": 3, "rl": 3}),
]
"""The runs of each command by name, in the order of the page."""
REPORTED: list[dict[str, int]] = [
    {
        **{
            f"handbook/{book}/text-digest": 5
            for book in ("shipping-11", "shipping-11-wrong", "expenses-30", "triage-30")
        },
        **{f"handbook/{book}/text-gepa": 5 for book in ("shipping-11", "triage-30")},
        "digest/shipping-11/text": 5,
    },
    {f"formats/{name}": 5 for name in TEXTS} | {f"formats/book-{book}/text-digest": 5 for book in (11, 13, 17)},
    {f"manual/{name}": 5 for name in TEXTS} | {f"manual/book-{book}/text-digest": 5 for book in (11, 13, 3, 17, 19)},
    {f"formats/{book}text-digest": 5 for book in ("", "book-11/", "book-13/", "book-17/")},
    {f"manual/{book}text-digest": 5 for book in ("", "book-11/", "book-13/")},
    {f"manual/book-{book}/text-digest": 5 for book in (3, 17, 19)},
]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that read stored runs, with their folders."""
    page = (ROOT / "docs" / "results.md").read_text()
    monkeypatch.chdir(STORED)
    blocks = [block for block in read_blocks(page) if block.language == "bash" and not block.skipped.startswith("not")]
    return [words for block in blocks[1:] for words in commands(block.text) if words[0] != "cd"]


def runs(words: list[str], keep_folder: bool) -> dict[str, int]:
    """How many runs a command gets, by name without the seed."""
    folders = [Path(word) for word in words if Path(word).parent.name and not word.startswith("-")]
    assert all((folder / "run.json").exists() for folder in folders), words
    assert len(set(folders)) == len(folders)
    names = ((str(folder) if keep_folder else folder.name).rpartition("-")[0] for folder in folders)
    return dict(Counter(names))


def test_comparisons_get_the_runs_of_their_tables(shown: list[list[str]]) -> None:
    compared = [words for words in shown if words[:2] == ["fastslow", "compare"]]
    assert [runs(words, keep_folder=False) for words in compared] == COMPARED


def test_reports_get_the_runs_of_their_tables(shown: list[list[str]]) -> None:
    reported = [words for words in shown if "report" in words]
    assert [runs(words, keep_folder=True) for words in reported] == REPORTED
    assert ["--pool" in words for words in reported] == [False, False, False, True, True, True]


def test_a_row_for_each_folder(shown: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    folders = [Path(word) for word in next(words for words in shown if "report" in words) if "/" in word]
    handbooks.report(folders)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == len(REPORTED[0])
    assert (
        "| digest/shipping-11 | handbook/shipping, 11 rules | `digest` | 5 | 296 | 0.18 | 0.40 | 0.41 | 0.92" in rows[0]
    )
    assert sum("the oracle gains 0.01" in row for row in rows) == 2  # thirty rules of triage
    handbooks.report(folders, pool=True)
    assert len(capsys.readouterr().out.splitlines()[2:]) == 5
