"""The rollouts that a run has saved: choosing some of them and showing them to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from fastslow.base.errors import RunError
from fastslow.base.text import number, one_line, printable
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import context_texts
from fastslow.runs.rollout_files import newest_first

LONGEST = 600
"""Characters shown of a question, a context, an answer or a feedback; --json has all of them."""
COLUMNS = ("example", "context", "policy_step", "score", "feedback", "error", "questions", "answers", "purpose")
"""The columns read. Runs of earlier versions lack `error` and `questions`; only the fast loop's files have `purpose`."""


@dataclass(frozen=True)
class Choice:
    """Which rollouts to show. Without a step or a cycle it is the newest one; a context or a problem is looked for in the
    whole run."""

    step: int | None = None
    cycle: int | None = None
    context: str | None = None
    """A context's id, or its beginning."""
    problem: str | None = None
    order: Literal["worst", "best"] | None = None
    """By score; without it, in the order they were saved, the newest file first."""
    limit: int = 8


@dataclass(frozen=True)
class Chosen:
    """The rollouts chosen, at most as many as asked for, and a summary of all that match."""

    where: str
    count: int
    mean: float
    rollouts: Sequence[dict[str, Any]]


def choose_rollouts(run: RunFolder, choice: Choice) -> Chosen:
    """The saved rollouts that match, with the texts of their contexts."""
    paths = _files(run, choice)
    with files.understood(run.path):
        found = [row for path in paths for row in _rows(path, choice)]
        if not found:
            raise RunError(_no_match(run, choice, paths))
        texts = context_texts(run)
        mean = sum(row["score"] for row in found) / len(found)
        ordered = found[: choice.limit]
        if choice.order is not None:
            sign = 1 if choice.order == "worst" else -1
            ordered = nsmallest(choice.limit, found, key=lambda row: sign * row["score"])  # stable: the newest first
        where = _name(paths[0]) if len(paths) == 1 else f"{_name(paths[-1])} to {_name(paths[0])}"
        return Chosen(where, len(found), mean, [{**row, "texts": texts.get(row["context"])} for row in ordered])


def show_rollouts(chosen: Chosen, console: Console) -> None:
    """Print rollouts with question, context, answer, score and feedback."""
    head = f"{chosen.where}: {chosen.count:,} rollouts, mean reward {number(chosen.mean)}"
    if len(chosen.rollouts) < chosen.count:
        head += f"; {len(chosen.rollouts)} shown"
    console.print(Text(head, style="bold"), soft_wrap=True)
    for row in chosen.rollouts:
        title = f"\n{one_line(row['example'], 80)} · score {number(row['score'])} · {row['where']}"
        console.print(Text(printable(title), style="bold"), soft_wrap=True)
        for name, text in _parts(row):
            shown = printable(text if len(text) <= LONGEST else f"{text[:LONGEST]} …")
            console.print(Text.assemble((f"{name}: ", "dim"), shown or "(empty)"), soft_wrap=True)


def _parts(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    questions = row["questions"] or [None] * len(row["answers"])
    turns = list(zip(questions, row["answers"], strict=True))
    yield f"context {row['context']}", "\n".join(row["texts"].values()) if row["texts"] else "(its text was not saved)"
    for place, (question, answer) in enumerate(turns, 1):
        of = f" {place}" if len(turns) > 1 else ""
        if question is not None:
            yield f"question{of}", question
        yield f"answer{of}", answer
    yield from ((name, row[name]) for name in ("feedback", "error") if row[name])


def _files(run: RunFolder, choice: Choice) -> list[Path]:
    """The files to look through, the newest first."""
    folder, stored = run.path / "rollouts", newest_first(run)
    if not stored:
        raise RunError(
            f"'{run.path}' has no saved rollouts; those of a step or cycle are saved when it ends, with "
            "output.save_rollouts=true"
        )
    for kind, wanted in (("step", choice.step), ("cycle", choice.cycle)):
        if wanted is None:
            continue
        there = files.numbered(folder, f"{kind}-*.parquet")
        if wanted not in there:
            range_ = f"it has those of {kind}s {min(there)} to {max(there)}" if there else f"it has no {kind}s"
            raise RunError(f"'{run.path}' has no rollouts of {kind} {wanted}; {range_}")
        return [there[wanted]]
    if choice.context is not None or choice.problem is not None:
        return stored
    steps = [path for path in stored if path.name.startswith("step-")]
    return (steps or stored)[:1]


def _name(path: Path) -> str:
    kind, _, digits = path.name.partition(".")[0].partition("-")
    return f"{kind} {int(digits)}"


def _rows(path: Path, choice: Choice) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    table, name = files.read_table(path, COLUMNS), _name(path)
    if choice.context is not None:
        table = table.filter(pc.starts_with(table["context"], choice.context))
    if choice.problem is not None:
        table = table.filter(pc.equal(table["example"], choice.problem))
    for row in table.to_pylist():
        purpose = row.get("purpose")
        where = f"{name} ({purpose})" if purpose else name
        yield {"error": "", "questions": None, **row, "where": where}


def _no_match(run: RunFolder, choice: Choice, paths: Sequence[Path]) -> str:
    wanted = " and ".join(
        f"{name} '{value}'" for name, value in (("context", choice.context), ("problem", choice.problem)) if value
    )
    column = "example" if choice.problem else "context"
    there = dict.fromkeys(files.read_table(paths[0], [column])[column].to_pylist())
    some = ", ".join(f"'{one_line(each, 60)}'" for each in list(there)[:4])
    return f"'{run.path}' has no rollout of {wanted or 'this choice'}; {_name(paths[0])} has, among others, {some or 'none'}"
