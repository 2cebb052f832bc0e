"""`fastslow compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fastslow.commands.shared import Json, console, results


def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders, finished or not.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the tables and figures.")] = Path("comparison"),
    baseline: Annotated[
        str | None, Option(metavar="ARM", help="Arm or method that the others are compared with; rl by default.")
    ] = None,
    rollouts: Annotated[
        int | None, Option(min=0, metavar="N", help="Truncate every run at N rollouts before comparing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs over methods and seeds: reward by steps, rollouts, tokens and time, cost of the baseline's peak, KL."""
    from fastslow.study.report import compare_runs

    with results(as_json) as write:
        found = compare_runs(runs, out, console, baseline, rollouts)
        if as_json:
            write(found)
