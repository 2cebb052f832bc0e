"""What a run spent, by purpose. Every call of the policy or the reflection model is booked exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from fastslow.recipe import PricesRecipe
from fastslow.records import Rollout

Purpose = Literal["slow", "fast-score", "fast-minibatch", "rescore", "evaluation", "reflection", "preflight"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
FAST: tuple[Purpose, ...] = ("rescore", "fast-minibatch", "fast-score")
"""The purposes of fast-loop rollouts."""
RETRIES = "service"
"""The fault under which requests are counted that a training service, or a vLLM server, made the engine repeat."""
TRAINING: tuple[Purpose, ...] = ("slow", *FAST, "reflection")
"""The purposes that training itself needs: neither evaluation nor the calls before step 1."""


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
