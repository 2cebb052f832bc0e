"""A run as a curve: what it had reached after so many rollouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.errors import RunError
from fastslow.runs.folder import RunFolder


@dataclass(frozen=True)
class Curve:
    """One point for every evaluation of a run, in order; what was not measured is not a number.

    A run is judged under its best context, or under the seed while there is no better.
    """

    rollouts: tuple[int, ...]
    """Training rollouts spent, of both loops."""
    rewards: tuple[float, ...]
    """Mean reward on validation problems."""
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    """The 95% interval of the reward."""
    kls: tuple[float, ...]
    """How far the policy has moved from the base model."""
    seconds: tuple[float, ...]
    """Time spent on training, evaluation left out."""

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Curve:
        """The curve that the rows of an `evals.jsonl` draw."""
        judged = [row["results"].get("best context", row["results"]["seed"]) for row in rows]
        return cls(
            rollouts=tuple(row["rollouts_slow"] + row["rollouts_fast"] for row in rows),
            rewards=tuple(result["mean"] for result in judged),
            lows=tuple(result["low"] for result in judged),
            highs=tuple(result["high"] for result in judged),
            kls=tuple(_measured(result.get("kl")) for result in judged),
            seconds=tuple(_measured(row.get("seconds")) for row in rows),
        )

    def rollouts_to(self, reward: float) -> float:
        """Rollouts spent at the first evaluation that reaches a reward; infinity where none does."""
        at = self._first(reward)
        return math.inf if at is None else self.rollouts[at]

    def kl_at(self, reward: float) -> float:
        """KL from the base model at the first evaluation that reaches a reward; not a number where none does."""
        at = self._first(reward)
        return math.nan if at is None else self.kls[at]

    def _first(self, reward: float) -> int | None:
        return next((index for index, reached in enumerate(self.rewards) if reached >= reward), None)


def _measured(value: float | None) -> float:
    return math.nan if value is None else value


def read_curve(folder: str | Path) -> Curve:
    """The curve of a run so far, from its folder."""
    rows = RunFolder.open(folder).rows("evals")
    if not rows:
        raise RunError(f"'{folder}' has no evaluations to draw a curve from; run it with evaluation.every above 0")
    return Curve.from_rows(rows)
