"""Whole runs with each optimizer, which an interruption does not change."""

from __future__ import annotations

import shutil
import sys
from io import StringIO
from pathlib import Path

import pytest
from fake_runs import STEPS, outcome, recipe_of, resume, run
from helpers import EXAMPLE
from optimizer_helpers import OTHERS, each
from rich.console import Console

from fastslow.base.errors import RecipeError
from fastslow.launch import start
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder, default_folder
from fastslow.runs.tree import show_contexts


@each("digest", *OTHERS)
def test_an_interrupted_run_ends_as_if_never_interrupted(optimizer: str, tmp_path: Path) -> None:
    """Stopped in the second cycle, so that what the first left to it comes from the disk."""
    fast = {"optimizer": optimizer, "cycle": 1, "anchors": 4, "budget": 16}
    recipe = recipe_of("gepa", slow={"steps": 2}, fast=fast, evaluation={"every": 0}, output={"checkpoint_every": 1})
    run(tmp_path / "whole", recipe)
    cycles = RunFolder.open(tmp_path / "whole").cycles()
    assert len(cycles) == 2
    for data in cycles:
        spent = {purpose: entry["rollouts"] for purpose, entry in data["spent"].items()}
        if optimizer != "digest":  # which scores contexts by a model, on few problems
            assert spent["rescore"] == len(data["carried"]) * len(data["anchors"])
        assert spent.get("fast-minibatch", 0) + spent.get("fast-score", 0) <= 16
        assert data["generations"] > 0
    halted = tmp_path / "halted"
    shutil.copytree(tmp_path / "whole", halted)
    shutil.rmtree(halted / "checkpoints" / "step-000002")
    (halted / "contexts" / "cycle-0001.json").unlink()
    resume(halted, recipe)
    assert outcome(halted) == outcome(tmp_path / "whole")


def test_both_loops_run_with_another_optimizer_and_its_contexts_can_be_shown(tmp_path: Path) -> None:
    run(tmp_path / "run", recipe_of(fast={"optimizer": "textgrad"}))
    opened = RunFolder.open(tmp_path / "run")
    assert [row["step"] for row in opened.rows("metrics")] == list(range(1, STEPS + 1))
    accepted = [edit["child"] for data in opened.cycles() for edit in data["edits"] if edit["accepted"]]
    assert accepted
    with StringIO() as shown:
        show_contexts(opened, Console(file=shown, width=200), full=True)
        assert all(child in shown.getvalue() for child in accepted)


def test_a_run_folder_is_named_after_an_optimizer_that_is_not_the_usual_one() -> None:
    names = {}
    for override in (
        "seed=3",
        "fast.optimizer=ape",
        "fast.optimizer=dspy-gepa method=gepa",
        "fast.optimizer=ape method=rl",
    ):
        recipe = load_recipe(EXAMPLE, override.split())
        names[override] = default_folder(recipe, "mine").name
    assert list(names.values()) == [
        "mine-fst-seed3",
        "mine-fst-ape-seed0",
        "mine-gepa-dspy-gepa-seed0",
        "mine-rl-seed0",
    ]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["fast.optimizer=genetic"], "fast.optimizer"),
        (["fast.optimizer=evoprompt", "fast.population=1"], "breeds from two texts, but fast.population=1"),
        (
            ["fast.optimizer=ace", "fast.budget=13"],
            "does not cover one new text under fast.optimizer=ace.* 14 rollouts",
        ),
        (["fast.optimizer=opro", "fast.samples=4"], "fast.samples=4 times, are 56 rollouts"),
    ],
)
def test_settings_that_do_not_go_together_are_one_error(overrides: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        load_recipe(EXAMPLE, overrides)
    if len(overrides) > 1:  # where the fast loop is left out, nothing is wrong
        load_recipe(EXAMPLE, [*overrides, "method=rl"])


def test_a_budget_that_gepa_overdraws_is_left_to_it() -> None:
    assert load_recipe(EXAMPLE, ["fast.budget=3"]).fast.budget == 3
    assert load_recipe(EXAMPLE, ["fast.optimizer=ace", "fast.budget=0"]).fast.budget == 0


def test_a_missing_package_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dspy_search", "dspy_gepa"):
        monkeypatch.delitem(sys.modules, f"fastslow.fast.optimizers.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "dspy", None)
    with pytest.raises(RecipeError, match="install it with: pip install 'fastslow\\[dspy\\]'"):
        start.train(load_recipe(EXAMPLE, ["fast.optimizer=dspy-gepa"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
