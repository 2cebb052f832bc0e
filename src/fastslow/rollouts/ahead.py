"""`sampling.ahead`: groups are begun before their step, and a step trains on those that are whole.

A step needs P groups. If fewer of those in play are whole, others are begun, those next in the stream, so that P + A are in
play; A is `ahead` times P. As soon as P groups are whole the step is trained, on the first P of them in the order of the
stream. The others stay, and their unfinished answers are continued in a later step (`rounds`).

    position of a group   0 … P − 1 | P … 2P − 1 | 2P …
    its own step          0         | 1          | 2

A group is begun at most ⌈ahead⌉ steps before its own step and trained at most one step after it, so that none is older than
⌈ahead⌉ + 1. The step at which a group is due waits for it. At most P groups are due at once: those of one step.

Nothing is dropped or drawn again: every group of the stream is trained on once, with all of its rollouts, however long they
are. Groups with long answers are only trained on later. Nothing is begun that is not trained on by the end of the run, of the
stage and, since the contexts change there, of the cycle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastslow.recipe import Recipe
from fastslow.records import Context, Rollout
from fastslow.rollouts.cache import RolloutCache
from fastslow.rollouts.groups import Drawn, Group, Pending
from fastslow.rollouts.stored import contexts_from_data, from_data, to_data, tokens_from_data, tokens_to_data
from fastslow.rollouts.stream import AnyStream

LATE = 1
"""The most steps by which a group is trained after its own step."""


class Ahead:
    """The plan of every step (`slow.allocation.Plan`), with the groups in play by their position in the stream."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.problems, self.late = recipe, recipe.slow.problems, LATE
        self.extra = math.ceil(recipe.sampling.ahead * self.problems)
        self.in_play: dict[int, Group] = {}
        self.groups: list[Group] = []
        """Those that this step trains on."""
        self.step = 0
        self._seats: list[int] = []
        """The positions of the groups whose rollouts are being played."""

    def begin(
        self, stream: AnyStream, contexts: Sequence[Context], cache: RolloutCache, step: int, horizon: int
    ) -> None:
        """Begin the groups that are next in the stream, of this step's stage and of a step before `horizon`, unless enough
        are whole."""
        self.step = step
        if self._has_enough({position for position, group in self.in_play.items() if group.unfinished}):
            return
        first = step * self.problems + len(self.in_play)
        last = min((step + 1) * self.problems + self.extra, horizon * self.problems)
        last = stream.same_stage(step * self.problems, last)
        share = self.recipe.slow.group // len(contexts)
        for position, example in enumerate(stream.take(first, max(last - first, 0)), first):
            pairs = [(example, context) for context in contexts for _ in range(share)]
            self.in_play[position] = Group(example, cache.begin(pairs, step))

    def rounds(self) -> Iterator[list[Pending]]:
        """One round of all unfinished rollouts, none if the step has its groups."""
        waiting = [(position, each) for position, group in self.in_play.items() for each in group.unfinished]
        self._seats = [position for position, _ in waiting]
        yield [] if self.settled(range(len(waiting))) else [each for _, each in waiting]

    def settled(self, unfinished: Iterable[int]) -> bool:
        return self._has_enough({self._seats[seat] for seat in unfinished})

    def take(self) -> list[Pending]:
        whole = [position for position, group in self.in_play.items() if not group.unfinished][: self.problems]
        self.groups = [self.in_play.pop(position) for position in whole]
        return [each for group in self.groups for each in group.members]

    def _has_enough(self, unfinished: Collection[int]) -> bool:
        """Whether the step has its groups, if those at these positions are not whole."""
        due = (self.step + 1 - self.late) * self.problems
        return len(self.in_play) - len(unfinished) >= self.problems and min(unfinished, default=due) >= due

    def to_data(self) -> dict[str, Any]:
        """The groups in play as JSON data; problems are found by the positions of their groups."""
        pending = [each for group in self.in_play.values() for each in group.members]
        return {
            "contexts": {each.context.id: asdict(each.context) for each in pending},
            "finished": to_data([each.rollout for each in pending if each.rollout]),
            "groups": [
                {"position": position, "attempts": [_pending_to_data(each) for each in group.members]}
                for position, group in self.in_play.items()
            ],
        }

    def restore(self, data: Mapping[str, Any] | None, stream: AnyStream) -> None:
        """Read what `to_data` returned."""
        if data is None:
            return
        contexts = contexts_from_data(data["contexts"])
        examples = [stream.take(group["position"], 1)[0] for group in data["groups"]]
        finished = iter(from_data(data["finished"], examples))
        for example, group in zip(examples, data["groups"], strict=True):
            members = [
                Pending(
                    example,
                    contexts[each["context"]],
                    each["begun"],
                    [_drawn_from_data(drawn) for drawn in each["answers"]],
                    next(finished) if each["finished"] else None,
                    each["reused"],
                )
                for each in group["attempts"]
            ]
            self.in_play[group["position"]] = Group(example, members)


def _pending_to_data(pending: Pending) -> dict[str, Any]:
    return {
        "context": pending.context.id,
        "begun": pending.begun,
        "answers": [
            {
                "prompt": each.prompt,
                "part": {"completion": tokens_to_data(each.completion), "ended": each.completion.ended},
            }
            for each in pending.drawn
        ],
        "finished": pending.rollout is not None,
        "reused": pending.reused,
    }


def _drawn_from_data(data: Mapping[str, Any]) -> Drawn:
    part = data["part"]
    return Drawn(tuple(data["prompt"]), tokens_from_data(part["completion"], ended=part["ended"]))


def token_ages(rollouts: Iterable[Rollout], step: int) -> dict[int, int]:
    """How many tokens of these rollouts are how many steps older than the policy of a step."""
    ages: Counter[int] = Counter()
    for rollout in rollouts:
        for turn in rollout.turns:
            drawn = turn.completion.steps or [rollout.policy_step] * len(turn.completion.ids)
            ages.update(step - each for each in drawn)
    return dict(sorted(ages.items()))
