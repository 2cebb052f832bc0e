"""Which problems a step plays, and how many rollouts of each.

`even`, as in the paper: the next problems of the stream, G rollouts each. `informative`: rollouts go where rewards are
expected to differ, since a group whose rewards are all equal has no gradient. Every rollout of either loop says something
about its problem's chance of success p. A step plays in two rounds: each one's rollouts go, a few at a time, to the problems
with the largest

    E[p (1 − p)] · added,

where a group of n rollouts teaches p (1 − p) (n − 1), so that its first rollouts add one less than there are. So groups that
look decided are left, and others get their rollouts, up to `GROWTH` times G where rewards differ: a few problems, however
informative, teach less than many. Some are played whatever is known of them, so that hard and solved ones stay in sight.

Bias: which problem is played next depends on the scores so far and on nothing else. Among answers of equal score to one
problem under one context the rule changes nothing, so with scores of 0 and 1 the expected update of each problem keeps its
direction, and only its length differs from that of an even step (docs/rollouts.md has the numbers). Training rewards are no
longer a fair sample of the problems; evaluations are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from fastslow.records import Context, Example
from fastslow.rollouts.groups import Group, Pending
from fastslow.rollouts.rounds import Settled

FLOOR = 1 / 8
"""Share of a step's problems that are the next of the stream, whatever is expected of them."""
GROWTH = 2
"""A group whose rewards differ may get up to this multiple of G rollouts."""

Begin = Callable[[Sequence[tuple[Example, Context]]], list[Pending]]
"""Begins a rollout for each pair; one that is reused is finished already."""


class Plan(Protocol):
    """Which rollouts a step plays, until when, and which of them it takes; `rollouts.ahead.Ahead` is one too."""

    groups: list[Group]
    """When all rounds are played: what the step trains on."""

    @property
    def settled(self) -> Settled | None:
        """Whether a round may stop, given positions in it; None to play all of its rollouts to their end."""
        ...

    def rounds(self) -> Iterator[list[Pending]]:
        """The rollouts to play next, round by round, each after those before were played."""
        ...

    def take(self) -> list[Pending]:
        """After a round: the finished rollouts that the step takes from it, also those that are reused."""
        ...


class Even:
    """The next problems, `size` rollouts each, as many under each context."""

    settled = None

    def __init__(self, problems: Sequence[Example], contexts: Sequence[Context], size: int, begin: Begin) -> None:
        each = [context for context in contexts for _ in range(size // len(contexts))]
        self.groups = [Group(problem, begin([(problem, context) for context in each])) for problem in problems]

    def rounds(self) -> Iterator[list[Pending]]:
        yield [member for group in self.groups for member in group.unfinished]

    def take(self) -> list[Pending]:
        return [member for group in self.groups for member in group.members]


class Informative:
    """The problems that teach most, half a group at a time."""

    settled = None

    def __init__(
        self,
        candidates: Sequence[Example],
        contexts: Sequence[Context],
        size: int,
        chances: Mapping[str, tuple[float, float]],
        floor: int,
        rollouts: int,
        begin: Begin,
    ) -> None:
        """`candidates` are in the order of the stream: the first `floor` are played in any case. `rollouts` are those of the
        step."""
        self.groups: list[Group] = []
        self._candidates = [Group(example) for example in {each.id: each for each in candidates}.values()]
        self._contexts, self._size, self._chances, self._floor = contexts, size, chances, floor
        self._rollouts, self._begin, self._asked = rollouts, begin, list[Pending]()
        self._part = max(2, size // 2)

    def rounds(self) -> Iterator[list[Pending]]:
        for last in (False, True):
            self._asked = self._ask(round(self._rollouts / 2), last)
            yield [pending for pending in self._asked if pending.rollout is None]

    def take(self) -> list[Pending]:
        return self._asked

    def _ask(self, rollouts: int, last: bool) -> list[Pending]:
        """Groups get half of their rollouts; the other half waits for what the first says, and comes in the last round."""
        first = self._candidates[: self._floor] if not self.groups else []
        worth = {id(group): self._value(group) for group in self._candidates}
        best = sorted(self._candidates, key=lambda group: -worth[id(group)])
        asked: list[Pending] = []
        for group in {id(group): group for group in [*first, *best]}.values():
            missing = self._size * (GROWTH if group.informative else 1) - len(group.members)
            count = min(missing if last else self._part, missing, rollouts - len(asked))
            if count < max(1, min(2, missing)):  # a rollout alone has nothing to be compared with
                continue
            if not group.members:
                self.groups.append(group)
            place = self.groups.index(group) * self._part + len(group.members)
            contexts = [self._contexts[(place + n) % len(self._contexts)] for n in range(count)]
            begun = self._begin([(group.example, context) for context in contexts])
            group.members += begun
            asked += begun
        return asked

    def _value(self, group: Group) -> float:
        """E[p (1 − p)] under the Beta distribution, given the rollouts of this step, times what another part adds."""
        right, wrong = self._chances[group.example.id]
        own = sum(rollout.score for rollout in group.rollouts)
        right, wrong = right + own, wrong + len(group.rollouts) - own
        added = self._part if group.members else self._part - 1
        return added * right * wrong / ((right + wrong) * (right + wrong + 1))
