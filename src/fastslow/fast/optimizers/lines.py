"""Proposing without a model: a text is a list of lines, and lines are added, exchanged, dropped, moved and crossed.

The optimizers differ in where new lines come from: each passes in lines of what it is allowed to see.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastslow.base.text import one_line
from fastslow.fast.reflection import Attempt, ReflectionFailed
from fastslow.fast.reflection.lessons import FIRST_LINE_WEIGHT, line_key, shuffled

GENERIC = (
    "Read the question carefully before you answer.",
    "Work step by step.",
    "Check the answer against the question before you give it.",
    "Write the answer and nothing else.",
    "Keep the answer short.",
    "Use exactly the form that the question asks for.",
    "If something is unclear, take the simplest reading.",
    "Use every part of the question.",
    "Do not leave anything out.",
    "Do not repeat the question.",
)
"""Advice that fits any task."""

ADD, DROP, EXCHANGE, MOVE = "add", "drop", "exchange", "move"
ACTIONS = {ADD: 0.4, EXCHANGE: 0.25, DROP: 0.2, MOVE: 0.15}
LONGEST = 300
"""Characters of a line that shows a problem."""

Source = Mapping[str, float]
"""Lines that may be added, with their weights in the draw."""


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def distinct(lines: Iterable[str]) -> list[str]:
    """The lines in order without duplicates, which may differ in spacing or numbering."""
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(line_key(line), line)
    return list(found.values())


def demonstration(attempt: Attempt) -> str:
    return one_line(f"For {attempt.question} the answer is {attempt.answer}.", LONGEST)


def plain_lines(solved: Sequence[Attempt], questions: Sequence[str]) -> dict[str, float]:
    """Lines to add without a model and without the grader's feedback: advice, problems, demonstrations."""
    return {
        **dict.fromkeys(GENERIC, 1.0),
        **{one_line(line, LONGEST): 1.0 for question in questions for line in lines_of(question)},
        **{demonstration(attempt): 3.0 for attempt in solved},
    }


def vary(lines: Sequence[str], source: Source, chance: random.Random) -> list[str]:
    """The lines with one change, of a kind drawn at random among those that can be made."""
    for action in shuffled(ACTIONS, chance):
        if (changed := change(action, lines, source, chance)) is not None:
            return changed
    raise ReflectionFailed("nothing can be changed: there is one line and no other to add")


def varied(text: str, source: Source) -> Callable[[random.Random], list[str]]:
    """A text with one change, as the answer to a request without a model."""
    return lambda chance: vary(lines_of(text), source, chance)


def change(action: str, lines: Sequence[str], source: Source, chance: random.Random) -> list[str] | None:
    """The lines with one change of a kind, or None where it cannot be made. New lines are appended."""
    known = {line_key(line) for line in lines}
    new = next(shuffled({line: weight for line, weight in source.items() if line_key(line) not in known}, chance), None)
    # The first line usually states the task.
    loose = {index: 1.0 if index else FIRST_LINE_WEIGHT for index in range(len(lines))} if len(lines) > 1 else {}
    victim = next(shuffled(loose, chance), None)
    rest = [line for index, line in enumerate(lines) if index != victim]
    if action == ADD and new is not None:
        return [*lines, new]
    if action == EXCHANGE and new is not None and victim is not None:
        return [*rest, new]
    if action == DROP and victim is not None:
        return rest
    if action == MOVE and victim is not None:
        place = chance.choice([index for index in range(len(lines)) if index != victim])
        return [*rest[:place], lines[victim], *rest[place:]]
    return None


def cross(first: Sequence[str], second: Sequence[str], chance: random.Random) -> list[str]:
    """The lines that both have, and each other line with probability 1/2, in the order of the first and then the second."""
    common = {line_key(line) for line in first} & {line_key(line) for line in second}
    both = distinct([*first, *second])
    taken = [line for line in both if line_key(line) in common or chance.random() < 0.5]
    return taken or [chance.choice(both)]
