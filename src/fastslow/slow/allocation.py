"""Which problems a step plays, and how many rollouts of each.

`even`, as in the paper: the next problems of the stream, G rollouts each. `informative`: rollouts go where rewards are
expected to differ, since a group whose rewards are all equal has no gradient. Every rollout of either loop says something
about its problem's chance of success p. A step plays in rounds: each round's rollouts go, a few at a time, to the problems
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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fastslow.recipe import SlowRecipe
from fastslow.records import Context, Rollout
from fastslow.tasks.base import Example

FLOOR = 1 / 8
"""Share of a step's problems that are the next of the stream, whatever is expected of them."""
GROWTH = 2
"""A group whose rewards differ may get up to this multiple of G rollouts."""
ROUNDS = {1: (1.0,), 2: (0.5, 0.5), 3: (0.5, 0.25, 0.25)}
"""The shares of a step's rollouts by round."""

Play = Callable[[Sequence[tuple[Example, Context]], int], Sequence[Rollout]]
"""Plays pairs of problem and context, in the round of this number."""


@dataclass
class Group:
    """A problem's rollouts in this step."""

    example: Example
    rollouts: list[Rollout] = field(default_factory=list)
    asked: int = 0
    """Rollouts that were planned for it."""

    @property
    def informative(self) -> bool:
        return len({rollout.score for rollout in self.rollouts}) > 1


class Plan(Protocol):
    """The groups of one step as they grow."""

    groups: list[Group]

    def ask(self, rollouts: int, last: bool) -> list[tuple[Group, Context]]:
        """What to play next, of about so many rollouts; the caller adds the rollouts to their groups. `last`: no round is
        planned after this one."""
        ...


def play_rounds(plan: Plan, slow: SlowRecipe, play: Play) -> list[Group]:
    """Play a step by its plan, and on while too few of its rollouts are in groups with different rewards (`slow.fill`)."""
    whole = slow.problems * slow.group
    shares = ROUNDS[slow.rounds] if slow.allocation == "informative" else (1.0,)
    budgets = [round(whole * share) for share in shares]
    spent = number = 0
    while budgets:
        asked = plan.ask(budgets.pop(0), last=not budgets)
        rollouts = play([(group.example, context) for group, context in asked], number)
        for (group, _), rollout in zip(asked, rollouts, strict=True):
            group.rollouts.append(rollout)
        spent, number = spent + len(asked), number + 1
        teaching = sum(len(group.rollouts) for group in plan.groups if group.informative)
        if not budgets and asked and teaching < slow.fill * spent:
            more = min(whole // 2, round(slow.fill_cap * whole) - spent)
            budgets = [more] if more > 0 else []
    return plan.groups


class Even:
    """The next problems, `size` rollouts each, as many under each context."""

    def __init__(self, candidates: Sequence[Example], contexts: Sequence[Context], size: int) -> None:
        self.groups: list[Group] = []
        self._waiting, self._contexts, self._size = list(candidates), contexts, size

    def ask(self, rollouts: int, last: bool) -> list[tuple[Group, Context]]:
        count = min(len(self._waiting), rollouts // self._size)
        opened = [Group(example, asked=self._size) for example in self._waiting[:count]]
        self._waiting = self._waiting[count:]
        self.groups += opened
        share = self._size // len(self._contexts)
        return [(group, context) for group in opened for context in self._contexts for _ in range(share)]


class Informative:
    """The problems that teach most, half a group at a time."""

    def __init__(
        self,
        candidates: Sequence[Example],
        contexts: Sequence[Context],
        size: int,
        chances: Mapping[str, tuple[float, float]],
        floor: int,
    ) -> None:
        """`candidates` are in the order of the stream: the first `floor` are played in any case."""
        self.groups: list[Group] = []
        self._candidates = [Group(example) for example in {each.id: each for each in candidates}.values()]
        self._contexts, self._size, self._chances, self._floor = contexts, size, chances, floor
        self._part = max(2, size // 2)

    def ask(self, rollouts: int, last: bool) -> list[tuple[Group, Context]]:
        """Groups get half of their rollouts; the other half waits for what the first says, and comes in the last round."""
        first = self._candidates[: self._floor] if not self.groups else []
        worth = {id(group): self._value(group) for group in self._candidates}
        best = sorted(self._candidates, key=lambda group: -worth[id(group)])
        asked: list[tuple[Group, Context]] = []
        for group in {id(group): group for group in [*first, *best]}.values():
            missing = self._size * (GROWTH if group.informative else 1) - group.asked
            count = min(missing if last else self._part, missing, rollouts - len(asked))
            if count < max(1, min(2, missing)):  # a rollout alone has nothing to be compared with
                continue
            if not group.asked:
                self.groups.append(group)
            place = self.groups.index(group) * self._part + group.asked
            asked += [(group, self._contexts[(place + n) % len(self._contexts)]) for n in range(count)]
            group.asked += count
        return asked

    def _value(self, group: Group) -> float:
        """E[p (1 − p)] under the Beta distribution, given the rollouts of this step, times what another part adds."""
        right, wrong = self._chances[group.example.id]
        own = sum(rollout.score for rollout in group.rollouts)
        right, wrong = right + own, wrong + len(group.rollouts) - own
        added = self._part if group.asked else self._part - 1
        return added * right * wrong / ((right + wrong) * (right + wrong + 1))
