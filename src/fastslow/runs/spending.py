"""What a run spent, as tables by purpose, by cycle and by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastslow.base.text import number
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import PURPOSES, TRAINING, Entry, Ledger

FORMER = {"cut_off": "truncated"}
"""Former names of faults, which older run folders contain, and their present names."""
NARROW = {
    "fast-score": "fast\nscore",
    "fast-minibatch": "mini-\nbatch",
    "evaluation": "evalu-\nation",
    "reflections": "reflec-\ntions",
    "prompt tokens": "prompt\ntokens",
    "completion tokens": "compl.\ntokens",
}
"""Headings in two lines, so that a table fits 80 columns."""


def spending(run: RunFolder, *, steps: bool) -> dict[str, Any]:
    """What a run spent by purpose, by cycle and, with `steps`, by step."""
    rows = run.rows("ledger")

    def entries(ledger: Ledger) -> dict[str, Any]:
        return {name: {**asdict(entry), "faults": dict(_faults(entry))} for name, entry in _entries(ledger).items()}

    def by(key: str) -> list[dict[str, Any]]:
        return [{key: value, "spent": entries(group_sum(rows, key, value))} for value in _values(rows, key)]

    with files.understood(run.path):
        found = {"run": run.path, "spent": entries(sum_rows(rows)), "cycles": by("cycle")}
        return found | ({"steps": by("step")} if steps else {})


def show_ledger(run: RunFolder, console: Console, *, steps: bool) -> None:
    """Print the totals by purpose and by cycle, and with `steps` by step."""
    rows = run.rows("ledger")
    if not rows:
        console.print(
            Text(f"'{run.path}' has no entries in ledger.jsonl yet; the first is written with the first step")
        )
        return
    with files.understood(run.path):
        total = sum_rows(rows)
        console.print(_by_purpose(total))
        for name, entry in _entries(total).items():
            if (faults := _faults(entry)) and name in PURPOSES:
                said = ", ".join(f"{count:,} {fault}" for fault, count in faults.items())
                console.print(Text(f"faults of {name}: {said}"))
        console.print(_by("cycle", {cycle: group_sum(rows, "cycle", cycle) for cycle in _values(rows, "cycle")}))
        if steps:
            console.print(_by("step", {step: group_sum(rows, "step", step) for step in _values(rows, "step")}))
    console.print(
        Text(
            "Rollouts, calls and tokens count under the purpose they were sampled for; reused rollouts were sampled for "
            "another purpose. Columns of zeros are left out; --json has every number.",
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


def _entries(ledger: Ledger) -> dict[str, Entry]:
    """Every purpose, their sum in training, and all of it."""
    purposes: dict[str, Entry] = {purpose: ledger[purpose] for purpose in PURPOSES}
    return purposes | {"training": ledger.total(TRAINING), "all": ledger.total()}


def _by_purpose(ledger: Ledger) -> Table:
    columns = ("rollouts", "reused", "calls", "prompt_tokens", "completion_tokens", "seconds", "cost")
    headings = {column: "cost $" if column == "cost" else column.replace("_", " ") for column in columns}
    rows = {
        name: {heading: getattr(entry, column) for column, heading in headings.items()}
        for name, entry in _entries(ledger).items()
    }
    return _table("spent, by purpose", "purpose", rows, bold=("training", "all"))


def _by(name: str, ledgers: Mapping[int, Ledger]) -> Table:
    """Rollouts by purpose, one row per ledger; reflection has calls instead of rollouts, and preflight is before step 1."""
    purposes = [purpose for purpose in PURPOSES if purpose not in ("reflection", "preflight")]
    rows = {}
    for value, ledger in ledgers.items():
        total = ledger.total()
        rows[str(value)] = {
            **{str(purpose): ledger[purpose].rollouts for purpose in purposes},
            "reused": total.reused,
            "reflections": ledger["reflection"].calls,
            "tokens": total.prompt_tokens + total.completion_tokens,
            "seconds": total.seconds,
            "cost $": total.cost,
        }
    return _table(f"rollouts, by {name}", name, rows)


def _table(title: str, first: str, rows: Mapping[str, Mapping[str, float]], bold: tuple[str, ...] = ()) -> Table:
    """Rows of amounts by column, without the columns that are zero in every row."""
    columns = [name for name in next(iter(rows.values())) if any(row[name] for row in rows.values())]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in columns:
        table.add_column(NARROW.get(name, name), justify="right", no_wrap=True)
    for name, row in rows.items():
        cells = (_amount(column, row[column]) for column in columns)
        table.add_row(name, *cells, style="bold" if name in bold else "")
    return table


def _amount(column: str, amount: float) -> str:
    if column == "cost $":
        return f"{amount:.4f}" if amount < 10 else f"{amount:,.2f}"
    if column == "seconds":
        return f"{amount:,.1f}" if amount < 1e4 else f"{amount:,.0f}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e5, "k")):
        if amount >= size:
            return f"{amount / size:.2f}{unit}" if unit != "k" else f"{amount / 1e3:.0f}k"
    return number(amount)


def _faults(entry: Entry) -> Counter[str]:
    """The faults under their present names."""
    faults: Counter[str] = Counter()
    for name, count in entry.faults.items():
        faults[FORMER.get(name, name)] += count
    return faults
