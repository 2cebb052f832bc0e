"""Values that can be changed and that both processes hold: a list that a test gives to an object and looks at later, or one
that an object gives away and goes on using. A change on one side is told to the other with the next message.

References are counted to find them: what nothing but the messages refers to cannot be changed later.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from . import wire

_MOST, _LARGEST = 2_000, 2**17
"""Values that are followed, and their bytes; others go over as copies."""


class Shared:
    """What one side knows of the shared values, by number. The numbers it gives are all even, or all odd."""

    def __init__(self, first: int) -> None:
        self.values: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        """By the id of the value."""
        self.fixed: set[int] = set()
        """Values that are what they are when they come: if the other side changes one, it is not followed any more."""
        self._told: dict[int, Any] = {}
        self._dropped: list[int] = []
        self._next = first

    def number(self, values: list[Any]) -> list[list[int]]:
        """Places and new numbers of the values in a table that this side refers to from elsewhere."""
        found: list[list[int]] = []
        for place in sorted(_held(values)):
            if len(self.values) + len(found) < _MOST and sys.getsizeof(values[place]) <= _LARGEST:
                found.append([place, self._next])
                self._next += 2
        return found

    def add(self, found: Iterable[list[int]], table: list[Any], packer: wire.Packer) -> None:
        """Follow the values at these places of a table by these numbers."""
        for place, number in found:
            self.values[number] = table[place]
            self.numbers[id(table[place])] = number
        self._told = {number: packer.entry(value) for number, value in self.values.items()}

    def drop(self) -> list[int]:
        """Follow no longer what nothing on this side refers to; their numbers."""
        numbers, values = list(self.values), list(self.values.values())
        self.values.clear()
        held = _held(values)
        self.values.update(zip(numbers, values, strict=True))
        self.forget([number for place, number in enumerate(numbers) if place not in held])
        gone, self._dropped = self._dropped, []
        return gone

    def forget(self, numbers: Iterable[int], told: bool = False) -> None:
        """Follow these no longer; the other side is told, unless it was the one to tell."""
        for number in numbers:
            if number in self.values:
                del self.numbers[id(self.values.pop(number))]
                del self._told[number]
                self.fixed.discard(number)
                self._dropped += [] if told else [number]

    def renew(self, number: int, value: Any) -> None:
        """Follow another value by this number."""
        self.numbers.pop(id(self.values[number]))
        self.values[number], self.numbers[id(value)] = value, number

    def changes(self, packer: wire.Packer) -> list[Any]:
        """What is not as it was told; now it is."""
        now = {number: packer.entry(value) for number, value in self.values.items()}
        changed = [[number, entry] for number, entry in now.items() if entry != self._told[number]]
        self._told = now
        return changed

    def kind(self, number: int) -> str:
        return str(self._told[number][0])


def _held(values: list[Any]) -> set[int]:
    """The places of the values that something refers to beside the list and each other, and of the values in these."""
    places = {id(value): place for place, value in enumerate(values)}
    inside = [[places[id(part)] for part in _parts(value) if id(part) in places] for value in values]
    referred = Counter(place for found in inside for place in found)
    values.append([])  # something that nothing else refers to
    *counts, alone = [sys.getrefcount(value) for value in values]
    values.pop()
    held = new = {place for place, count in enumerate(counts) if count - referred[place] > alone}
    while new:
        new = {part for place in new for part in inside[place]} - held
        held = held | new
    return held


def _parts(value: Any) -> list[Any]:
    """What a value holds; the attributes of an object may stand in a dict of their own."""
    parts = gc.get_referents(value)
    attributes: Any = getattr(value, "__dict__", ())
    return [*parts, *(item for part in parts if part is attributes for item in part.values())]
