"""`fastslow contexts`."""

from __future__ import annotations

from typing import Annotated

import typer

from fastslow.commands.shared import RunPath, console


def contexts(
    run: RunPath, full: Annotated[bool, typer.Option("--full", help="Show whole texts and all feedback.")] = False
) -> None:
    """Show how the contexts of a run evolved: their lineage, scores and edits."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.lineage import show_contexts

    show_contexts(RunFolder.open(run), console, full=full)
