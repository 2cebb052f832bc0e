"""What reward functions have given, of what they were said to give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fastslow.records import Rollout

MANY = 64
"""Rollouts after which a function that has never been above 0 is taken for a penalty."""


class Ranges:
    """Says once of a function of which a good answer gets 0 that no answer can reach its best."""

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        """By the name of a function, the least and the most that it can give."""
        self._most = {name: high for name, (low, high) in ranges.items() if low < 0 < high}
        self._seen: Counter[str] = Counter()

    def add(self, rollouts: Sequence[Rollout]) -> Iterator[str]:
        for rollout in rollouts if self._most else ():
            for name, value in rollout.feedback.parts.items():
                self._seen[name] += 1
                if value > 0:
                    self._most.pop(name, None)
                elif self._seen[name] >= MANY and (high := self._most.pop(name, None)) is not None:
                    yield (
                        f"{name} has never been above 0 in {self._seen[name]} rollouts, but high={high:g}: if it is a "
                        "penalty, give its high as 0 in a new run, because no score can reach 1 and its feedback never ends"
                    )
