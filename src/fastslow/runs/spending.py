"""What a run spent, as tables by purpose, by cycle and by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import PURPOSES, TRAINING, Entry, Ledger
from fastslow.text import number

FORMER = {"cut_off": "truncated"}
"""Former names of faults, which older run folders contain, and their present names."""


def show_ledger(run: RunFolder, console: Console, *, steps: bool) -> None:
    """Print the totals by purpose and by cycle, and with `steps` by step."""
    rows = run.rows("ledger")
    if not rows:
        console.print(
            Text(f"'{run.path}' has no entries in ledger.jsonl yet; the first is written with the first step")
        )
        return
    with files.understood(run.path):
        console.print(_by_purpose(sum_rows(rows)))
        console.print(_by("cycle", {cycle: group_sum(rows, "cycle", cycle) for cycle in _values(rows, "cycle")}))
        if steps:
            console.print(_by("step", {step: group_sum(rows, "step", step) for step in _values(rows, "step")}))
    console.print(
        Text(
            "Rollouts, calls and tokens count under the purpose they were sampled for; reused rollouts were sampled for "
            "another purpose.",
            style="dim",
        )
    )


def sum_rows(rows: Iterable[Mapping[str, Any]]) -> Ledger:
    """The sum of rows of `ledger.jsonl`."""
    total = Ledger()
    for row in rows:
        total.add(Ledger.from_dict(row["spent"]))
    return total


def group_sum(rows: Iterable[Mapping[str, Any]], key: str, value: int) -> Ledger:
    return sum_rows(row for row in rows if row[key] == value)


def _values(rows: Iterable[Mapping[str, Any]], key: str) -> list[int]:
    return list(dict.fromkeys(row[key] for row in rows))


def _table(title: str, first: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _by_purpose(ledger: Ledger) -> Table:
    columns = ("rollouts", "reused", "calls", "prompt tokens", "completion tokens", "seconds", "cost $", "faults")
    table = _table("spent, by purpose", "purpose", columns)
    entries: dict[str, Entry] = {purpose: ledger[purpose] for purpose in PURPOSES}
    entries["training"] = ledger.total(TRAINING)
    entries["all"] = ledger.total()
    for name, entry in entries.items():
        faults = ", ".join(f"{count} {fault}" for fault, count in _faults(entry).items())
        amounts = (entry.rollouts, entry.reused, entry.calls, entry.prompt_tokens, entry.completion_tokens)
        table.add_row(
            name,
            *(number(amount) for amount in amounts),
            f"{entry.seconds:,.1f}",
            f"{entry.cost:.4f}",
            faults or "-",
            style="bold" if name in ("training", "all") else "",
            end_section=name == PURPOSES[-1],
        )
    return table


def _faults(entry: Entry) -> Counter[str]:
    """The faults under their present names."""
    faults: Counter[str] = Counter()
    for name, count in entry.faults.items():
        faults[FORMER.get(name, name)] += count
    return faults


def _by(name: str, ledgers: Mapping[int, Ledger]) -> Table:
    """Rollouts by purpose, one row per ledger; reflection has calls instead of rollouts, and preflight is before step 1."""
    purposes = [purpose for purpose in PURPOSES if purpose not in ("reflection", "preflight")]
    table = _table(f"rollouts, by {name}", name, [*purposes, "reused", "reflections", "tokens", "seconds", "cost $"])
    for value, ledger in ledgers.items():
        total = ledger.total()
        table.add_row(
            str(value),
            *(number(ledger[purpose].rollouts) for purpose in purposes),
            number(total.reused),
            number(ledger["reflection"].calls),
            number(total.prompt_tokens + total.completion_tokens),
            f"{total.seconds:,.1f}",
            f"{total.cost:.4f}",
        )
    return table
