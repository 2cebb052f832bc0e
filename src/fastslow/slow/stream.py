"""The stream of training problems, and the groups of it that a step plays and trains on."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastslow.base.world import derive_seed
from fastslow.recipe import Recipe
from fastslow.records import Context, Example
from fastslow.rollouts.rounds import Drawn, Group, Pending, Settled
from fastslow.rollouts.stored import contexts_from_data, from_data, to_data, tokens_from_data, tokens_to_data
from fastslow.tasks.base import Task
from fastslow.tasks.stages import Stages

LATE = 1
"""The most steps by which `sampling.ahead` trains a group after its own step."""

Begin = Callable[[Sequence[tuple[Example, Context]]], list[Pending]]
"""Begins a rollout for each pair; one that is reused is finished already."""


class Stream:
    """Endless epochs over the training problems, each shuffled by a seed."""

    def __init__(self, examples: Sequence[Example], seed: int) -> None:
        self.examples, self.seed = examples, seed
        self._epoch, self._order = -1, list(range(len(examples)))

    def take(self, position: int, count: int) -> list[Example]:
        """The problems at positions `position` … `position + count − 1`."""
        return [self._at(index) for index in range(position, position + count)]

    def same_stage(self, position: int, end: int) -> int:
        """How far the positions from `position` to `end` are of one stage."""
        return end

    def _at(self, position: int) -> Example:
        epoch, offset = divmod(position, len(self.examples))
        if epoch != self._epoch:
            self._order = list(range(len(self.examples)))
            random.Random(derive_seed(self.seed, "epoch", epoch)).shuffle(self._order)
            self._epoch = epoch
        return self.examples[self._order[offset]]


class StagedStream(Stream):
    """The streams of several tasks, one stage after the other; the last stage does not end.

    A task that returns in a later stage resumes its stream.
    """

    def __init__(self, stages: Stages, problems: int, seed: int) -> None:
        streams = {name: Stream(task.examples("train"), derive_seed(seed, name)) for name, task in stages.each.items()}
        self._starts: list[int] = []
        self._stages: list[tuple[Stream, int]] = []
        position, served = 0, Counter[str]()
        for stage in stages.stages:
            self._starts.append(position)
            self._stages.append((streams[stage.name], served[stage.name]))
            position += stage.steps * problems
            served[stage.name] += stage.steps * problems

    def same_stage(self, position: int, end: int) -> int:
        return min([end, *(start for start in self._starts if start > position)])

    def _at(self, position: int) -> Example:
        stage = bisect(self._starts, position) - 1
        stream, served = self._stages[stage]
        return stream.take(served + position - self._starts[stage], 1)[0]


def open_stream(task: Task, problems: int, seed: int) -> Stream:
    """The training problems of a task, `problems` per step."""
    return StagedStream(task, problems, seed) if isinstance(task, Stages) else Stream(task.examples("train"), seed)


def begin_all(pairs: Sequence[tuple[Example, Context]], step: int) -> list[Pending]:
    """Begin a rollout for each pair; none is reused."""
    return [Pending(example, context, step) for example, context in pairs]


def shared(contexts: Sequence[Context], size: int) -> list[Context]:
    """The context of every rollout of a group: as many of each."""
    return [context for context in contexts for _ in range(size // len(contexts))]


def withdrawn(contexts: Sequence[Context], kinds: int, plain: Context, count: int, first: int) -> list[Context]:
    """The contexts of a group in which `count` rollouts get the plain one. They are taken from the `kinds` contexts in turn,
    from the context at `first` modulo `kinds` on, each time the last rollout that it has left."""
    found, each = list(contexts), len(contexts) // kinds
    for number in range(count):
        context, round_ = (first + number) % kinds, number // kinds
        found[(context + 1) * each - 1 - round_] = plain
    return found


class InPlay:
    """The groups in play. A step begins P groups, those next in the stream, plays all of them and trains on them.

    With `sampling.ahead` groups are begun before their step, and a step trains on those that are whole (docs/rollouts.md). It
    needs P groups. If fewer of those in play are whole, others are begun, so that P + A are in play; A is `ahead` times P. As
    soon as P groups are whole the step is trained, on the first P of them in the order of the stream. The others stay. The
    group at position n has its own step, n // P; it is begun at most ⌈ahead⌉ steps before that and trained at most `LATE`
    steps after it: the step at which a group is due waits for it.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.problems, self.late = recipe, recipe.slow.problems, LATE
        self.extra = math.ceil(recipe.sampling.ahead * self.problems)
        self.groups: dict[int, Group] = {}
        """By their positions in the stream."""
        self.step = 0
        self._seats: list[int] = []
        """The positions of the groups whose rollouts are being played."""

    def begin(
        self,
        stream: Stream,
        contexts: Sequence[Context],
        begin: Begin,
        step: int,
        horizon: int,
        plain: Context | None = None,
    ) -> list[Pending]:
        """Begin the groups that are next in the stream, of this step's stage and of a step before `horizon`, unless enough
        are whole. Returns the rollouts to play, none if the step has its groups. `plain` is the context of withdrawn
        rollouts."""
        self.step = step
        if not self._has_enough({position for position, group in self.groups.items() if group.unfinished}):
            first = step * self.problems + len(self.groups)
            last = min((step + 1) * self.problems + self.extra, horizon * self.problems)
            last = stream.same_stage(step * self.problems, last)
            each = shared(contexts, self.recipe.slow.group)
            for position, example in enumerate(stream.take(first, max(last - first, 0)), first):
                count = self.withdrawn(position)
                those = withdrawn(each, len(contexts), plain, count, position) if plain and count else each
                self.groups[position] = Group(example, begin([(example, context) for context in those]))
        waiting = [(position, each) for position, group in self.groups.items() for each in group.unfinished]
        self._seats = [position for position, _ in waiting]
        return [] if self._has_enough(set(self._seats)) else [each for _, each in waiting]

    def withdrawn(self, position: int) -> int:
        """How many rollouts of a group are withdrawn: a share that grows evenly with the group's own step."""
        slow = self.recipe.slow
        share = slow.withdraw * (position // self.problems) / max(slow.steps - 1, 1)
        return int(min(share, 1.0) * slow.group + 0.5)

    @property
    def settled(self) -> Settled | None:
        """Whether playing may stop, given positions in what `begin` returned; None plays every rollout to its end."""
        if not self.extra:
            return None
        return lambda unfinished: self._has_enough({self._seats[seat] for seat in unfinished})

    def take(self) -> list[Group]:
        """The groups that the step trains on, which are not in play any more."""
        whole = [position for position, group in self.groups.items() if not group.unfinished][: self.problems]
        return [self.groups.pop(position) for position in whole]

    def _has_enough(self, unfinished: Collection[int]) -> bool:
        """Whether the step has its groups, if those at these positions are not whole."""
        due = (self.step + 1 - self.late) * self.problems
        return len(self.groups) - len(unfinished) >= self.problems and min(unfinished, default=due) >= due

    def to_data(self) -> dict[str, Any]:
        """The groups in play as JSON data; problems are found by the positions of their groups."""
        pending = [each for group in self.groups.values() for each in group.members]
        return {
            "contexts": {each.context.id: asdict(each.context) for each in pending},
            "finished": to_data([each.rollout for each in pending if each.rollout]),
            "groups": [
                {
                    "position": position,
                    "attempts": [
                        {
                            "context": each.context.id,
                            "begun": each.begun,
                            "answers": [_drawn_to_data(drawn) for drawn in each.drawn],
                            "finished": each.rollout is not None,
                            "reused": each.reused,
                        }
                        for each in group.members
                    ],
                }
                for position, group in self.groups.items()
            ],
        }

    def restore(self, data: Mapping[str, Any] | None, stream: Stream) -> None:
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
            self.groups[group["position"]] = Group(example, members)


def _drawn_to_data(drawn: Drawn) -> dict[str, Any]:
    part = {"completion": tokens_to_data(drawn.completion), "ended": drawn.completion.ended}
    return {"prompt": drawn.prompt, "part": part}


def _drawn_from_data(data: Mapping[str, Any]) -> Drawn:
    part = data["part"]
    return Drawn(tuple(data["prompt"]), tokens_from_data(part["completion"], ended=part["ended"]))
