"""`fastslow answers`."""

from __future__ import annotations

from typing import Annotated

import typer

from fastslow.commands.shared import RunPath, console


def answers(
    run: RunPath,
    step: Annotated[int | None, typer.Option("--step", metavar="STEP", help="The step; the newest by default.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Number of answers to show.")] = 8,
) -> None:
    """Show what the policy answered in a step, with scores and feedback."""
    from fastslow.runs.answers import show_answers
    from fastslow.runs.folder import RunFolder

    show_answers(RunFolder.open(run), console, step=step, count=count)
