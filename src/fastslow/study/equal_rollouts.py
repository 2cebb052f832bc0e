"""Both loops and each alone, at the same number of training rollouts.

FST goes first, for the steps of its recipe. What it has spent, the fast loop's rollouts counted, is what RL only and GEPA
only may spend. A run is in the sub-folder of its method; one that was interrupted goes on, one that is finished is kept.
"""

from __future__ import annotations

from pathlib import Path

from fastslow.errors import FastSlowError
from fastslow.recipe import Recipe
from fastslow.recipe.model import Method
from fastslow.study.curves import read_curve
from fastslow.study.finish import finish, finished, refuse_other_settings

METHODS: tuple[Method, ...] = ("fst", "rl", "gepa")
"""In the order they are run."""
UNTIL_SPENT = 100_000
"""Steps: more than any number of rollouts lasts for."""


def check(recipe: Recipe, folder: Path) -> None:
    """Raise where the recipe cannot be run with each method, or the folder holds something other than such runs of it."""
    if recipe.method != "fst":
        raise FastSlowError(f"method={recipe.method}, but every method is run; leave it out")
    if recipe.output.folder is not None:
        raise FastSlowError(f"output.folder={recipe.output.folder}, but the runs go into '{folder}'; leave it out")
    if recipe.stages:
        raise FastSlowError(
            "stages have steps of their own, and cannot all be run to the same rollouts; train each method"
        )
    if not recipe.evaluation.every:
        raise FastSlowError("evaluation.every=0, but methods are compared by their evaluations; set it to 1 or more")
    if folder.exists() and not folder.is_dir():
        raise FastSlowError(f"'{folder}' is a file; choose another folder")
    for method in METHODS:
        if (folder / method / "run.json").exists():
            refuse_other_settings(recipe_of(method, recipe, folder), folder / method, folder)
        elif method == "fst" and folder.exists() and any(folder.iterdir()):
            raise FastSlowError(
                f"'{folder}' holds something else: there is no run in '{folder / method}'; remove it, or choose another "
                f"folder"
            )


def is_finished(method: Method, folder: Path) -> bool:
    return finished(folder / method)


def run_method(method: Method, recipe: Recipe, folder: Path) -> Path:
    """Bring the run of one method to its end, from wherever it is; those before it in `METHODS` are finished."""
    return finish(lambda: recipe_of(method, recipe, folder), folder / method)


def recipe_of(method: Method, recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with a method, which may spend what FST has spent."""
    if method == "fst":
        return recipe
    return recipe.model_copy(
        update={
            "method": method,
            "rollouts": read_curve(folder / "fst").rollouts[-1],
            "slow": recipe.slow.model_copy(update={"steps": UNTIL_SPENT}),
        }
    )
