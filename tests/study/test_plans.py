"""The plans of the studies: every variant is a recipe that can be run, and a name means one thing everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastslow.recipe import load_recipe
from fastslow.study.conclusions import CONCLUSIONS
from fastslow.study.plans import STUDIES
from fastslow.study.quickstart import RECIPE
from fastslow.study.variants import Variant, fst_rollouts, recipe_of

BASE = load_recipe(RECIPE)
TASKS = [
    {"name": "rulebook", **BASE.tasks[0].options},
    {"name": "rulebook", "book": "harbour"},
    {"name": "rulebook", "book": "orchard"},
]


def variants(name: str) -> list[Variant]:
    return STUDIES[name].variants(BASE, TASKS)


def test_there_are_nine_and_each_has_a_conclusion() -> None:
    assert list(STUDIES) == list(CONCLUSIONS)
    assert len(STUDIES) == 9


@pytest.mark.parametrize("name", STUDIES)
def test_every_variant_is_a_recipe(name: str, tmp_path: Path) -> None:
    for variant in variants(name):
        recipe = recipe_of(variant, BASE, 7, tmp_path, tmp_path / "weights" if variant.after else None)
        assert recipe.seed == 7
        assert recipe.output.folder == str(tmp_path)
        assert (recipe.model.name != BASE.model.name) == (variant.after is not None)


def test_a_name_means_the_same_settings_in_every_study() -> None:
    found: dict[str, Variant] = {}
    for name in STUDIES:
        for variant in variants(name):
            same = found.setdefault(variant.name, variant)
            assert (same.overrides, same.after) == (variant.overrides, variant.after)


def test_stages_take_the_place_of_the_task(tmp_path: Path) -> None:
    fst, rl = (recipe_of(variant, BASE, 0, tmp_path, None) for variant in variants("continual"))
    assert (fst.method, rl.method) == ("fst", "rl")
    assert fst.task is None
    assert [stage.options["book"] for stage in fst.stages] == ["library", "harbour", "orchard"]
    assert fst.slow.steps == 3 * BASE.slow.steps


def test_what_fst_may_spend_is_counted() -> None:
    """Three cycles of ten steps: 64 rollouts a step, 200 a cycle, the seed scored on 24 anchors, then twice four contexts."""
    assert fst_rollouts(BASE) == 30 * 64 + 3 * 200 + 24 + 2 * 4 * 24
