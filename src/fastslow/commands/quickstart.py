"""`fastslow quickstart`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from fastslow.commands.shared import Overrides, console, loading


def quickstart(
    overrides: Overrides = None,
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the runs.")] = Path("runs/quickstart"),
) -> None:
    """Train FST, RL only and GEPA only at equal rollouts, on a small task with the embedded model.

    Repeat the command to resume.
    """
    loading()
    from fastslow.study.quickstart import run_quickstart

    run_quickstart(overrides or [], out, console)
