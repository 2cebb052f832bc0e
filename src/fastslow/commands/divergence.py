"""`fastslow divergence`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from rich.table import Table
from typer import Option

from fastslow.commands.shared import Json, RunPath, Trust, checked_split, console, loading, results


def divergence(
    run: RunPath,
    split: Annotated[str, Option(help="validation, test or train.")] = "validation",
    problems: Annotated[int | None, Option(min=1, help="Number of problems; the recipe's by default.")] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Measure the KL from the base model at each checkpoint of a run, under its best context and under the seed text."""
    chosen = checked_split(split)
    loading()
    from fastslow.launch.evaluate import measure_divergence
    from fastslow.runs.frames import DIVERGENCE

    with results(as_json) as write:
        with console.status("measuring") as status:
            rows = measure_divergence(run, split=chosen, problems=problems, progress=status.update, trust=trust)
        if as_json:
            write({"run": run, "split": chosen, "checkpoints": [asdict(row) for row in rows], "file": run / DIVERGENCE})
            return
        table = Table(
            "step", "context", "KL, nats a token", "95% interval", "reward", title=f"on {rows[0].problems} problems"
        )
        for row in rows:
            shown = (f"{row.kl:.5f}", f"{row.low:.5f}–{row.high:.5f}", f"{row.reward:.3f}")
            table.add_row(str(row.step), row.context, *shown)
        console.print(table)
        console.print(f"written to {run / DIVERGENCE}", highlight=False)
