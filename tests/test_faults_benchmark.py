"""The fault campaign notices what it is made to notice."""

from __future__ import annotations

import importlib
import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT


def faults(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.faults", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


def test_defects_of_resume_are_noticed_and_a_sound_product_passes() -> None:
    done = faults("--defects", "--only", "resume always", "--only", "no defect", "--count", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert lines["no defect"] == "all 7 faults end well", done.stdout
    assert "cannot be resumed" in lines["resume always refuses"]


def test_what_a_clock_decides_is_not_compared(tmp_path: Path) -> None:
    judge = importlib.import_module("benchmarks.faults_judge")
    for name, seconds in (("one", 1.5), ("other", 2.5)):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        row = {"step": 1, "seconds": seconds, "spent": {"slow": {"seconds": seconds, "rollouts": 3}}}
        (tmp_path / name / "ledger.jsonl").write_text(json.dumps(row) + "\n")
        (tmp_path / name / "checkpoints" / "manifest.json").write_text(json.dumps({"files": {"a": str(seconds)}}))
        (tmp_path / name / "lock").write_text(name)
    one, other = (judge.contents(tmp_path / name) for name in ("one", "other"))
    assert one == other
    assert one["ledger.jsonl"] == [{"step": 1, "spent": {"slow": {"rollouts": 3}}}]
    assert one["checkpoints/manifest.json"] == ["a"]


@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        (0, "", False),
        (2, "error: the disk is full; free some", False),
        (2, "", True),
        (2, "error: one\nerror: two", True),
        (
            2,
            "error: KeyError: 'a' (unexpected; with FASTSLOW_TRACEBACK=1 in the environment the command shows where)",
            True,
        ),
        (2, "Traceback (most recent call last):\nerror: one", True),
        (0, "error: the disk is full; free some", True),
        (1, "error: one", True),
        (98, "", True),
        (99, "error: one", True),
        (-9, "", True),
    ],
)
def test_a_command_ends_with_nothing_or_one_message(code: int, said: str, wrong: bool) -> None:
    judge = importlib.import_module("benchmarks.faults_judge")
    fault = judge.Fault("a kind", "a case", lambda folder: None)
    assert bool(judge._wrong_end(fault, code, said)) == wrong


@pytest.mark.parametrize(
    "hang", [lambda _: signal.pause(), lambda _: all(True for _ in itertools.count())], ids=["asleep", "busy"]
)
def test_a_command_that_does_not_end_is_stopped(hang: Any, tmp_path: Path) -> None:
    """After so many seconds of work, or without any: one that waits for a busy machine has not hung."""
    run = importlib.import_module("benchmarks.faults_run")
    assert run.in_child(hang, tmp_path, 0.2) == (run.NO_END, "")
