"""What the policy answered in a step, and how it was graded."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from fastslow.errors import RunError, cause
from fastslow.runs import files
from fastslow.runs.folder import RunFolder, numbers
from fastslow.text import number, one_line, printable

LONGEST = 600
"""Characters shown of an answer or a feedback."""
COLUMNS = ("example", "context", "score", "answers", "feedback", "error")


def show_answers(run: RunFolder, console: Console, *, step: int | None, count: int) -> None:
    """Print the first rollouts of a step, the newest by default."""
    stored = numbers(run.path / "rollouts", "step-*.parquet")
    if not stored:
        raise RunError(
            f"'{run.path}' has no saved answers; they are saved with output.save_rollouts=true, from step 1 on"
        )
    chosen = max(stored) if step is None else step
    if chosen not in stored:
        raise RunError(
            f"'{run.path}' has no answers of step {chosen}; it has those of steps {min(stored)} to {max(stored)}"
        )
    with files.understood(run.path):
        _show(_read(run, chosen), chosen, count, console)


def _show(rows: list[dict[str, Any]], chosen: int, count: int, console: Console) -> None:
    mean = sum(row["score"] for row in rows) / max(len(rows), 1)
    console.print(Text(f"step {chosen}: {len(rows)} answers, mean reward {number(mean)}", style="bold"))
    for row in rows[:count]:
        head = f"\n{one_line(row['example'], 80)}, context {row['context']}, score {number(row['score'])}"
        console.print(Text(printable(head), style="bold"))
        shown = {"answer": "\n".join(row["answers"]), "feedback": row["feedback"], "error": row.get("error") or ""}
        for name, text in shown.items():
            if text or name == "answer":
                excerpt = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
                console.print(Text.assemble((f"{name}: ", "dim"), printable(excerpt) or "(empty)"), soft_wrap=True)


def _read(run: RunFolder, step: int) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = run.path / "rollouts" / f"step-{step:06d}.parquet"
    try:
        table = pq.read_table(path)
        rows: list[dict[str, Any]] = table.select([name for name in COLUMNS if name in table.column_names]).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"'{path}' cannot be read: {cause(error)}; restore it from a copy") from error
    return rows
