"""Several tasks in one run: a mixture that shares one stream, or stages one after the other (continual learning).

And refusing contamination: no validation or test problem shows the model what a training problem shows.
Splits in memory, such as those read from files, are compared in full before a run starts, across all tasks; a shared problem
is an error. Generated problems are too many to compare and are kept apart where they are drawn (see data.py).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import Asking, Component, Example, Feedback, Options, QuestionTask, Split, Task
from fastslow.tasks.data import LazyExamples, content_id


@dataclass(frozen=True)
class Part:
    """One task of a mixture."""

    name: str
    weight: float
    task: Task


@dataclass(frozen=True)
class MixedExample(Example):
    """A problem under the name it has in the mixture, with the part it is from and its own self there."""

    part: str
    original: Example


class Mixture(Task):
    """Several tasks as one. Training problems come in proportion to the weights: the task that lasts longest is visited
    once, the others are repeated, and a problem's second visit is `ID@2`. Other splits hold every problem once."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(Options())
        names: list[str] = []
        for part in parts:  # the same task may come twice, with other options
            copies = sum(other.name == part.name for other in parts[: len(names)])
            names.append(f"{part.name}-{copies + 1}" if copies else part.name)
        self.parts = [Part(name, part.weight, part.task) for name, part in zip(names, parts, strict=True)]
        self.grades_apart = all(part.task.grades_apart for part in parts)
        if alone := [part.name for part in self.parts if part.task.memory is not None]:
            raise TaskError(
                f"task '{alone[0]}' cannot be one of several: what it asks follows from what it was answered"
            )

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {name: each for part in self.parts for name, each in part.task.ranges.items()}

    @property
    def components(self) -> Sequence[Component]:
        found: dict[str, Component] = {}
        for part in self.parts:
            for each in part.task.components:
                # A text written for one task would mislead the others, so where they differ a general one serves all.
                if found.setdefault(each.name, each).seed != each.seed:
                    if each.kind == "code":
                        raise TaskError(
                            f"two tasks of the mixture begin with different code for '{each.name}'; give both the same"
                        )
                    found[each.name] = replace(each, seed=QuestionTask.seed_text)
        return list(found.values())

    def examples(self, split: Split) -> Sequence[Example]:
        problems = [part.task.examples(split) for part in self.parts]
        order = self._order(split, [len(each) for each in problems])

        def make(position: int) -> Example:
            place, turn = order[position]
            visit, index = divmod(turn, len(problems[place]))
            part, original = self.parts[place], problems[place][index]
            name = f"{part.name}/{original.id}" + (f"@{visit + 1}" if visit else "")
            return MixedExample(name, original.data, part.name, original)

        return LazyExamples(len(order), make)

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        assert isinstance(example, MixedExample)
        task = next(part.task for part in self.parts if part.name == example.part)
        return await task.rollout(example.original, texts, ask)

    def _order(self, split: Split, counts: list[int]) -> list[tuple[int, int]]:
        """Which part comes when, and the number of its turn: turns of a part are 1 / weight apart."""
        weights = [part.weight for part in self.parts]
        if split == "train":
            rounds = max(count / weight for count, weight in zip(counts, weights, strict=True))
            counts = [round(rounds * weight) if count else 0 for count, weight in zip(counts, weights, strict=True)]
        turns = [((turn + 0.5) / weights[place], place, turn) for place, n in enumerate(counts) for turn in range(n)]
        return [(place, turn) for _, place, turn in sorted(turns)]


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


HELD_OUT: tuple[Split, ...] = ("validation", "test")


def refuse_contamination(task: Task) -> None:
    """Raise where a training problem shows the model what a validation or test problem shows."""
    held_out = {
        content_id(shown): f"{split} problem '{example.id}'{owner}"
        for split in HELD_OUT
        for owner, example, shown in _in_memory(task, split)
    }
    trained_on = _in_memory(task, "train") if held_out else ()
    shared = [
        (f"training problem '{example.id}'{owner}", held_out[name], shown)
        for owner, example, shown in trained_on
        if (name := content_id(shown)) in held_out
    ]
    if shared:
        trained, measured, shown = shared[0]
        last = shown[-1] if isinstance(shown, list) and shown else shown
        quoted = last["content"] if isinstance(last, Mapping) else last
        others = f"; so do {len(shared) - 1} more" if len(shared) > 1 else ""
        raise TaskError(
            f"{trained} shows the model the same as {measured} ('{one_line(quoted, 80)}'){others}: "
            "what is trained on cannot be measured on; take these problems out of one of the two"
        )


def _in_memory(task: Task, split: Split) -> Iterator[tuple[str, Example, object]]:
    """The problems of a split that can be compared: whose they are, where there are several tasks, and what they show."""
    if isinstance(task, Mixture):
        for part in task.parts:
            yield from ((f" of '{part.name}'", example, shown) for _, example, shown in _in_memory(part.task, split))
        return
    examples = task.examples(split)
    if isinstance(examples, list | tuple):
        yield from (("", example, shown) for example in examples if (shown := task.shown(example)) is not None)
