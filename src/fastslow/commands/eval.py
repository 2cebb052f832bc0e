"""`fastslow eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from typer import Option

from fastslow.commands.shared import AtStep, Json, Rollouts, RunPath, Trust, checked_split, console, loading, results

if TYPE_CHECKING:
    from fastslow.evaluation.measure import Score


def evaluate(
    run: RunPath,
    checkpoint: AtStep = None,
    k: Rollouts = 8,
    split: Annotated[str, Option(help="validation, test or train.")] = "validation",
    trust: Trust = False,
    pool: Annotated[bool, Option("--pool", help="Evaluate every context of the pool, not only the best.")] = False,
    as_json: Json = False,
) -> None:
    """Evaluate a run's policy on held-out problems, under its best context and under the seed text."""
    chosen = checked_split(split)
    loading()
    from fastslow.launch.evaluate import evaluate_run

    with results(as_json) as write:
        with console.status("evaluating"):
            scores = evaluate_run(run, step=checkpoint, k=k, split=chosen, whole_pool=pool, trust=trust)
        if as_json:
            contexts = {label: score.to_dict() for label, score in scores.items()}
            write({"run": run, "split": chosen, "k": k, "contexts": contexts})
        else:
            console.print(_table(scores, k))


def _table(scores: dict[str, Score], k: int) -> Table:
    table = Table("context", "id", f"mean@{k} (95% interval)", f"best@{k} (95% interval)", "problems", "tokens")
    for label, score in scores.items():
        table.add_row(
            label,
            score.context,
            f"{score.mean:.3f} ({score.low:.3f} to {score.high:.3f})",
            f"{score.best:.3f} ({score.best_low:.3f} to {score.best_high:.3f})",
            str(score.problems),
            f"{score.response_length:.0f}",
        )
    return table
