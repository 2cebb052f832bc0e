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

    def choose(self, lines: Sequence[Line], worth: Sequence[float]) -> frozenset[str]:
        """The lines to take: all that are worth something, the most for their length first, as far as the room goes."""
        taken: set[str] = set()
        left = {name: self.max_tokens - self.tokens(text) for name, text in self.base.items()}
        useful = [(value / line.tokens, line) for line, value in zip(lines, worth, strict=True) if value > 0]
        for _, line in sorted(useful, key=lambda item: (-item[0], item[1].key)):
            name = component_of(line.key)
            if line.tokens <= left[name]:
                taken.add(line.key)
                left[name] -= line.tokens
        return frozenset(taken)

    def write(self, lines: Sequence[Line], taken: frozenset[str]) -> dict[str, str]:
        """The texts with these lines, in the order in which they are given."""
        texts = {}
        for name, base in self.base.items():
            chosen = [line.text for line in lines if line.key in taken and component_of(line.key) == name]
            texts[name] = "\n".join([base, *chosen])
        return texts
