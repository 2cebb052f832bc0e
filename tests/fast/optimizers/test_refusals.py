"""What each optimizer states of itself, and what it refuses by that, in the words of the recipe's checks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from helpers import EXAMPLE
from optimizer_helpers import each

from fastslow.base.errors import RecipeError
from fastslow.fast.optimizers import OPTIMIZERS, find_optimizer
from fastslow.recipe import Recipe, load_recipe

SETTINGS: list[dict[str, Any]] = [
    {"rescore": "from-rollouts"},
    {"race": True},
    {"reuse": True},
    {"population": 1},
    {"budget": 40, "adaptive": True},
    {"budget": 5},
    {},
]


def recipe_with(optimizer: str, settings: dict[str, Any]) -> Recipe:
    """The recipe, unchecked."""
    recipe = load_recipe(EXAMPLE, ["fast.budget=800"])
    return recipe.model_copy(
        update={"fast": recipe.fast.model_copy(update={"optimizer": optimizer, "budget": 800, **settings})}
    )


@each(*OPTIMIZERS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_class_refuses_what_the_recipe_refuses(optimizer: str, settings: dict[str, Any]) -> None:
    given = [f"fast.{name}={str(value).lower()}" for name, value in settings.items()]
    said = refused = ""
    try:
        load_recipe(EXAMPLE, ["fast.budget=800", f"fast.optimizer={optimizer}", *given])
    except RecipeError as error:
        said = str(error)
    try:
        find_optimizer(optimizer).refuse(recipe_with(optimizer, settings))
    except ValueError as error:
        refused = str(error)
    assert bool(said) == bool(refused)
    assert refused in said


def test_optimizers_are_imported_without_torch() -> None:
    names = [name for name in OPTIMIZERS if name not in ("mipro", "dspy-gepa")]  # DSPy imports what it likes
    code = (
        "import sys; from fastslow.fast.optimizers import find_optimizer; "
        f"[find_optimizer(name) for name in {names!r}]; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
