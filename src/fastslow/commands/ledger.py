"""`fastslow ledger`."""

from __future__ import annotations

from typing import Annotated

import typer

from fastslow.commands.shared import RunPath, console


def ledger(run: RunPath, steps: Annotated[bool, typer.Option("--steps", help="Also show every step.")] = False) -> None:
    """Show what a run spent: rollouts, tokens, seconds and cost, by purpose and by cycle."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.spending import show_ledger

    show_ledger(RunFolder.open(run), console, steps=steps)
