"""How much of its budget the fast loop may spend in a cycle: less while it finds nothing, all of it when something changed.

It depends on training reward, and on whether children beat the population on training problems. Validation plays no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, variance
from typing import Any

LEAST_SHARE = 1 / 8
"""The share of `fast.budget` that `fast.adaptive` always leaves."""
PATIENCE = 2
"""Cycles without a find, or without a new best reward, before the budget changes."""
CLEAR = 3.0
"""Standard errors by which reward must have fallen to count as a drop."""


@dataclass
class Allowance:
    """Halves every cycle once nothing was found for `PATIENCE` cycles; doubles with a find. It never falls below
    `LEAST_SHARE`: a search that stopped for good would miss a change of the task.

    It returns to the whole budget when reward drops clearly from one cycle to the next, as it does when the task changes,
    and once when reward has stalled; only a new best reward lets the next stall raise it again.
    """

    share: float = 1.0
    idle: int = 0
    """Cycles in a row without a find."""
    stalled: int = 0
    """Cycles in a row without a new best reward."""
    best: float = -math.inf
    last: tuple[float, float] | None = None
    """Mean reward of the last cycle, and its squared standard error."""

    def observe(self, rewards: Sequence[float]) -> None:
        """Take in the rewards of a cycle's problems, as the slow loop drew them."""
        if len(rewards) < 2:
            return
        mean, error = fmean(rewards), variance(rewards) / len(rewards)
        dropped = self.last is not None and mean < self.last[0] - CLEAR * math.sqrt(error + self.last[1])
        if dropped or mean > self.best + math.sqrt(error):
            self.best, self.stalled = mean, 0
        else:
            self.stalled += 1
        if dropped or self.stalled == PATIENCE:
            self.share, self.idle = 1.0, 0
        self.last = mean, error

    def conclude(self, found: bool) -> None:
        """Take in whether a child of the cycle is now the best of the population, and by more than luck."""
        if found:
            self.share, self.idle = min(1.0, 2 * self.share), 0
        else:
            self.idle += 1
            if self.idle >= PATIENCE:
                self.share = max(LEAST_SHARE, self.share / 2)

    def budget(self, whole: int) -> int:
        return math.ceil(whole * self.share)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "best": None if math.isinf(self.best) else self.best}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Allowance:
        best, last = data["best"], data["last"]
        return cls(
            data["share"], data["idle"], data["stalled"], -math.inf if best is None else best, last and tuple(last)
        )
