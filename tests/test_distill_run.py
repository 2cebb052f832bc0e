"""Whole runs of FST-distill on the task in examples/own-task."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import EXAMPLE, outcome

from fastslow.base.errors import RecipeError
from fastslow.launch import start
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import FAST

SETTINGS = [
    *("method=distill", "fast.cycle=3", "slow.steps=6", "slow.learning_rate=1e-3", "output.checkpoint_every=2"),
    *("fast.anchors=4", "fast.budget=16", "evaluation.every=6", "evaluation.problems=4"),
]


@pytest.fixture(scope="module", params=["full", "lora"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lora = ["model.lora={rank: 8, alpha: 16}"] if request.param == "lora" else []
    return start.train(load_recipe(EXAMPLE, [*SETTINGS, *lora]), tmp_path_factory.mktemp(request.param) / "run")


def test_the_student_plays_under_the_seed_and_nears_its_teacher(finished: Path) -> None:
    run = RunFolder.open(finished)
    rows, recipe = run.rows("metrics"), run.recipe
    assert [row["contexts"] for row in rows] == [1] * 6  # the student knows one text only, the seed
    assert all(row["trained_rows"] == recipe.slow.problems * recipe.slow.group for row in rows)
    losses = [row["distillation"] for row in rows]
    assert losses[0] > 0.1
    assert losses[2] < losses[0]  # within a cycle the teacher stands still
    last = run.rows("evals")[-1]["results"]
    assert list(last) == ["seed", "best context"]


def test_every_rollout_is_booked_once(finished: Path) -> None:
    run = RunFolder.open(finished)
    ledger = run.read_json("ledger.json")
    assert ledger is not None
    assert ledger["slow"]["rollouts"] == 6 * 4 * 4
    spent = [sum(entry["rollouts"] for entry in data["spent"].values()) for data in run.cycles()]
    assert len(spent) == 2
    assert run.rows("metrics")[-1]["rollouts_fast"] == sum(spent)
    last = run.rows("evals")[-1]
    learning = [entry for purpose, entry in ledger.items() if purpose in ("slow", *FAST)]
    assert last["tokens"] == sum(entry["prompt_tokens"] + entry["completion_tokens"] for entry in learning) > 0


def test_an_interrupted_run_ends_as_if_never_interrupted(finished: Path, tmp_path: Path) -> None:
    """The checkpoint lies inside a cycle, the first or the second: the teacher is not the policy that it holds."""
    step = 2 if RunFolder.open(finished).recipe.model.lora is None else 4
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    for later in range(step + 2, 7, 2):
        shutil.rmtree(folder / "checkpoints" / f"step-{later:06d}")
    assert (folder / "checkpoints" / f"step-{step:06d}" / "teacher.safetensors").exists()
    start.resume(folder, step=step, trust=True)
    assert outcome(folder) == outcome(finished)
    assert not (folder / "checkpoints" / "step-000006" / "teacher.safetensors").exists()  # the cycle is over


def test_contexts_must_share_a_group_evenly() -> None:
    with pytest.raises(RecipeError, match=r"fast.population=3 does not divide slow.group=4"):
        load_recipe(EXAMPLE, ["method=distill", "fast.population=3"])
