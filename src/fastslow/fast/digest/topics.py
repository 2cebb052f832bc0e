"""Which words of the questions tell problems apart."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

COMMON = 0.5
"""A word that more of the questions have says nothing about a topic."""
MATCHED = 0.6
"""The part of a statement's topic words, weighed by their rarity, that a question of its topic has."""

_WORD = re.compile(r"\w+")


class Topics:
    """The telling words, and the problems whose questions have them."""

    def __init__(self, words: Mapping[str, frozenset[str]]) -> None:
        """`words` has the words of every problem's question."""
        counts = Counter(word for each in words.values() for word in each)
        total = max(1, len(words))
        self.rarity = {word: math.log((total + 1) / n) for word, n in counts.items() if n <= COMMON * total}
        self.having: dict[str, set[str]] = {}
        for problem, each in words.items():
            for word in each:
                if word in self.rarity:
                    self.having.setdefault(word, set()).add(problem)

    def shared(self, words: Iterable[str], problems: frozenset[str]) -> frozenset[str]:
        """Those of the words that tell problems apart, and that most of these problems' questions have."""
        telling = self.rarity.keys() & set(words)
        return frozenset(word for word in telling if len(self.having[word] & problems) >= MATCHED * len(problems))

    def numbered(self, words: Iterable[str], problems: frozenset[str]) -> bool:
        """Whether a number among the words stands in the question of one problem only, the one that they are about."""
        return any(word.isdigit() and self.having.get(word, ()) == problems and len(problems) == 1 for word in words)

    def matching(self, topic: frozenset[str]) -> frozenset[str]:
        """The problems of a topic."""
        whole = sum(self.rarity[word] for word in topic)
        having: dict[str, float] = {}
        for word in topic:
            for problem in self.having[word]:
                having[problem] = having.get(problem, 0.0) + self.rarity[word]
        return frozenset(problem for problem, part in having.items() if part >= MATCHED * whole)


@lru_cache(maxsize=20_000)
def words_of(text: str) -> frozenset[str]:
    """The words of a text, without regard to case and to an s at the end."""
    return frozenset(word_list(text))


def word_list(text: str) -> list[str]:
    """Its words in order, spelt in the same way."""
    return [word.removesuffix("s") for word in _WORD.findall(text.casefold())]
