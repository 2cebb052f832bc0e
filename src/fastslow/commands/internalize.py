"""`fastslow internalize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Option

from fastslow.commands.shared import RunPath, Trust, console, loading


def internalize(
    run: RunPath,
    out: Annotated[Path | None, Option(metavar="DIR", help="A new folder; RUN/internalized by default.")] = None,
    epochs: Annotated[int, Option(min=1, help="Most epochs of supervised learning.")] = 30,
    batch: Annotated[
        int, Option(min=1, help="Rollouts per step; with --steps in whole groups of the run, at least one.")
    ] = 32,
    learning_rate: Annotated[float | None, Option(min=0, help="AdamW's learning rate; the run's by default.")] = None,
    per_problem: Annotated[int, Option(min=1, help="Most rollouts used of a problem, the newest first.")] = 4,
    score: Annotated[float, Option(min=0, max=1, help="The lowest score of a rollout to learn from.")] = 1.0,
    held_back: Annotated[float, Option(min=0, max=0.9, help="Share of problems held back for early stopping.")] = 0.1,
    patience: Annotated[int, Option(min=1, help="Stop after so many epochs without a better one.")] = 3,
    sample: Annotated[
        int, Option(min=0, help="Rollouts to sample with text on further problems, to learn from too.")
    ] = 0,
    steps: Annotated[int, Option(min=0, help="Steps of on-policy distillation afterwards; they sample rollouts.")] = 0,
    microbatch: Annotated[
        int | None, Option(min=1, help="Rollouts of a micro-batch; the run's by default. Fewer need less memory.")
    ] = None,
    also: Annotated[
        str | None, Option(metavar="TASK", help="Another task to evaluate before and after, for forgetting.")
    ] = None,
    checkpoint: Annotated[
        int | None, Option(metavar="STEP", help="Step of the checkpoint; the newest by default.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Train a run's weights to do without its text what they do with it, from its own solved rollouts.

    Needs a run with saved rollouts (output.save_rollouts=true). The run is unchanged; an interrupted command starts over.
    """
    loading()
    from fastslow.launch.internalize import Settings, internalize_run
    from fastslow.runs.folder import INTERNALIZED
    from fastslow.runs.view import PlainView
    from fastslow.study.suite import read_task

    settings = Settings(
        epochs, batch, learning_rate, per_problem, held_back, patience, score, sample, steps, microbatch
    )
    other = read_task(also, "--also") if also else None
    numbers = internalize_run(run, out, settings, step=checkpoint, also=other, trust=trust, view=PlainView(console))
    console.print(_table(numbers))
    kept = "" if numbers["kept"] is None else f"{numbers['kept']:.0%} of the reward with text is kept without it; "
    console.print(
        f"{kept}{numbers['rollouts']:,} rollouts of {numbers['problems']:,} problems, {numbers['seconds']:,.0f} s of "
        f"training; written to {out or run / INTERNALIZED}",
        highlight=False,
        soft_wrap=True,
    )


def _table(numbers: dict[str, Any]) -> Table:
    table = Table("text", "reward before", "reward after", "KL before", "KL after")
    for label, before in numbers["before"].items():
        after = numbers["after"][label]
        table.add_row(
            label, *(_reward(each) for each in (before, after)), *(f"{each['kl']:.4f}" for each in (before, after))
        )
    return table


def _reward(score: dict[str, Any]) -> str:
    return f"{score['mean']:.3f} ({score['low']:.3f} to {score['high']:.3f})"
