"""Several tasks that share one stream, each with its weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fastslow.tasks.base import Asking, Component, Example, Feedback, Options, QuestionTask, Split, Task
from fastslow.tasks.data.generated import LazyExamples


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

    @property
    def components(self) -> Sequence[Component]:
        found: dict[str, Component] = {}
        for part in self.parts:
            for each in part.task.components:
                # A text written for one task would mislead the others, so where they differ a general one serves all.
                if found.setdefault(each.name, each).seed != each.seed:
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
