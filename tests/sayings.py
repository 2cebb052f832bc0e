"""Every sentence a way of saying stands for: what tests hold texts of the rulebook's universe against."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from fastslow.tasks.families.rulebook.universe import SLOTS


def sayings(ways: Iterable[str]) -> set[str]:
    """All fillings of the slots of some ways."""
    return {text for way in ways for text in _fillings(way)}


def _fillings(way: str) -> Iterator[str]:
    slots = re.findall(r"\{(\w+)\}", way)
    for words in itertools.product(*(SLOTS[slot] for slot in slots)):
        chosen = iter(words)
        yield re.sub(r"\{\w+\}", lambda _, chosen=chosen: next(chosen), way)  # type: ignore[misc]
