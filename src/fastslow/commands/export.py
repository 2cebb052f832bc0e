"""`fastslow export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fastslow.commands.shared import AtStep, RunPath, Trust, console, loading


def export(
    run: RunPath,
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder for the model.")],
    checkpoint: AtStep = None,
    internalized: Annotated[
        bool, Option("--internalized", help="Export the weights of `fastslow internalize`, with the seed text.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Export a run as a Hugging Face model folder: merged weights, best context as system prompt, pool, model card."""
    loading()
    from fastslow.launch.export import export_run

    console.print(f"exported to {export_run(run, folder, checkpoint, internalized=internalized, trust=trust)}")
