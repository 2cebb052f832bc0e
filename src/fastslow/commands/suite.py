"""`fastslow suite`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fastslow.commands.shared import Json, Rollouts, Tasks, Trust, console, loading, results


def suite(
    runs: Annotated[
        list[str], Argument(metavar="RUN... [KEY=VALUE]...", help="Run folders, and settings of the fast loop.")
    ],
    task: Tasks = None,
    recipe: Annotated[
        Path | None, Option(metavar="RECIPE", help="Settings; those of the first run by default.")
    ] = None,
    cycles: Annotated[int, Option(min=1, help="Cycles of GEPA.")] = 1,
    k: Rollouts = 8,
    trust: Trust = False,
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the runs.")] = Path("runs/suite"),
    as_json: Json = False,
) -> None:
    """Run GEPA only from the base model and from the weights of runs, on several tasks.

    The results are a table and a radar chart. Repeat the command to resume.
    """
    loading()
    from fastslow.study.suite import run_suite

    folders = [argument for argument in runs if "=" not in argument]
    settings = [argument for argument in runs if "=" in argument]
    with results(as_json) as write:
        spokes = run_suite(
            folders, task or [], out, console, recipe=recipe, overrides=settings, cycles=cycles, k=k, trust=trust
        )
        if as_json:
            write({"out": out, "scores": [asdict(spoke) for spoke in spokes]})
