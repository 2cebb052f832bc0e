"""Evidence as the model of effects reads it: every rollout as one row, and the statements that were made of each problem.

A *statement* is something the grader said of an answer that was not right, for one component; in another spacing, case or
numbering, behind another sign or with another closing mark, it is the same statement. A statement is *about* the problems it
was made of. A *line* of a text is known by the same key, so a text that says what the grader said is seen to say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastslow.fast.digest.topics import words_of
from fastslow.fast.reflection.lessons import line_key

_SIGNS = re.compile(r"^(?:[^\w\s\x00-\x7f✓✔☑✅]+\s+)+(?=\S)")
"""What marks a line, as in "❌ Name the unit.", but for what marks what passed."""


@dataclass(frozen=True)
class Said:
    """Something the grader said: its key and its spelling."""

    key: str
    text: str


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
    again: tuple[str, ...] | None = None
    """The statements made of the answer that it tried again, if it did: it tells of the problem, and nothing of the lines."""


@dataclass
class Statement:
    """A line that the grader said, and the problems it was said of."""

    key: str
    text: str
    problems: dict[str, int] = field(default_factory=dict)
    """How often it was said of each problem."""
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
        self.frames: dict[str, list[tuple[str, ...]]] = {}
        """The words of statements that name labels, with the labels left out, in every way they were made."""
        self.examples: frozenset[str] = frozenset()
        """The keys of lines that show a problem with an answer."""
        self.right: frozenset[str] = frozenset()
        """Of these, those that show a right one."""
        self.tries: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        """Of answers that were tried again: what was no longer said, and what for the first time of the problem. What is said
        once more may have been kept by luck before."""
        self.beyond: dict[str, set[str]] = {}
        """By problem: the statements that some answer to it got past after they had been made of it."""
        self._about: dict[str, frozenset[str]] = {}

    def add(self, row: Row, said: Iterable[Said] = (), question: str = "") -> None:
        """Enter a rollout with its statements. The row is judged by what was known before: a problem is known to fall under
        a rule only because some answer failed, and that very failure must not count against the rule's line."""
        said = list(said)
        known = self._about.get(row.problem, frozenset())
        if row.again is None:
            self.known.append(known)
            self.rows.append(row)
        else:
            gone = tuple(key for key in row.again if key not in row.said)
            self.tries.append((gone, tuple(key for key in row.said if key not in known)))
        if row.said or row.score >= 1:
            self.beyond.setdefault(row.problem, set()).update(known - set(row.said) if row.score < 1 else known)
        if row.problem not in self.words:
            self.words[row.problem] = words_of(question)
        for each in said:
            found = self.statements.setdefault(each.key, Statement(each.key, each.text))
            found.problems[row.problem] = found.problems.get(row.problem, 0) + 1
        if said:
            self._about[row.problem] = self._about.get(row.problem, frozenset()) | {each.key for each in said}

    def declare(self, key: str, text: str, covers: frozenset[str] = frozenset()) -> None:
        """Enter a line that the grader did not say: one of the text that the run began with, or one that a model wrote."""
        self.statements.setdefault(key, Statement(key, text, covers=covers))

    def about(self, problem: str) -> frozenset[str]:
        """What was said of a problem."""
        return self._about.get(problem, frozenset())

    @property
    def score(self) -> float:
        """The mean score."""
        return sum(row.score for row in self.rows) / max(1, len(self.rows))

    @property
    def untaught(self) -> float:
        """The mean score where no example stands in the text."""
        rows = [row.score for row in self.rows if self.right.isdisjoint(row.lines)]
        return sum(rows) / len(rows) if rows else self.score

    @property
    def problems(self) -> dict[str, int]:
        """The problems something was said of, with the cycle they were last played in."""
        return {row.problem: row.cycle for row in self.rows if row.problem in self._about}


def key_of(component: str, line: str) -> str:
    """How a line is known: whatever closes it, because a grader may join sentences in different ways."""
    return f"{component}\n{_SIGNS.sub('', line_key(line)).rstrip('.;,')}"


def component_of(key: str) -> str:
    return key.partition("\n")[0]
