"""The table of searches at equal evaluations, and the check of all that they announced."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from discover_helpers import Changes, search_of
from fake_runs import run
from helpers import ROOT

from fastslow.discover.problem import INCLUDED, load_problem
from fastslow.launch.discovery import search_recipe

discoveries: Any = importlib.import_module("benchmarks.discoveries")
MADE = 20


def search(folder: Path, learn: str = "archive,weights", seed: int = 0, path: str = "differences") -> Path:
    given = {"model": "none", "seed": seed, "slow.problems": 1, "slow.group": 4, "fast.budget": 4, "fast.anchors": 2}
    recipe = search_recipe(load_problem(path), path, learn, {"evaluations": MADE}, given)
    run(folder, recipe, Changes(), task=search_of(path, evaluations=MADE, archive="archive" in learn))
    return folder


@pytest.mark.parametrize(
    "learn", ["archive,text,weights", "archive,weights", "archive,text", "archive", "text", "none"]
)
def test_what_learned_is_read_from_the_recipe(learn: str) -> None:
    recipe = search_recipe(load_problem("differences"), "differences", learn, {}, {"model": "none"})
    assert discoveries.learners(recipe) == learn


def test_searches_are_compared_after_as_many_verified_evaluations(tmp_path: Path) -> None:
    folders = [search(tmp_path / f"{learn}-{seed}", learn, seed) for learn in ("archive", "none") for seed in (0, 1)]
    problem = load_problem("differences")
    found = [discoveries.read(folder) for folder in folders]
    assert {each.learners for each in found} == {"archive", "none"}
    for each in found:
        assert [row["number"] for row in each.rows] == list(range(1, len(each.rows) + 1))
        valid = [row["score"] for row in each.rows if row["score"] is not None]
        assert discoveries.best_after(each, problem, len(each.rows)) == max(valid)
        assert discoveries.best_after(each, problem, 1) == -5
    lines = discoveries.table(problem, found, 10)
    most = min(len(each.rows) for each in found)
    assert f"| learns | seeds | 10 | {'20 | ' if most > 20 else ''}{most} | valid | better |" in lines
    assert [line.split("|")[1:3] for line in lines if line.startswith(("| archive", "| none"))] == [
        [" archive ", " 2 "],
        [" none ", " 2 "],
    ]


def test_a_best_file_that_does_not_hold_is_a_false_record(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    shutil.copy(INCLUDED / "differences.py", here)
    folder = search(tmp_path / "run", path=str(here / "differences.py"))
    here.rename(there)
    checked, false = discoveries.false_records(discoveries.read(folder), load_problem("differences"))
    assert (checked > 1, false) == (True, [])
    best = json.loads((folder / "best.json").read_text())
    (folder / "best.json").write_text(json.dumps({**best, "score": best["score"] + 1}))
    command = [sys.executable, "-m", "benchmarks.discoveries", str(folder), "--every", "20", "--problems", str(there)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"best.json: announced {best['score'] + 1:.10g}, now {best['score']:.1f}" in done.stdout
    assert f"{checked} records were evaluated again, 1 are false" in done.stdout
