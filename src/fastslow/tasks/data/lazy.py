"""A sequence of problems that are made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from fastslow.tasks.base import Example


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
