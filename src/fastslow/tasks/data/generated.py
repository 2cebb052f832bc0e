"""Problems that are generated when they are asked for.

Every generated problem belongs to one split, whatever the seed it is drawn with, so that the splits never share one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import overload

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Example, QuestionTask, Split
from fastslow.tasks.data.source import content_id

TRIES = 1000
"""Draws before a split is reported to have no problems."""


class LazyExamples(Sequence[Example]):
    """As many problems as `size`, the one at a position made by `make(position)`, always the same."""

    def __init__(self, size: int, make: Callable[[int], Example]) -> None:
        self._positions = range(size)
        self._make = make

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self._make(position) for position in self._positions[index]]
        return self._make(self._positions[index])


class GeneratedTask(QuestionTask):
    """A task that makes its problems one by one: its options say how many each split has."""

    def examples(self, split: Split) -> Sequence[Example]:
        return LazyExamples(getattr(self.options, split), partial(self._example, split))

    @abstractmethod
    def _example(self, split: Split, index: int) -> Example: ...


def split_of(shown: object) -> Split:
    """The one split in which a generated problem may stand, by what it shows: half of all are for training."""
    splits: tuple[Split, ...] = ("validation", "test", "train", "train")
    return splits[int(content_id(shown), 16) % len(splits)]


def draw_for(split: Split, draw: Callable[[], Example], shown: Callable[[Example], object]) -> Example:
    """The first problem drawn that belongs to the split."""
    for _ in range(TRIES):
        example = draw()
        if split_of(shown(example)) == split:
            return example
    raise TaskError(
        f"of {TRIES} problems drawn none belongs to {split}; choose options under which there are more different problems"
    )
