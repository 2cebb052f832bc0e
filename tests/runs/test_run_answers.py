"""Showing what the policy answered."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from run_helpers import make_rollout

from fastslow.errors import RunError
from fastslow.recipe import build_recipe
from fastslow.runs.answers import show_answers
from fastslow.runs.folder import RunFolder


def shown(run: RunFolder, step: int | None = None, count: int = 8) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_answers(run, console, step=step, count=count)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_answers_are_shown_with_their_scores_and_errors(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", build_recipe({"model": "nano", "task": "given"}))
    with pytest.raises(RunError, match="no saved answers"):
        shown(run)
    run.save_rollouts(1, [make_rollout("first", 1.0)])
    faulty = replace(make_rollout("later", 0.0, feedback="\x1b[2Jno"), error="grader raised KeyError")
    run.save_rollouts(2, [faulty, make_rollout("another", 1.0)])
    text = shown(run, count=1)
    assert "step 2: 2 answers, mean reward 0.500" in text
    assert "grader raised KeyError" in text
    assert "\x1b" not in text
    assert "another" not in text
    assert "first" in shown(run, 1)
    with pytest.raises(RunError, match="no answers of step 7; it has those of steps 1 to 2"):
        shown(run, 7)
    (run.path / "rollouts" / "step-000002.parquet").write_bytes(b"broken")
    with pytest.raises(RunError, match="cannot be read"):
        shown(run)
