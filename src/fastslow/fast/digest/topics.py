"""Which words of the questions tell problems apart, and which statements say the same in other words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

COMMON = 0.5
"""A word that more of the questions have says nothing about a topic."""
MATCHED = 0.6
"""The part of a statement's topic words, weighed by their rarity, that a question of its topic has."""
MOSTLY = 0.75
"""A word belongs to the labels that this share of the statements with it name: some of them may be false."""
BY_CHANCE = 0.25
"""How likely a word may be to be said with the same labels each time if it had nothing to do with them."""
ENOUGH = 0.65
"""The part of its words that belong to its labels, weighed by their rarity, that a statement shares with a restatement."""
EARLIEST = 8
"""Of the statements with a word, those that later ones are compared with; there may be thousands."""

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
        whole = sum(self.rarity[word] for word in sorted(topic))
        having: dict[str, float] = {}
        for word in sorted(topic):
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


def restatements(texts: Mapping[str, str], frames: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """By key: for a statement that says the same as an earlier one, the earliest. `frames` has the component and the words of
    every statement that names labels, which are left out; both mappings are in the order in which statements were made.

    A grader that writes freely, as a model does, seldom says a rule twice in the same words. Two statements are taken for one
    if they name the same labels and share words that are said with these labels: what a rule is about comes with its label,
    while the grader's turns of phrase come with any. Words can seem to belong to a label until they are heard with another;
    statements that were taken for one by mistake then come apart again.
    """
    labels: dict[str, frozenset[str]] = {}
    having: dict[tuple[str, str], list[str]] = {}
    for key, (component, *frame) in frames.items():
        spelled = word_list(texts[key])
        labels[key] = frozenset(word for word, kept in zip(spelled, frame, strict=True) if not kept)
        for word in dict.fromkeys(filter(None, frame)):
            having.setdefault((component, word), []).append(key)
    share = {each: times / len(frames) for each, times in Counter(labels.values()).items()}
    whole = dict.fromkeys(frames, 0.0)
    shared: Counter[tuple[str, str]] = Counter()
    for keys in having.values():
        usual, times = Counter(labels[key] for key in keys).most_common(1)[0]
        if times < MOSTLY * len(keys) or (len(keys) > 1 and share[usual] ** (times - 1) > BY_CHANCE):
            continue
        rarity = math.log((len(frames) + 1) / len(keys))
        belonging = [key for key in keys if labels[key] == usual]
        for place, key in enumerate(belonging):
            whole[key] += rarity
            for earlier in belonging[: min(place, EARLIEST)]:
                shared[earlier, key] += rarity  # type: ignore[assignment]
    order = {key: place for place, key in enumerate(frames)}
    first: dict[str, str] = {}
    for (key, later), part in sorted(shared.items(), key=lambda pair: order[pair[0][0]]):
        if part >= ENOUGH * max(whole[key], whole[later]) and not _alike(frames[key], frames[later]):
            first.setdefault(later, first.get(key, key))
    return first


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two statements are one turn of phrase about two things: word by word the same but for two words or a third."""
    return len(one) == len(other) and sum(a != b for a, b in zip(one, other, strict=True)) <= max(2, len(one) // 3)
