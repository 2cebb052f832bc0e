"""Three methods at equal rollouts, on the task of examples/own-task: budgets, resuming, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers import EXAMPLE, outcome

from fastslow.base.errors import FastSlowError
from fastslow.recipe import Recipe, load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.trust import remember
from fastslow.study import training
from fastslow.study.curves import read_curve
from fastslow.study.training import METHODS, check_methods, run_method

SETTINGS = ["slow.steps=3", "fast.budget=8", "fast.optimizer.proposals=1", "fast.anchors=4", "evaluation.problems=4"]


@pytest.fixture(scope="module")
def recipe(by_words: list[str]) -> Recipe:
    return load_recipe(EXAMPLE, [*SETTINGS, *by_words])


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "runs"
    check_methods(recipe, folder)
    for method in METHODS:
        run_method(method, recipe, folder)
    return folder


def test_the_budget_of_each_loop_alone_is_what_fst_spent(recipe: Recipe, finished: Path) -> None:
    fst, rl, gepa = (RunFolder.open(finished / method) for method in METHODS)
    last = fst.rows("evals")[-1]
    budget = last["rollouts_slow"] + last["rollouts_fast"]
    assert last["rollouts_slow"] == 3 * 4 * 4
    assert last["rollouts_fast"] > 0
    assert fst.recipe == recipe
    assert rl.recipe.rollouts == gepa.recipe.rollouts == budget
    assert 0 <= read_curve(rl.path).rollouts[-1] - budget < 4 * 4
    cycles = [sum(entry["rollouts"] for entry in data["spent"].values()) for data in gepa.cycles()]
    assert sum(cycles) == read_curve(gepa.path).rollouts[-1] >= budget > sum(cycles[:-1])


def test_a_curve_starts_before_training_and_time_rises(finished: Path) -> None:
    for method in METHODS:
        curve = read_curve(finished / method)
        assert curve.rollouts[0] == 0
        assert curve.rollouts == tuple(sorted(curve.rollouts))
        assert curve.seconds == tuple(sorted(curve.seconds))
        assert curve.seconds[-1] > curve.seconds[0]


def test_a_finished_run_is_kept_as_it_is(recipe: Recipe, finished: Path) -> None:
    check_methods(recipe, finished)
    for method in METHODS:
        before = (finished / method / "run.json").stat().st_mtime_ns
        assert run_method(method, recipe, finished) == finished / method
        assert (finished / method / "run.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_resumes_to_the_same_end(
    method: str, recipe: Recipe, finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(finished, folder)
    run = RunFolder.open(folder / method)
    last = run.checkpoints.steps()[-1]
    shutil.rmtree(run.checkpoints.folder / f"step-{last:06d}")
    run.set_status("interrupted", checkpoint=run.checkpoints.steps()[-1])
    remember(folder / method, run.recipe)
    assert not training.finished(folder / method)
    run_method(method, recipe, folder)
    assert training.finished(folder / method)
    assert outcome(folder / method) == outcome(finished / method)
    # The time of the steps before the checkpoint is not forgotten.
    kept = json.loads((run.checkpoints.get(run.checkpoints.steps()[-2]) / "state.json").read_text())["seconds"]
    assert read_curve(folder / method).seconds[-1] >= kept > 0


def test_other_settings_are_refused_by_name(by_words: list[str], finished: Path) -> None:
    other = load_recipe(EXAMPLE, [*SETTINGS, *by_words, "seed=3"])
    with pytest.raises(FastSlowError, match="other settings: seed is 0 there and 3 here; "):
        check_methods(other, finished)
