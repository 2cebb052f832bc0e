"""`fastslow ledger`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from fastslow.commands.shared import Json, RunPath, console, results


def ledger(
    run: RunPath,
    steps: Annotated[bool, Option("--steps", help="Also show every step.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a run spent: rollouts, tokens, seconds and cost, by purpose and by cycle."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.ledger import show_ledger, spending

    opened = RunFolder.open(run)
    with results(as_json) as write:
        if as_json:
            write(spending(opened, steps=steps))
        else:
            show_ledger(opened, console, steps=steps)
