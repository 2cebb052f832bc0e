"""A study from its command to its picture, with real runs."""

from __future__ import annotations

import csv
import io
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from forked import Popen
from PIL import Image
from rich.console import Console

from fastslow.base.errors import FastSlowError, RunError
from fastslow.runs.folder import RunFolder
from fastslow.study import training
from fastslow.study.curves import read_curve
from fastslow.study.studies import STUDIES, run_study
from fastslow.study.training import Variant

SMALL = [
    *("slow.steps=2", "slow.problems=2", "fast.cycle=2", "fast.anchors=4", "fast.budget=8", "slow.microbatch=16"),
    *("evaluation.every=2", "evaluation.problems=4", "sampling.max_tokens=4", "output.checkpoint_every=2"),
]


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_runs_are_made_once_and_start_from_the_weights_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour = "task={name: rulebook, book: harbour}"
    first = Variant("first", "FST on one task")
    second = Variant("second", "then RL on another", ("method=rl", harbour), after=first)
    third = Variant("third", "RL on the first", ("method=rl",), equal_to=first)
    plan = replace(STUDIES["plasticity"], variants=lambda base, tasks: [second, third])
    monkeypatch.setitem(STUDIES, "plasticity", plan)
    monkeypatch.setattr(training, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": Popen}))
    console = quiet()
    run_study("plasticity", console, overrides=SMALL, seeds=[3], parallel=2, out=tmp_path)
    runs = {path.parent.name: RunFolder.open(path.parent).recipe for path in (tmp_path / "runs").glob("*/run.json")}
    assert set(runs) == {"first-seed3", "second-seed3", "third-seed3"}
    assert {recipe.seed for recipe in runs.values()} == {3}
    assert runs["first-seed3"].model.name == "nano"
    assert Path(runs["second-seed3"].model.name) == tmp_path / "weights" / "first-seed3"
    assert runs["second-seed3"].rollouts is None
    spent, used = (read_curve(tmp_path / "runs" / f"{name}-seed3").rollouts[-1] for name in ("first", "third"))
    assert runs["third-seed3"].rollouts == spent > 2 * 2 * 8  # both loops of FST; the slow one has two steps
    assert 0 <= used - spent < 2 * 8
    assert runs["second-seed3"].tasks[0].options["book"] == "harbour"
    with (tmp_path / "plasticity.csv").open() as file:
        assert {row["arm"] for row in csv.DictReader(file)} == {"then RL on another", "RL on the first"}
    assert Image.open(tmp_path / "plasticity.png").size[0] > 500
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "24.2 after FST, 19.9 after RL" in said
    assert "first-seed3: finished" in said

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/run.json")}
    run_study("plasticity", quiet(), overrides=SMALL, seeds=[3], out=tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/run.json")}
    with pytest.raises(FastSlowError, match=r"other settings: slow.learning_rate is 4e-05 there and 0.1 here"):
        run_study("plasticity", quiet(), overrides=[*SMALL, "slow.learning_rate=0.1"], seeds=[3], out=tmp_path)


def test_a_run_that_fails_says_why_and_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run '.*fst-seed0' failed: .*no-such-model.*fst-seed0\.log"):
        run_study("asymptote", quiet(), overrides=[*SMALL, "model.name=./no-such-model"], seeds=[0], out=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "speed"}, r"no study 'speed'; expected data-efficiency, .* or all"),
        ({"name": "ceiling", "overrides": ["method=rl"]}, r"method=rl, but a study runs several methods"),
        ({"name": "ceiling", "overrides": ["evaluation.every=0"]}, r"a study compares evaluations"),
        ({"name": "plasticity", "overrides": ["task=star-graph"]}, r"needs 1 task\(s\) beside the recipe's own"),
    ],
)
def test_what_cannot_be_a_study_is_refused(arguments: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(FastSlowError, match=message):
        run_study(console=quiet(), out=tmp_path, **arguments)
    assert not list(tmp_path.iterdir())
