"""Every recipe in the repository loads, and its task takes the options it gives."""

from pathlib import Path

import pytest

from fastslow.recipe import load_recipe
from fastslow.study import quickstart, studies
from fastslow.tasks.registry import check_options

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = {str(file.relative_to(RECIPES)): file for file in sorted(RECIPES.rglob("*.yaml"))} | {
    file.name: file for file in (quickstart.RECIPE, studies.RECIPE)
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())
def test_a_recipe_loads_and_its_options_are_known(file: Path) -> None:
    check_options(load_recipe(file))


def test_every_family_has_a_small_and_a_paper_recipe() -> None:
    small = {part.name for file in RECIPES.glob("*.yaml") for part in load_recipe(file).tasks}
    paper = {part.name for file in RECIPES.glob("paper/*.yaml") for part in load_recipe(file).tasks}
    assert {"star-graph", "codeio", "math", "hover", "physics"} <= small & paper
