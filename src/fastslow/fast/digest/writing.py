"""Texts made of lines: the base text, and below it the lines that are worth their room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fastslow.fast.digest.journal import component_of


@dataclass(frozen=True)
class Line:
    """A line that may stand in a text."""

    key: str
    text: str
    tokens: int


class Writer:
    """Writes contexts; holds what they begin with and how long they may be."""

    def __init__(self, base: Mapping[str, str], max_tokens: int, count_tokens: Callable[[str], int]) -> None:
        self.base, self.max_tokens, self.count = dict(base), max_tokens, count_tokens
        self._tokens: dict[str, int] = {}

    def tokens(self, text: str) -> int:
        """The tokens of a line in a text, its line break included."""
        if text not in self._tokens:
            self._tokens[text] = self.count(text) + 1
        return self._tokens[text]

    def room(self) -> dict[str, int]:
        """The tokens that each component has left beside the base text."""
        return {name: self.max_tokens - self.tokens(text) for name, text in self.base.items()}

    def write(self, lines: Sequence[Line], taken: frozenset[str]) -> dict[str, str]:
        """The texts with these lines, in the order in which they are given."""
        texts = {}
        for name, base in self.base.items():
            chosen = [line.text for line in lines if line.key in taken and component_of(line.key) == name]
            texts[name] = "\n".join([base, *chosen])
        return texts
