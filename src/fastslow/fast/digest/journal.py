"""What was played and what the grader said of it: every rollout as one row, kept from cycle to cycle.

A *statement* is a line of the feedback on an answer that was not right, for one component; the same line in another spacing,
case or numbering is the same statement. A statement is *about* the problems it was made of. A *line* of a text is known by
the same key, so a text that says what the grader said is seen to say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fastslow.fast.reflection.lessons import line_key

MOST_ROWS = 4000
"""Rows that are kept; evidence older than these has aged beyond use."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Said:
    """One line of feedback: its key, its spelling, and whether it quotes the attempt it was said of."""

    key: str
    text: str
    quotes: bool = False


@dataclass(frozen=True)
class Row:
    """One rollout as evidence."""

    problem: str
    lines: frozenset[str]
    """The keys of the context's lines."""
    tokens: int
    """How much longer the context is than the base text."""
    score: float
    cycle: int
    said: tuple[str, ...] = ()
    """The statements made of it."""


@dataclass
class Statement:
    """A line that the grader said, and the problems it was said of."""

    key: str
    text: str
    problems: dict[str, int] = field(default_factory=dict)
    """How often it was said of each problem."""
    quotes: bool = False
    """Whenever it was said it repeated words of the attempt, as remarks about one problem do."""
    last: int = 0
    """The cycle in which it was last said."""
    covers: frozenset[str] = frozenset()
    """For a line that a reflection model wrote: the statements it stands for."""


class Journal:
    """All rows, and from them the statements."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.known: list[frozenset[str]] = []
        """For every row, what had been said of its problem before it was played: never what its own grading said."""
        self.statements: dict[str, Statement] = {}
        self.words: dict[str, frozenset[str]] = {}
        """The words of every problem's question."""
        self._about: dict[str, frozenset[str]] = {}

    def add(self, row: Row, said: Iterable[Said] = (), question: str = "") -> None:
        """Enter a rollout with its statements. The row is judged by what was known before: a problem is known to fall under
        a rule only because some answer failed, and that very failure must not count against the rule's line."""
        said = list(said)
        self.known.append(self._about.get(row.problem, frozenset()))
        self.rows.append(row)
        if row.problem not in self.words:
            self.words[row.problem] = words_of(question)
        for each in said:
            found = self.statements.setdefault(each.key, Statement(each.key, each.text, quotes=each.quotes))
            found.quotes &= each.quotes
            found.problems[row.problem] = found.problems.get(row.problem, 0) + 1
            found.last = max(found.last, row.cycle)
        if said:
            self._about[row.problem] = self._about.get(row.problem, frozenset()) | {each.key for each in said}

    def declare(self, key: str, text: str, covers: frozenset[str] = frozenset()) -> None:
        """Enter a line that the grader did not say: one of the text that the run began with, or one that a model wrote."""
        self.statements.setdefault(key, Statement(key, text, covers=covers))

    def about(self, problem: str) -> frozenset[str]:
        """What was said of a problem."""
        return self._about.get(problem, frozenset())

    @property
    def problems(self) -> dict[str, int]:
        """The problems something was said of, with the cycle they were last played in."""
        return {row.problem: row.cycle for row in self.rows if row.problem in self._about}

    def to_data(self) -> dict[str, Any]:
        """As JSON can hold it: keys are written once and referred to by number."""
        rows = self.rows[-MOST_ROWS:]
        used = {key for row in rows for key in row.said} | {key for row in rows for key in row.lines}
        statements = [each for key, each in self.statements.items() if key in used or not each.problems]
        keys = list(dict.fromkeys([*(each.key for each in statements), *sorted(used)]))
        number = {key: index for index, key in enumerate(keys)}
        # Of a question only the words that some statement has too can matter.
        vocabulary = frozenset().union(*(words_of(each.text) for each in statements))
        return {
            "keys": keys,
            "words": {
                problem: sorted(self.words[problem] & vocabulary)
                for problem in dict.fromkeys(row.problem for row in rows)
            },
            "statements": [
                [number[each.key], each.text, each.quotes, sorted(number[key] for key in each.covers if key in number)]
                for each in statements
            ],
            "rows": [
                [
                    row.problem,
                    sorted(number[key] for key in row.lines),
                    row.tokens,
                    row.score,
                    row.cycle,
                    [number[key] for key in row.said],
                ]
                for row in rows
            ],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Journal:
        journal, keys = cls(), data["keys"]
        about: dict[str, tuple[str, bool]] = {}
        said = {number for row in data["rows"] for number in row[-1]}
        for index, text, quotes, covers in data["statements"]:
            about[keys[index]] = text, quotes
            if covers or index not in said:
                journal.declare(keys[index], text, frozenset(keys[each] for each in covers))
        journal.words = {problem: frozenset(words) for problem, words in data["words"].items()}
        for problem, lines, tokens, score, cycle, said in data["rows"]:
            row = Row(
                problem, frozenset(keys[each] for each in lines), tokens, score, cycle, tuple(keys[e] for e in said)
            )
            journal.add(row, [Said(key, *about[key]) for key in row.said])
        return journal


def read_statements(component: str, feedback: str, question: str, answer: str) -> list[Said]:
    """The distinct lines of a feedback."""
    own = _runs(question) | _runs(answer)
    found: dict[str, Said] = {}
    for line in feedback.splitlines():
        text = line.strip()
        if any(letter.isalnum() for letter in text):
            key = key_of(component, text)
            found.setdefault(key, Said(key, text, bool(_runs(text) & own)))
    return list(found.values())


def key_of(component: str, line: str) -> str:
    return f"{component}\n{line_key(line)}"


def component_of(key: str) -> str:
    return key.partition("\n")[0]


def lines_of_texts(texts: Mapping[str, str]) -> frozenset[str]:
    """The keys of all lines of a context."""
    return frozenset(
        key_of(component, line) for component, text in texts.items() for line in text.splitlines() if line.strip()
    )


@lru_cache(maxsize=20_000)
def words_of(text: str) -> frozenset[str]:
    """The words of a text, without regard to case and to an s at the end."""
    return frozenset(word.removesuffix("s") for word in _WORD.findall(text.casefold()))


def _runs(text: str) -> set[tuple[str, ...]]:
    """Every three words in a row."""
    words: Sequence[str] = _WORD.findall(text.casefold())
    return set(zip(words, words[1:], words[2:], strict=False))
