"""Problems that a text shows with an answer, and which right ones to show: first those that show what no other does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from fastslow.fast.digest.classes import OPENING, QUOTED
from fastslow.fast.digest.journal import Statement
from fastslow.fast.digest.topics import COMMON, words_of
from fastslow.fast.reflection import Attempt
from fastslow.fast.reflection.base import MOST_LINES

_RIGHT = "Example of a right answer."
_FRAME_WORDS = words_of(f"{_RIGHT} The question: The answer:")
_VALUE = rf"({QUOTED}|[^\s{OPENING},;]+)"
_EXPECTED = re.compile(
    rf"(?i)\b(?:expected|wanted|must be|should be|should have been):? {_VALUE}[,;]? (?:but )?"
    rf"(?:got|not|found|received|was|given|instead of|rather than):? {_VALUE}"
)
LONGEST_LINE = 1000
"""Characters of a line of feedback that are looked through for values."""
MOSTLY, OFTEN = 0.5, 0.25
"""The share of a line that a value must be to be replaced there, and of the lines of an answer that must have changed."""


@dataclass(frozen=True)
class Candidate:
    """A problem with an answer that may enter a text."""

    component: str
    problem: str
    text: str
    wanting: float
    """How much was said of it that lines in the text do not change."""
    shows: frozenset[str] = frozenset()
    """What the grader names, the answer has, and no example shows yet."""


def demonstration(attempt: Attempt) -> str:
    """A solved problem as it stands in a text."""
    return f"{_RIGHT} The question:\n{attempt.question.strip()}\nThe answer:\n{attempt.answer.strip()}"


def correction(attempt: Attempt) -> str:
    """An answer that was not right as it stands in a text, with what the grader said of it."""
    return (
        f"Example of a wrong answer and its correction. The question:\n{attempt.question.strip()}\n"
        f"The answer:\n{attempt.answer.strip()}\nThe correction:\n{attempt.feedback.strip()}"
    )


def mended(answer: str, told: Iterable[str]) -> str | None:
    """An answer as the grader expects it, from lines such as "date: expected '2026-03-07', got '7 March'". Only values that
    fill a line of a short answer are exchanged: what leads to others could still be wrong."""
    lines, changed = answer.strip().splitlines(), set[int]()
    for line in told if len(lines) <= MOST_LINES else ():
        for pair in _EXPECTED.finditer(line[:LONGEST_LINE]):
            expected, given = (_bare(value) for value in pair.groups())
            lead = line[: pair.start()].strip().casefold()
            fitting = [
                place
                for place, each in enumerate(lines)
                if place not in changed and given and given in each and len(given) >= MOSTLY * len(_after_name(each))
            ]
            fitting.sort(key=lambda place: not lines[place].casefold().startswith(lead))
            if fitting:
                place = fitting[0]
                start = lines[place].rindex(given)
                lines[place] = lines[place][:start] + expected + lines[place][start + len(given) :]
                changed.add(place)
    filled = sum(bool(each.strip()) for each in lines)
    return "\n".join(lines) if changed and len(changed) >= OFTEN * filled else None


def _after_name(line: str) -> str:
    """A line without the name that its value has."""
    return line.partition(":")[2].strip() or line.strip()


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] in OPENING else value


def is_right(example: str) -> bool:
    return example.startswith(_RIGHT)


def naming(statements: Iterable[Statement], labels: Set[str]) -> dict[str, frozenset[str]]:
    """By word: the statements that name it, where few do and it is no label."""
    found: dict[str, set[str]] = {}
    made = [each for each in statements if each.problems]
    for each in made:
        for word in words_of(each.text) - labels - _FRAME_WORDS:
            if not word.isdigit():
                found.setdefault(word, set()).add(each.key)
    return {word: frozenset(keys) for word, keys in found.items() if len(keys) <= max(1, COMMON * len(made))}


def news(
    solved: Mapping[tuple[str, str], Attempt], named: Set[str], examples: Iterable[str]
) -> dict[tuple[str, str], frozenset[str]]:
    """What each right answer shows of what is named that neither its question has nor one of the right examples."""
    known = frozenset[str]().union(*(words_of(each) for each in examples if is_right(each)))
    return {place: words_of(each.answer) & named - words_of(each.question) - known for place, each in solved.items()}


def picked(candidates: Sequence[Candidate], room: int) -> list[Candidate]:
    """So many of those that show something or are wanting: those that show most beside the ones picked before them, then the
    most wanting, then the earliest."""
    found: list[Candidate] = []
    left = list(candidates)
    while len(found) < room and (left := [each for each in left if each.shows or each.wanting]):
        chosen = max(left, key=lambda each: (len(each.shows), each.wanting))
        found.append(chosen)
        left = [replace(each, shows=each.shows - chosen.shows) for each in left if each is not chosen]
    return found
