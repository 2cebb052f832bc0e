"""The order of training problems; its only state is a position."""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter
from collections.abc import Sequence

from fastslow.base.world import derive_seed
from fastslow.rollouts.chances import REMEMBERED
from fastslow.tasks.base import Example, Task
from fastslow.tasks.stages import Stages


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


class StagedStream:
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

    def take(self, position: int, count: int) -> list[Example]:
        """The problems at positions `position` … `position + count − 1`, also across the end of a stage."""
        return [self._at(index) for index in range(position, position + count)]

    def same_stage(self, position: int, end: int) -> int:
        """How far the positions from `position` to `end` are of one stage."""
        return min([end, *(start for start in self._starts if start > position)])

    def _at(self, position: int) -> Example:
        stage = bisect(self._starts, position) - 1
        stream, served = self._stages[stage]
        return stream.take(served + position - self._starts[stage], 1)[0]


AnyStream = Stream | StagedStream


def open_stream(task: Task, problems: int, seed: int) -> AnyStream:
    """The training problems of a task, `problems` per step."""
    return StagedStream(task, problems, seed) if isinstance(task, Stages) else Stream(task.examples("train"), seed)


def near_steps(task: Task, here: int, cycle: int) -> list[int]:
    """The steps with the same task: this one, those to come in four cycles of `cycle` steps, and then those before it whose
    problems are remembered, the newest first."""
    steps = [*range(here, here + 4 * cycle), *reversed(range(max(0, here - REMEMBERED), here))]
    if not isinstance(task, Stages):
        return steps
    return [step for step in steps if task.at(step).name == task.at(here).name]
