"""Rollouts of the fast loop that the slow loop trains on instead of drawing new ones.

Scoring a context draws from the current policy on problems that are trained next, so those rollouts are as good as any the
slow loop would draw. They are kept for one cycle by (problem, context), each with the log-probabilities of the policy that
drew it, against which its importance ratio is taken. When a group is formed, what is here is claimed first.

Is that fair? A context is kept because its rollouts scored well, so among the claimed ones high scores are too frequent. But
the choice looks at scores and at nothing else (minibatches, whose words the reflector reads, stay out): among rollouts of
equal score on one problem under one context it changes nothing. With scores of 0 and 1 the update for that problem and
context therefore keeps the direction of the true gradient and is only longer or shorter than it should be; with graded scores
it is the gradient of a reward that has been bent. What would be wrong is to measure with them: claimed rollouts never enter a
score, a mean reward that decisions are taken by, or an estimate of how good a context is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastslow.records import Context, Rollout
from fastslow.tasks.base import Example


class RolloutCache:
    """Rollouts by (problem, context), oldest first. Each is claimed once."""

    def __init__(self, age: int | None = None) -> None:
        self.age = age
        """The most steps between drawing a rollout and training on it; None for no limit but the cycle's end."""
        self._waiting: dict[tuple[str, str], list[Rollout]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def rollouts(self) -> list[Rollout]:
        """All that are waiting."""
        return [rollout for waiting in self._waiting.values() for rollout in waiting]

    def add(self, rollouts: Iterable[Rollout]) -> None:
        for rollout in rollouts:
            self._waiting.setdefault((rollout.example.id, rollout.context.id), []).append(rollout)

    def keep(self, contexts: Iterable[Context], examples: Iterable[Example]) -> None:
        """Let go of what no group of this cycle can ask for."""
        wanted, ahead = {context.id for context in contexts}, {example.id for example in examples}
        self._waiting = {key: kept for key, kept in self._waiting.items() if key[0] in ahead and key[1] in wanted}

    def claim(self, pairs: Sequence[tuple[Example, Context]], step: int) -> list[Rollout | None]:
        """A rollout for every pair that has one waiting and not too old at this step, none for the others."""
        return [self._next((example.id, context.id), step) for example, context in pairs]

    def clear(self) -> None:
        self._waiting.clear()

    def _next(self, key: tuple[str, str], step: int) -> Rollout | None:
        waiting = self._waiting.get(key)
        while waiting:
            rollout = waiting.pop(0)
            if self.age is None or step - rollout.policy_step <= self.age:
                return rollout
        return None


def fill(claimed: Sequence[Rollout | None], played: Iterable[Rollout]) -> list[Rollout]:
    """The claimed rollouts with the played ones in their gaps, in order."""
    rest = iter(played)
    return [next(rest) if rollout is None else rollout for rollout in claimed]
