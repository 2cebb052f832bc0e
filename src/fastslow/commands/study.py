"""`fastslow study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastslow.commands.shared import Tasks, console, quiet
from fastslow.errors import FastSlowError


def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="data-efficiency, asymptote, …, or all.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [KEY=VALUE]...", help="The recipe to start from; by default nano on a rulebook."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds, separated by commas.")] = "0,1,2",
    task: Tasks = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs to train in parallel.")] = 1,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the runs.")] = Path("runs/studies"),
) -> None:
    """Answer a question about the method on your model and task.

    Trains the runs that the question needs, then shows a figure and a table beside the published numbers. Studies share runs.
    Repeat the command to resume.
    """
    numbers = _numbers(seeds)
    quiet()
    from fastslow.study.studies import run_study

    given = settings or []
    recipe = Path(given.pop(0)) if given and "=" not in given[0] else None
    run_study(name, console, recipe=recipe, overrides=given, tasks=task or [], seeds=numbers, parallel=jobs, out=out)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise FastSlowError(f"--seeds {text}: expected whole numbers separated by commas, such as 0,1,2") from None
