"""Fast-loop rollouts that the slow loop trains on instead of sampling new ones.

Contexts are scored by sampling the current policy on the problems of the next steps, so the slow loop can train on those
rollouts. They are kept for one cycle by (problem, context), each with its sampling log-probabilities for the importance
ratio. A group takes its rollouts from this cache first.

Selection bias: a context is kept because its rollouts scored well, so high scores are over-represented in the cache. But
selection depends on scores only (minibatches, which the reflector reads, are excluded): among rollouts of equal score on one
problem under one context it changes nothing. With scores of 0 and 1, the update for that problem and context therefore keeps
the direction of the true gradient, and only its length changes; with graded scores it is the gradient of a transformed
reward. Estimates would be biased, so reused rollouts never enter a context's score or a mean reward that decisions use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastslow.records import Context, Example, Rollout
from fastslow.rollouts.groups import Pending


class RolloutCache:
    """Rollouts by (problem, context), oldest first. Each is used once."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], list[Rollout]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def rollouts(self) -> list[Rollout]:
        """All unused rollouts."""
        return [rollout for waiting in self._waiting.values() for rollout in waiting]

    def add(self, rollouts: Iterable[Rollout]) -> None:
        for rollout in rollouts:
            self._waiting.setdefault((rollout.example.id, rollout.context.id), []).append(rollout)

    def keep(self, contexts: Iterable[Context], examples: Iterable[Example]) -> None:
        """Drop rollouts that no group of this cycle can use."""
        wanted, ahead = {context.id for context in contexts}, {example.id for example in examples}
        self._waiting = {key: kept for key, kept in self._waiting.items() if key[0] in ahead and key[1] in wanted}

    def begin(self, pairs: Sequence[tuple[Example, Context]], step: int) -> list[Pending]:
        """Begin a rollout for each pair: a waiting one, if there is one, is finished already."""
        begun = []
        for example, context in pairs:
            waiting = self._waiting.get((example.id, context.id))
            rollout = waiting.pop(0) if waiting else None
            begun.append(Pending(example, context, step, rollout=rollout, reused=rollout is not None))
        return begun

    def clear(self) -> None:
        self._waiting.clear()
