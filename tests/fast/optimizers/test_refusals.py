"""What each optimizer supports, and what a recipe with it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers import EXAMPLE

from fastslow.base.errors import RecipeError
from fastslow.recipe import load_recipe
from fastslow.recipe.parts import OPTIMIZER

ALL = list(OPTIMIZER.registry.built_in)
SUPPORTING = {
    "fast.rescore=from-rollouts": {"gepa", "evoprompt"},
    "fast.reuse=true": {"gepa", "evoprompt", "textgrad", "reflexion", "ace"},
    "fast.population=1": set(ALL) - {"evoprompt", "promptbreeder"},
    "fast.population=2": set(ALL),
    "fast.budget=5": {"gepa", "digest"},
    "fast.budget=800": set(ALL),
}
"""The optimizers that work with a setting."""


@pytest.mark.parametrize("optimizer", ALL)
@pytest.mark.parametrize("setting", SUPPORTING)
def test_a_recipe_refuses_what_the_optimizer_does_not_support(optimizer: str, setting: str) -> None:
    given = ["fast.budget=800", f"fast.optimizer={optimizer}", setting]
    if optimizer in SUPPORTING[setting]:
        load_recipe(EXAMPLE, given)
    else:
        with pytest.raises(
            RecipeError, match=f"{setting.partition('=')[0]}.* fast.optimizer|fast.optimizer.*population"
        ):
            load_recipe(EXAMPLE, given)


def test_optimizers_are_imported_without_torch() -> None:
    names = [name for name in ALL if name not in ("mipro", "dspy-gepa")]  # DSPy imports what it likes
    code = (
        "import sys; from fastslow.recipe.parts import OPTIMIZER; "
        f"[OPTIMIZER.registry.find(name) for name in {names!r}]; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
