"""`fastslow recipe`."""

from __future__ import annotations

from fastslow.commands.shared import Overrides, RecipeFile, console


def show_recipe(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Print a recipe with all defaults and overrides applied."""
    from fastslow.recipe import dump_recipe, load_recipe
    from fastslow.tasks.registry import check_options

    loaded = load_recipe(recipe, overrides or [])
    check_options(loaded)
    console.print(dump_recipe(loaded), highlight=False, markup=False, soft_wrap=True, end="")
