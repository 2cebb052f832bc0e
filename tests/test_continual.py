"""Whole runs in stages: nano learns one rulebook and then another, without interruption and with one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import outcome

from fastslow.base.errors import FastSlowError, RecipeError
from fastslow.fast.pool import Pool
from fastslow.launch import start
from fastslow.launch.evaluate import evaluate_run
from fastslow.launch.export import model_card
from fastslow.recipe import Recipe, build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import make_view
from fastslow.study.curves import read_curve
from fastslow.study.training import check_methods
from fastslow.tasks.families.rulebook.task import Rulebook, RulebookOptions

HARBOUR, ORCHARD = ({"name": "rulebook", "book": book, "steps": 3} for book in ("harbour", "orchard"))
LABELS = ["seed", "seed on rulebook", "seed on rulebook-2"]


def recipe(**changes: Any) -> Recipe:
    settings = {
        "model": {"name": "nano", "device": "cpu"},
        "stages": [HARBOUR, ORCHARD],
        "slow": {"problems": 2, "group": 4, "microbatch": 8, "learning_rate": 1e-4, "warmup_steps": 0},
        "fast": {
            "population": 2,
            "cycle": 2,
            "anchors": 4,
            "budget": 12,
            "max_tokens": 160,
            "optimizer": {"proposer": "full"},
        },
        "sampling": {"max_tokens": 16},
        "evaluation": {"every": 2, "problems": 4, "k": 1},
        "output": {"checkpoint_every": 2},
    }
    return build_recipe(settings | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start.train(recipe(), tmp_path_factory.mktemp("continual") / "run")


def parts_of(names: list[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


def test_each_stage_trains_on_its_own_task_and_the_look_ahead_sees_the_next(finished: Path) -> None:
    run = RunFolder.open(finished)
    stages = ["rulebook"] * 3 + ["rulebook-2"] * 3
    assert [row["stage"] for row in run.rows("metrics")] == stages
    for step, stage in enumerate(stages, 1):
        tried = pq.read_table(finished / "rollouts" / f"step-{step:06d}.parquet")["example"].to_pylist()
        assert parts_of(tried) == {stage}
    # Cycles of two steps over stages of three: the second one looks at the last of the first task and the first of the next.
    ahead = [parts_of(data["anchors"]) for data in run.cycles()]
    assert ahead == [{"rulebook"}, {"rulebook", "rulebook-2"}, {"rulebook-2"}]
    assert [len(data["anchors"]) for data in run.cycles()] == [4, 4, 4]
    trained = pq.read_table(finished / "rollouts" / "step-000004.parquet")["example"].to_pylist()
    assert set(trained) <= set(run.cycles()[1]["anchors"])


def test_the_seed_text_is_that_of_no_task(finished: Path) -> None:
    first = RunFolder.open(finished).cycles()[0]
    assert first["contexts"][0]["texts"] == {"system": "Answer the question."}


def test_every_task_is_evaluated_throughout_and_at_the_end_of_a_stage(finished: Path) -> None:
    rows = RunFolder.open(finished).rows("evals")
    assert [row["step"] for row in rows] == [0, 2, 3, 4, 6]
    assert [row["stage"] for row in rows] == ["rulebook", "rulebook", "rulebook", "rulebook-2", "rulebook-2"]
    assert list(rows[0]["results"]) == LABELS
    for row in rows:
        results = row["results"]
        labels = [label for label in ("seed", "best context") if label in results]
        expected = [*labels, *(f"{label} on {name}" for name in ("rulebook", "rulebook-2") for label in labels)]
        assert list(results) == expected
        for label in labels:
            assert results[label] == results[f"{label} on {row['stage']}"]
            assert results[label]["problems"] == 4
    played = sum(sum(" on " in label for label in row["results"]) for row in rows) * 4
    assert rows[-1]["rollouts_evaluation"] == played


def test_what_reads_evaluations_reads_these(finished: Path) -> None:
    rows = RunFolder.open(finished).rows("evals")
    curve = read_curve(finished)
    assert curve.rewards == tuple(row["results"].get("best context", row["results"]["seed"])["mean"] for row in rows)
    run = RunFolder.open(finished)
    card = model_card(run, 6, Pool.from_dict(run.cycles()[-1]["population"]))
    assert "| 6 | seed on rulebook-2 | 4 |" in card
    assert "# nano trained on rulebook, rulebook" in card


def test_evaluating_the_run_gives_the_numbers_seen_in_training(finished: Path) -> None:
    again = evaluate_run(finished, k=1)
    assert {label: score.to_dict() for label, score in again.items()} == RunFolder.open(finished).rows("evals")[-1][
        "results"
    ]


def test_a_run_resumed_before_a_boundary_ends_as_if_never_interrupted(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("step-000004", "step-000006", "cycle-000[12].json"))
    assert RunFolder.open(folder).checkpoints.steps() == [2]
    start.resume(folder, step=2, trust=True)
    assert outcome(folder) == outcome(finished)


@pytest.mark.parametrize("method", ["rl", "gepa"])
def test_either_loop_alone_goes_through_the_stages(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = recipe(
        method=method,
        stages=[{**HARBOUR, "steps": 1}, {**ORCHARD, "steps": 1}],
        evaluation={"every": 9, "problems": 2, "k": 1, "divergence": True},
    )
    rows = RunFolder.open(start.train(short, tmp_path / "run")).rows("evals")
    assert [(row["step"], row["stage"]) for row in rows] == [(0, "rulebook"), (1, "rulebook"), (2, "rulebook-2")]
    assert "kl" in rows[-1]["results"]["seed"]
    assert "kl" not in rows[-1]["results"]["seed on rulebook"]
    said = " ".join(capsys.readouterr().out.split())
    assert "task rulebook@1, then rulebook@1" in said
    assert "validation (seed on rulebook-2)" in said


def test_what_stages_do_not_go_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="a task was given as an object, but the recipe has stages"):
        start.train(recipe(), tmp_path / "run", make_view(), task=Rulebook(RulebookOptions()))
    with pytest.raises(FastSlowError, match="runs with stages cannot be compared at equal rollouts"):
        check_methods(recipe(), tmp_path / "runs")
