"""Texts made of lines: the first line of the base text, which states the task, and below it the lines that are worth their
room, those of the base text before the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fastslow.fast.digest.journal import component_of, key_of


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
        self.heads: dict[str, str] = {}
        self.loose: dict[str, str] = {}
        """The further lines of the base text, by key; they may go, if they do harm."""
        for name, text in base.items():
            first, *others = [line for line in text.splitlines() if line.strip()] or [text]
            self.heads[name] = first
            self.loose |= {key_of(name, line): line for line in others if key_of(name, line) != key_of(name, first)}

    def tokens(self, text: str) -> int:
        """The tokens of a line in a text, its line break included."""
        if text not in self._tokens:
            self._tokens[text] = self.count(text) + 1
        return self._tokens[text]

    def room(self) -> dict[str, int]:
        """The tokens that each component has left beside its first line."""
        return {name: self.max_tokens - self.tokens(text) for name, text in self.heads.items()}

    def write(self, lines: Sequence[Line], taken: frozenset[str]) -> dict[str, str]:
        """The texts with these lines, in the order in which they are given."""
        texts = {}
        for name, head in self.heads.items():
            chosen = [line for line in lines if line.key in taken and component_of(line.key) == name]
            loose = {key for key in self.loose if component_of(key) == name}
            whole = loose <= taken  # then the base text is kept as it is, blank lines and all
            added = [line.text for line in chosen if not whole or line.key not in loose]
            texts[name] = "\n".join([self.base[name] if whole else head, *added])
        return texts
