"""What the grader's words say of lines: a line works if the grader stops saying its statement.

Of every statement two chances are estimated: that an answer keeps it under texts that say it, and under texts that do not. An
answer to a problem that the statement was made of has kept it if it is right, or if the grader went on to something else. A
grader that names one thing at a time may have stopped before it: then the answer counts as far as the statement is known to
come first, so a line that silences a statement by breaking something earlier gains little.

A problem is passed if all that was said of it is kept, so its chance is the product: lines that pay only together are worth
something together, also where every score so far was 0.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastslow.fast.digest.journal import Journal

Array = NDArray[np.float64]

TOLD, UNTOLD = (3.0, 1.5), (0.5, 1.0)
"""Answers that kept a statement and that did not, which are imagined beside those of all statements together, where the text
says it and where it does not."""
STRENGTH = (8.0, 4.0)
"""What all statements together count for beside the answers to one."""
FLOOR = 0.02
"""The least chance that a statement is kept."""
HALF_LIFE = 3.0
"""Cycles after which an answer counts half: the weights have moved."""


@dataclass(frozen=True)
class Chances:
    """By statement: the chance that it is kept under a text that says it, and under one that does not."""

    told: Array
    untold: Array


class Words:
    """How far texts get, by the grader's words. Statements are those that were made of some problem."""

    def __init__(self, journal: Journal, covers: Sequence[frozenset[str]], now: int) -> None:
        """`covers` has, for every line, the statements that it says."""
        self.place = {key: index for index, key in enumerate(k for k, s in journal.statements.items() if s.problems)}
        self.covers = np.zeros((len(covers), len(self.place)))
        for line, keys in enumerate(covers):
            self.covers[line, [self.place[key] for key in keys & self.place.keys()]] = 1.0
        self.counts = self._count(journal, now)
        self.mean = self._chances(None)

    def _count(self, journal: Journal, now: int) -> Array:
        """By statement: answers that kept it and that did not, first under texts that say it, then under the others."""
        counts = np.zeros((len(self.place), 2, 2))
        order = Order(journal)
        for row, known in zip(journal.rows, journal.known, strict=True):
            known = known & self.place.keys()
            if not known or (row.score < 1 and not row.said):
                continue
            weight = 0.5 ** ((now - row.cycle) / HALF_LIFE)
            blamed = () if row.score >= 1 else row.said
            for key in known:
                told = 0 if key in row.lines else 1
                if key in blamed:
                    counts[self.place[key], told, 1] += weight
                elif not blamed:
                    counts[self.place[key], told, 0] += weight
                else:
                    counts[self.place[key], told, 0] += weight * order.passed(key, blamed)
        return counts

    def _chances(self, chance: np.random.Generator | None) -> Chances:
        found = []
        for told, (prior, strength) in enumerate(zip((TOLD, UNTOLD), STRENGTH, strict=True)):
            usual = self.counts[:, told].sum(axis=0) + prior
            kept, broken = (self.counts[:, told] + strength * usual / usual.sum()).T
            drawn = kept / (kept + broken) if chance is None else chance.beta(kept, broken)
            found.append(np.clip(drawn, FLOOR, 1.0))
        return Chances(*found)

    def sample(self, chance: np.random.Generator) -> Chances:
        """One draw from the posterior."""
        return self._chances(chance)

    def about(self, known: Sequence[frozenset[str]]) -> Array:
        """1 where a statement was made of a problem."""
        found = np.zeros((len(known), len(self.place)))
        for index, keys in enumerate(known):
            found[index, [self.place[key] for key in keys & self.place.keys()]] = 1.0
        return found

    def passed(self, present: Array, about: Array, chances: Chances) -> Array:
        """The chance, row by row, that all is kept of what is marked in `about`, under texts that have the lines in `present`."""
        told = np.minimum(1.0, present @ self.covers)
        kept = chances.untold + told * (chances.told - chances.untold)
        return np.asarray(np.exp((about * np.log(kept)).sum(axis=1)))


class Order:
    """In which order a grader comes to its statements, as far as it says one thing at a time."""

    def __init__(self, journal: Journal) -> None:
        blamed = [row for row in journal.rows if row.score < 1 and row.said]
        self._together = {pair for row in blamed for pair in itertools.permutations(row.said, 2)}
        """Pairs of statements that were made of one answer: who names both does not stop at the first."""
        self._first: Counter[tuple[str, str]] = Counter()
        """By two statements that were made of one problem: how often the first was said, and not the other though no line of
        the text says it."""
        for row in blamed:
            others = journal.about(row.problem) - row.lines - set(row.said)
            self._first.update((key, other) for key in row.said for other in others)

    def passed(self, key: str, said: Iterable[str]) -> float:
        """The chance that a grader who said this had found the statement kept: he comes to it before."""
        return max(1.0 if (key, other) in self._together else self._before(key, other) for other in said)

    def _before(self, one: str, other: str) -> float:
        return self._first[one, other] / (self._first[one, other] + self._first[other, one] + 1.0)
