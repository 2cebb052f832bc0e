"""The runs of a study: one that is finished is kept, one that was interrupted goes on, one that is missing is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastslow.errors import FastSlowError
from fastslow.recipe import MACHINE_SETTINGS, Recipe, flat
from fastslow.runs.folder import RunFolder


def finished(path: Path) -> bool:
    run = RunFolder(path).read_json("run.json")
    return run is not None and run["status"] == "finished"


def finish(recipe: Callable[[], Recipe], path: Path) -> Path:
    """Bring a run to its end, from wherever it is; its recipe is asked for only where the run is to be made."""
    from fastslow import start

    if finished(path):
        return path
    return start.resume(path) if (path / "run.json").exists() else start.train(recipe(), path)


def refuse_other_settings(recipe: Recipe, path: Path, study: Path) -> None:
    """Raise where a study's run was made with another recipe."""
    there, here = flat(RunFolder.open(path).recipe.model_dump()), flat(recipe.model_dump())
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key) and key not in MACHINE_SETTINGS]
    if keys:
        differences = ", ".join(f"{key} is {there.get(key)} there and {here.get(key)} here" for key in keys)
        raise FastSlowError(
            f"'{study}' was made with other settings: {differences}; give the same ones to go on, remove the folder, or "
            f"choose another"
        )
