"""Training the runs that a study compares: finished runs are kept, interrupted ones resumed, and methods compared at equal
rollouts."""

from __future__ import annotations

from pathlib import Path

from fastslow.base.errors import FastSlowError
from fastslow.recipe import MACHINE_SETTINGS, Recipe, flat
from fastslow.recipe.model import Method
from fastslow.runs.folder import RunFolder
from fastslow.study.curves import Curve, read_curve

METHODS: tuple[Method, ...] = ("fst", "rl", "gepa")
"""In the order they are run."""
UNTIL_SPENT = 100_000
"""More steps than any rollout budget lasts for."""


def at_equal_rollouts(recipe: Recipe, fst: Curve) -> Recipe:
    """The recipe with the rollouts that an FST run spent, fast-loop rollouts included, as its budget.

    This is what FST spent, not what its settings allow: with reused rollouts it spends less, and a cycle may end a little
    past its budget.
    """
    slow = recipe.slow.model_copy(update={"steps": UNTIL_SPENT})
    return recipe.model_copy(update={"rollouts": int(fst.rollouts[-1]), "slow": slow})


def finished(path: Path) -> bool:
    run = RunFolder(path).read_json("run.json")
    return run is not None and run["status"] == "finished"


def train_or_resume(recipe: Recipe, path: Path) -> Path:
    """Train a run to its end, from the start or from its newest checkpoint."""
    if finished(path):
        return path
    from fastslow.launch.start import resume, train  # not before the settings are checked: it imports torch

    return resume(path) if (path / "run.json").exists() else train(recipe, path)


def refuse_other_settings(recipe: Recipe, path: Path, study: Path) -> None:
    """Raise where a run of a study is there and was trained with another recipe."""
    if not (path / "run.json").exists():
        return
    there, here = flat(RunFolder.open(path).recipe.model_dump()), flat(recipe.model_dump())
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key) and key not in MACHINE_SETTINGS]
    if keys:
        differences = ", ".join(f"{key} is {there.get(key)} there and {here.get(key)} here" for key in keys)
        raise FastSlowError(
            f"'{study}' holds runs with other settings: {differences}; give the same settings to resume, or choose another "
            "folder"
        )


def refuse_wrong_base(recipe: Recipe, folder: Path) -> None:
    """Raise where a recipe cannot be run with several methods, each in a folder of its own."""
    if recipe.method != "fst":
        raise FastSlowError(f"method={recipe.method}, but a study runs several methods; remove this setting")
    if recipe.output.folder is not None:
        raise FastSlowError(f"output.folder={recipe.output.folder}, but the runs go to '{folder}'; remove this setting")
    if not recipe.evaluation.every:
        raise FastSlowError("evaluation.every=0, but a study compares evaluations; set it to 1 or more")


def check_methods(recipe: Recipe, folder: Path) -> None:
    """Raise where the recipe cannot be run with each method, or the folder holds anything but such runs of it."""
    refuse_wrong_base(recipe, folder)
    if recipe.stages:
        raise FastSlowError(
            "runs with stages cannot be compared at equal rollouts; train each method with its own recipe"
        )
    if folder.exists() and not folder.is_dir():
        raise FastSlowError(f"'{folder}' is a file; choose another folder")
    if not (folder / "fst" / "run.json").exists() and folder.exists() and any(folder.iterdir()):
        raise FastSlowError(
            f"'{folder}' is not empty and has no run in '{folder / 'fst'}'; choose another folder, or remove it"
        )
    for method in METHODS:
        if (folder / method / "run.json").exists():
            refuse_other_settings(_recipe_of(method, recipe, folder), folder / method, folder)


def run_method(method: Method, recipe: Recipe, folder: Path) -> Path:
    """Train the run of one method to its end, in its sub-folder; FST must have finished before the others."""
    return train_or_resume(_recipe_of(method, recipe, folder), folder / method)


def _recipe_of(method: Method, recipe: Recipe, folder: Path) -> Recipe:
    if method == "fst":
        return recipe
    return at_equal_rollouts(recipe.model_copy(update={"method": method}), read_curve(folder / "fst"))
