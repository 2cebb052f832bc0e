"""Reflection without a model: a text is edited line by line, with lines taken from the feedback on failed attempts.

New lines are appended, so lines are ordered by age and the oldest can be dropped when the text is too long.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from fastslow.base.text import BULLETS, line_key
from fastslow.fast.reflection.base import ReflectionFailed, Request, TextRequest, Usage

ACTIONS = {"add": 0.7, "replace": 0.2, "drop": 0.1}
FIRST_LINE_WEIGHT = 0.1
"""The first line usually states the task, so it is dropped ten times less often than any other."""
FULL_LESSONS = 3
"""The most lessons that a `full` edit adds at once."""
MOST_LESSONS = 256
"""Lines that an edit draws from: those most likely to be rules."""
QUOTING_WEIGHT = 0.1
"""A line that quotes its attempt, three words in a row, is about that problem rather than about all problems."""

Item = TypeVar("Item")


class Lessons:
    """Adds, replaces or drops lines. Free, repeatable, and the baseline for every reflector that asks a model."""

    writes_code = False

    def __init__(self) -> None:
        self.usage = Usage()

    def __call__(self, request: Request) -> str:
        with self.usage.counting():
            return _edit(request)

    def write(self, request: TextRequest, seed: int) -> str:
        with self.usage.counting():
            return request.by_hand(random.Random(seed))


def _edit(request: Request) -> str:
    chance = random.Random(request.seed)
    parent = request.text.splitlines()
    lessons = {request.kind.written(line): weight for line, weight in new_lessons(request).items()}
    for lines in _children(parent, lessons, request.proposer == "full", chance):
        child = fit(lines, lessons, request.count_tokens, request.max_tokens)
        if child is not None:
            return child
    if not lessons:
        raise ReflectionFailed("nothing new to learn: no failed attempt's feedback has a usable line the text lacks")
    raise ReflectionFailed(f"no edit fits: the first line and one lesson take more than {request.max_tokens} tokens")


def new_lessons(request: Request) -> dict[str, float]:
    """Lines of the feedback that the text does not have yet, weighted by how likely each is to be a general rule.

    A line in the feedback on several failed attempts is likely to be one; a line that occurs once or quotes its attempt is
    not.
    """
    known = {line_key(line) for line in request.text.splitlines()}
    said: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    quoting: set[str] = set()
    for attempt in request.attempts:
        if attempt.score >= 1:
            continue
        own = _runs(attempt.question) | _runs(attempt.answer)
        lines = {line_key(line): BULLETS.sub("", line.strip()) for line in attempt.feedback.splitlines()}
        for key, line in lines.items():
            if key not in known and any(letter.isalnum() for letter in line):
                spelling.setdefault(key, line)
                said[key] += 1
                if _runs(line) & own:
                    quoting.add(key)
    weights = {key: count**2 * (QUOTING_WEIGHT if key in quoting else 1.0) for key, count in said.items()}
    likely = set(sorted(weights, key=lambda key: -weights[key])[:MOST_LESSONS])
    return {
        spelling[key]: weight
        for key, weight in weights.items()
        if key in likely and request.count_tokens(spelling[key]) <= request.max_tokens
    }


def _runs(text: str) -> set[tuple[str, ...]]:
    """Every three words in a row."""
    words = re.findall(r"\w+", text.casefold())
    return set(zip(words, words[1:], words[2:], strict=False))


def _children(
    parent: list[str], lessons: Mapping[str, float], several: bool, chance: random.Random
) -> Iterator[list[str]]:
    """Edits of the parent, the preferred one first; later ones are tried when earlier ones do not fit."""
    filled = [index for index, line in enumerate(parent) if line.strip()]
    droppable = {index: FIRST_LINE_WEIGHT if index == filled[0] else 1.0 for index in filled} if len(filled) > 1 else {}
    for action in shuffled(ACTIONS, chance):
        ranked = list(shuffled(lessons, chance))
        victim = next(shuffled(droppable, chance), None)
        rest = [line for index, line in enumerate(parent) if index != victim]
        if action == "add":
            count = chance.randint(1, min(FULL_LESSONS, len(ranked))) if several and ranked else 1
            if count > 1:
                yield [*parent, *ranked[:count]]
            yield from ([*parent, lesson] for lesson in ranked)
        elif action == "replace" and victim is not None:
            yield from ([*rest, lesson] for lesson in ranked)
        elif action == "drop" and victim is not None:
            yield rest


def fit(
    lines: Sequence[str], lessons: Collection[str], count_tokens: Callable[[str], int], max_tokens: int
) -> str | None:
    """The text within its token budget: the oldest lines after the first are dropped, never the new ones."""
    lines = list(lines)
    while count_tokens("\n".join(lines)) > max_tokens:
        first = next((index for index, line in enumerate(lines) if line.strip()), None)
        oldest = next((index for index, line in enumerate(lines) if index != first and line not in lessons), None)
        if oldest is None:
            return None
        del lines[oldest]
    return "\n".join(lines)


def shuffled(weights: Mapping[Item, float], chance: random.Random) -> Iterator[Item]:
    left = dict(weights)
    while left:
        (item,) = chance.choices(list(left), list(left.values()))
        del left[item]
        yield item
