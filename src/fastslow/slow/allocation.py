"""The stream of training problems; which of them a step plays, and how many rollouts of each.

With `sampling.ahead`, groups are begun before their step (`Ahead`). Otherwise `slow.allocation` is one of two. `even`, as in
the paper: the next problems of the stream, G rollouts each. `informative`: rollouts go where rewards are expected to differ,
since a group whose rewards are all equal has no gradient (docs/rollouts.md has the numbers and the bias). Every rollout of
either loop says something about its problem's chance of success p. A step plays in two rounds: each one's rollouts go, a few
at a time, to the problems with the largest E[p (1 − p)] · added, where a group of n rollouts teaches p (1 − p) (n − 1), so
that its first rollouts add one less than there are.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from fastslow.base.world import derive_seed
from fastslow.recipe import Recipe
from fastslow.records import Context, Example
from fastslow.rollouts.chances import REMEMBERED
from fastslow.rollouts.rounds import Drawn, Group, Pending, Settled
from fastslow.rollouts.stored import contexts_from_data, from_data, to_data, tokens_from_data, tokens_to_data
from fastslow.tasks.base import Task
from fastslow.tasks.stages import Stages

LATE = 1
"""The most steps by which `sampling.ahead` trains a group after its own step."""
FLOOR = 1 / 8
"""Share of a step's problems that are the next of the stream, whatever is expected of them."""
GROWTH = 2
"""A group whose rewards differ may get up to this multiple of G rollouts."""

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


def near_steps(task: Task, here: int, cycle: int) -> list[int]:
    """The steps with the same task: this one, those to come in four cycles of `cycle` steps, and then those before it whose
    problems are remembered, the newest first."""
    steps = [*range(here, here + 4 * cycle), *reversed(range(max(0, here - REMEMBERED), here))]
    if not isinstance(task, Stages):
        return steps
    return [step for step in steps if task.at(step).name == task.at(here).name]


def shared(contexts: Sequence[Context], size: int) -> list[Context]:
    """The context of every rollout of a group: as many of each."""
    return [context for context in contexts for _ in range(size // len(contexts))]


class Plan(Protocol):
    """Which rollouts a step plays, until when, and which of them it takes."""

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
        each = shared(contexts, size)
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


class Ahead:
    """`sampling.ahead`: groups are begun before their step, and a step trains on those that are whole (docs/rollouts.md).

    A step needs P groups. If fewer of those in play are whole, others are begun, those next in the stream, so that P + A are
    in play; A is `ahead` times P. As soon as P groups are whole the step is trained, on the first P of them in the order of
    the stream. The others stay. The group at position n has its own step, n // P; it is begun at most ⌈ahead⌉ steps before
    that and trained at most `LATE` steps after it: the step at which a group is due waits for it.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.problems, self.late = recipe, recipe.slow.problems, LATE
        self.extra = math.ceil(recipe.sampling.ahead * self.problems)
        self.in_play: dict[int, Group] = {}
        self.groups: list[Group] = []
        """Those that this step trains on."""
        self.step = 0
        self._seats: list[int] = []
        """The positions of the groups whose rollouts are being played."""

    def begin(self, stream: Stream, contexts: Sequence[Context], begin: Begin, step: int, horizon: int) -> None:
        """Begin the groups that are next in the stream, of this step's stage and of a step before `horizon`, unless enough
        are whole."""
        self.step = step
        if self._has_enough({position for position, group in self.in_play.items() if group.unfinished}):
            return
        first = step * self.problems + len(self.in_play)
        last = min((step + 1) * self.problems + self.extra, horizon * self.problems)
        last = stream.same_stage(step * self.problems, last)
        each = shared(contexts, self.recipe.slow.group)
        for position, example in enumerate(stream.take(first, max(last - first, 0)), first):
            self.in_play[position] = Group(example, begin([(example, context) for context in each]))

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
                for position, group in self.in_play.items()
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
            self.in_play[group["position"]] = Group(example, members)


def _drawn_to_data(drawn: Drawn) -> dict[str, Any]:
    part = {"completion": tokens_to_data(drawn.completion), "ended": drawn.completion.ended}
    return {"prompt": drawn.prompt, "part": part}


def _drawn_from_data(data: Mapping[str, Any]) -> Drawn:
    part = data["part"]
    return Drawn(tuple(data["prompt"]), tokens_from_data(part["completion"], ended=part["ended"]))
