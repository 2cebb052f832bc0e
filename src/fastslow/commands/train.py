"""`fastslow train`."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fastslow.base.errors import FastSlowError
from fastslow.commands.board import beside
from fastslow.commands.shared import Overrides, Trust, loading


def train(
    recipe: Annotated[Path | None, Argument(metavar="RECIPE", help="A recipe file; - is standard input.")] = None,
    overrides: Overrides = None,
    resume: Annotated[Path | None, Option(metavar="RUN", help="Resume this run instead.")] = None,
    step: Annotated[
        int | None, Option(min=0, metavar="STEP", help="Resume from this checkpoint, not the newest; 0 starts over.")
    ] = None,
    trust: Trust = False,
    board: Annotated[bool, Option("--board", help="Show the run in a browser while it trains.")] = False,
) -> None:
    """Train a recipe, resume an interrupted run, or extend a finished one.

    On resume, settings that fit the run to the machine, grading.faulty and grading.timeout can be changed, and slow.steps
    and rollouts can be raised (docs/run-folder.md).
    """
    changed = overrides or []
    if resume is not None and recipe is not None and "=" in str(recipe):  # no recipe: the first KEY=VALUE
        recipe, changed = None, [str(recipe), *changed]
    if (recipe is None) == (resume is None):
        raise FastSlowError(
            "give either a recipe (fastslow train RECIPE) or a run to resume (fastslow train --resume RUN)"
        )
    loading()
    from fastslow.recipe import STDIN, load_recipe
    from fastslow.runs.folder import RunFolder, default_folder

    if resume is not None:
        RunFolder.open(resume)
        from fastslow.launch import start

        with _board(resume, board):
            start.resume(resume, overrides=changed, step=step, trust=trust)
    elif recipe is not None:
        loaded = load_recipe(recipe, changed)
        folder = default_folder(loaded, "stdin" if recipe == STDIN else recipe.stem)
        RunFolder(folder).refuse_existing()
        from fastslow.launch import start

        with _board(folder, board):
            start.train(loaded, folder)


def _board(folder: Path, wanted: bool) -> AbstractContextManager[None]:
    """The board beside the run, if wanted, on its main process."""
    return beside(folder) if wanted and os.environ.get("RANK", "0") == "0" else nullcontext()
