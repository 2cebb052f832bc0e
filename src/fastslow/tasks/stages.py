"""Several tasks one after the other in one run: continual learning."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from fastslow.tasks.base import Task
from fastslow.tasks.mixture import Mixture, Part


@dataclass(frozen=True)
class Stage:
    """A task that is trained on alone for a number of steps."""

    name: str
    steps: int
    task: Task


class Stages(Mixture):
    """Tasks that are trained on one after the other. The same task object may have several stages.

    As a task it is the mixture of all of them, under one seed text that suits them all; which stage a step belongs to is
    for the stream and for evaluation to ask.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        different = {id(stage.task): Part(stage.name, 1.0, stage.task) for stage in stages}
        super().__init__(list(different.values()))
        alone = {id(part.task): (part.name, Mixture([part])) for part in self.parts}
        # Each by the name its task has in the mixture, with a task that serves its share of the mixture's problems.
        self.stages = [Stage(alone[id(stage.task)][0], stage.steps, alone[id(stage.task)][1]) for stage in stages]
        self.ends = list(accumulate(stage.steps for stage in stages))
        """The step after which each stage is over."""

    @property
    def each(self) -> dict[str, Task]:
        """Every task once, by name."""
        return {stage.name: stage.task for stage in self.stages}

    def at(self, step: int) -> Stage:
        """The stage of the next step, after so many steps; the last stage does not end."""
        return self.stages[min(bisect(self.ends, step), len(self.stages) - 1)]

    def behind(self, step: int) -> Stage:
        """The stage that the last of so many steps was made in; before the first step, the first one."""
        return self.at(max(step - 1, 0))
