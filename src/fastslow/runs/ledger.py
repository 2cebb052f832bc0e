"""What a run spent, by purpose, and as tables by cycle and by step.

Every call of the policy or the reflection model is booked exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastslow.base.text import number
from fastslow.recipe import PricesRecipe
from fastslow.records import Rollout
from fastslow.runs import files

if TYPE_CHECKING:
    from fastslow.runs.folder import RunFolder

Purpose = Literal[
    "slow", "withdrawn", "rescue", "fast-score", "fast-minibatch", "rescore", "evaluation", "reflection", "preflight"
]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
SLOW: tuple[Purpose, ...] = ("slow", "withdrawn", "rescue")
"""The purposes of slow-loop rollouts: of its groups, those of them without an evolved text, and help where a group failed."""
FAST: tuple[Purpose, ...] = ("rescore", "fast-minibatch", "fast-score")
"""The purposes of fast-loop rollouts."""
RETRIES = "service"
"""The fault under which requests are counted that a training service, or a vLLM server, made the engine repeat."""
TRAINING: tuple[Purpose, ...] = (*SLOW, *FAST, "reflection")
"""The purposes that training itself needs: neither evaluation nor the calls before step 1."""
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


@dataclass(frozen=True)
class Entry:
    """An amount spent; `calls` counts model calls, so a rollout of three turns counts three.

    `reused` counts rollouts used for this purpose but sampled and booked for another, so at no extra cost.
    """

    rollouts: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    reused: int = 0

    def __add__(self, other: Entry) -> Entry:
        return self._combined(other, 1)

    def __sub__(self, other: Entry) -> Entry:
        return self._combined(other, -1)

    def _combined(self, other: Entry, sign: int) -> Entry:
        amounts = {name: getattr(self, name) + sign * getattr(other, name) for name in _AMOUNTS}
        faults = {
            name: self.faults.get(name, 0) + sign * other.faults.get(name, 0)
            for name in {**self.faults, **other.faults}
        }
        return Entry(**amounts, faults={name: count for name, count in faults.items() if count})


_AMOUNTS = [item.name for item in fields(Entry) if item.name != "faults"]


@dataclass
class Ledger:
    """One running total for every purpose."""

    entries: dict[Purpose, Entry] = field(default_factory=lambda: {purpose: Entry() for purpose in PURPOSES})

    def __getitem__(self, purpose: Purpose) -> Entry:
        return self.entries[purpose]

    def book(self, purpose: Purpose, spent: Entry) -> None:
        self.entries[purpose] += spent

    def book_rollouts(
        self, purpose: Purpose, rollouts: Sequence[Rollout], seconds: float, *, prices: PricesRecipe | None = None
    ) -> None:
        """Book the cost of sampled rollouts; reused ones are booked by number, with `Entry(reused=…)`."""
        faults: Counter[str] = Counter()
        for rollout in rollouts:
            faults.update(rollout.faults)
        calls = sum(len(rollout.turns) for rollout in rollouts)
        prompt_tokens = sum(rollout.prompt_tokens for rollout in rollouts)
        completion_tokens = sum(rollout.completion_tokens for rollout in rollouts)
        cost = (prices.prompt * prompt_tokens + prices.completion * completion_tokens) / 1e6 if prices else 0.0
        self.book(purpose, Entry(len(rollouts), calls, prompt_tokens, completion_tokens, seconds, cost, faults))

    def total(self, purposes: Iterable[Purpose] | None = None) -> Entry:
        """The sum over some purposes, or over all."""
        return sum((self.entries[purpose] for purpose in (PURPOSES if purposes is None else purposes)), Entry())

    @property
    def training_rollouts(self) -> int:
        """Rollouts of both loops, without evaluation and preflight."""
        return sum(self.entries[purpose].rollouts for purpose in TRAINING)

    @property
    def training_tokens(self) -> int:
        """Prompt and completion tokens of training rollouts, without those of the reflection model."""
        spent = self.total(purpose for purpose in TRAINING if purpose != "reflection")
        return spent.prompt_tokens + spent.completion_tokens

    def snapshot(self) -> Ledger:
        return Ledger(dict(self.entries))

    def since(self, snapshot: Ledger) -> Ledger:
        """What was spent since a snapshot."""
        return Ledger({purpose: self[purpose] - snapshot[purpose] for purpose in PURPOSES})

    def add(self, other: Ledger) -> None:
        for purpose in PURPOSES:
            self.entries[purpose] += other[purpose]

    def spent(self) -> dict[str, dict[str, Any]]:
        """The non-empty entries, for a row of `ledger.jsonl`."""
        return {purpose: asdict(entry) for purpose, entry in self.entries.items() if entry != Entry()}

    def to_dict(self) -> dict[str, dict[str, Any]]:
        return {purpose: asdict(entry) for purpose, entry in self.entries.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, Any]]) -> Ledger:
        return cls({purpose: Entry(**data.get(purpose, {})) for purpose in PURPOSES})


def spending(run: RunFolder, *, steps: bool) -> dict[str, Any]:
    """What a run spent by purpose, by cycle and, with `steps`, by step."""
    rows = run.rows("ledger")

    def entries(ledger: Ledger) -> dict[str, Any]:
        return {name: {**asdict(entry), "faults": dict(_faults(entry))} for name, entry in _entries(ledger).items()}

    with files.understood(run.path):
        found: dict[str, Any] = {"run": run.path, "spent": entries(sum_rows(rows))}
        for key in ("cycle", "step") if steps else ("cycle",):
            found[f"{key}s"] = [{key: at, "spent": entries(spent)} for at, spent in sums_by(rows, key).items()]
        return found


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
        for key in ("cycle", "step") if steps else ("cycle",):
            console.print(_by(key, sums_by(rows, key)))
    console.print(
        Text(
            "Rollouts, calls and tokens count under the purpose they were sampled for; reused rollouts were sampled for "
            "another purpose. Rows and columns of zeros are left out; --json has every number.",
            style="dim",
        )
    )


def sum_rows(rows: Iterable[Mapping[str, Any]]) -> Ledger:
    """The sum of rows of `ledger.jsonl`."""
    total = Ledger()
    for row in rows:
        total.add(Ledger.from_dict(row["spent"]))
    return total


def sums_by(rows: Sequence[Mapping[str, Any]], key: str) -> dict[int, Ledger]:
    """The sums of rows of each step or cycle."""
    values = dict.fromkeys(row[key] for row in rows)
    return {value: sum_rows(row for row in rows if row[key] == value) for value in values}


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
    rows = {name: row for name, row in rows.items() if name not in PURPOSES or not _is_empty(row)}
    return _table("spent, by purpose", "purpose", rows, bold=("training", "all"))


def _by(name: str, ledgers: Mapping[int, Ledger]) -> Table:
    """Rollouts by purpose, one row per ledger, all of the slow loop's together; reflection has calls instead of rollouts, and
    preflight is before step 1."""
    purposes = [purpose for purpose in PURPOSES if purpose not in (*SLOW, "reflection", "preflight")]
    rows = {}
    for value, ledger in ledgers.items():
        total = ledger.total()
        rows[str(value)] = {
            "slow": ledger.total(SLOW).rollouts,
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


def _is_empty(row: Mapping[str, float]) -> bool:
    """Whether all amounts are shown as zero."""
    return not any(set(_amount(column, amount)) - set("0.") for column, amount in row.items())


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
