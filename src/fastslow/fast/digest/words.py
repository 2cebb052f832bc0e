"""What the grader's words say of lines: a line works if the grader stops saying its statement.

The chance that an answer keeps a statement is estimated under texts without any line that says it, and under texts with each
of the lines that do: the statement itself, a model's wording, an example. An answer to a problem that the statement was made
of has kept it if it is right, or if the grader went on to something else. A grader that names one thing at a time may have
stopped before it: then the answer counts as far as the statement is known to come first, so a line that silences a statement
by breaking something earlier gains little.

A problem is passed if all that was said of it is kept, so its chance is the product: lines that pay only together are worth
something together, also where every score so far was 0.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastslow.fast.digest.journal import Journal

Array = NDArray[np.float64]

TOLD, SHOWN, UNTOLD = (3.0, 1.5), (4.0, 0.5), (0.5, 1.0)
"""Answers that kept a statement and that did not, which are imagined beside those of all statements together, where the text
says it, where a right answer in it shows it, and where neither."""
STRENGTH = (8.0, 4.0)
"""What all statements together count for beside the answers to one."""
ONCE_MORE = 2.0
"""Problems that are imagined to have got past a statement without being told another."""
SAID_NOISE, SAID_EFFECT = 0.15, 0.3
"""Variance of whether something is said of an answer, and prior deviation of what a line does to it."""
BESIDE = 2.0
"""Answers of which two statements are imagined to be made together, beside those of which they were or were not."""
ALONE = 0.2
"""How far an example is believed to do alone what it did beside lines."""
FLOOR = 0.02
"""The least chance that a statement is kept."""
HALF_LIFE = 3.0
"""Cycles after which an answer counts half: the weights have moved."""


@dataclass(frozen=True)
class Chances:
    """The chance that a statement is kept."""

    told: Array
    """Under a text with a line that says it: rows by line, columns by statement; 0 where the line does not say it."""
    untold: Array
    """Under a text without any such line."""
    shows: Array
    """1 for lines that are examples."""

    def under(self, present: Array) -> Array:
        """Of every statement under one text: the line that says it best counts."""
        return self._under(*self._best(present))

    def with_each(self, present: Array) -> Array:
        """By line, the chances under the text with that line too."""
        said, shown = self._best(present)
        example = self.shows[:, None]
        return self._under(np.maximum(said, (1 - example) * self.told), np.maximum(shown, example * self.told))

    def _best(self, present: Array) -> tuple[Array, Array]:
        told = present[:, None] * self.told
        example = self.shows[:, None]
        return ((1 - example) * told).max(axis=0, initial=0.0), (example * told).max(axis=0, initial=0.0)

    def _under(self, said: Array, shown: Array) -> Array:
        """Examples are mostly seen beside the lines that say the same; without these little is believed of them."""
        alone = self.untold + ALONE * np.maximum(0.0, shown - self.untold)
        return np.where(said > 0, np.maximum(said, shown), np.where(shown > 0, alone, self.untold))


class Words:
    """How far texts get, by the grader's words. Statements are those that some line says."""

    def __init__(
        self, journal: Journal, covers: Mapping[str, frozenset[str]], truth: Array, order: Order, now: int
    ) -> None:
        """`covers` has, by the key of every line, the statements that it says; `truth` the chance that it is true."""
        sayable = frozenset().union(*covers.values())
        made = [key for key, each in journal.statements.items() if each.problems and key in sayable]
        self.place = {key: index for index, key in enumerate(made)}
        self.covers = self.about(list(covers.values()))
        self._truth = truth
        self._shows = np.array([float(line in journal.examples) for line in covers])
        self._right = np.array([float(line in journal.right) for line in covers])
        self._told = np.zeros((len(covers), len(made), 2))
        self._untold = np.zeros((len(made), 2))
        saying: dict[str, dict[str, int]] = {}
        for index, (line, keys) in enumerate(covers.items()):
            for key in keys:
                saying.setdefault(key, {})[line] = index
        for row, known in zip(journal.rows, journal.known, strict=True):
            if row.score < 1 and not row.said:
                continue
            weight = 0.5 ** ((now - row.cycle) / HALF_LIFE)
            blamed = () if row.score >= 1 else row.said
            for key in known & self.place.keys():
                broken = int(key in blamed)
                part = weight if broken or not blamed else weight * order.passed(key, blamed)
                lines = [index for line, index in saying.get(key, {}).items() if line in row.lines]
                # An example is judged beside the lines that say the same, and they by themselves.
                lines = [index for index in lines if self._shows[index]] or lines
                if lines:
                    self._told[lines, self.place[key], broken] += part
                else:
                    self._untold[self.place[key], broken] += part
        self.mean = self._chances(lambda kept, broken: kept / (kept + broken))

    def _chances(self, draw: Callable[[Array, Array], Array]) -> Chances:
        said, wrong, right, untold = (
            counts.reshape(-1, 2).sum(axis=0) + prior
            for counts, prior in (
                (self._told[self._shows == 0], TOLD),
                (self._told[self._shows > self._right], TOLD),
                (self._told[self._right == 1], SHOWN),
                (self._untold, UNTOLD),
            )
        )
        kinds = np.array([each / each.sum() for each in (said, wrong, right)])
        usually, told = untold / untold.sum(), kinds[(self._shows + self._right).astype(int)]
        believed = self._truth[:, None] * told + (1 - self._truth[:, None]) * usually
        found = []
        for counts, prior, strength in zip(
            (self._told, self._untold), (believed[:, None], usually), STRENGTH, strict=True
        ):
            kept, broken = np.moveaxis(counts + strength * prior, -1, 0)
            found.append(np.clip(draw(kept, broken), FLOOR, 1.0))
        return Chances(found[0] * self.covers, found[1], self._shows)

    def sample(self, chance: np.random.Generator) -> Chances:
        """One draw from the posterior."""
        return self._chances(chance.beta)

    def about(self, known: Sequence[frozenset[str]]) -> Array:
        """1 where a statement is among these, row by row."""
        found = np.zeros((len(known), len(self.place)))
        for index, keys in enumerate(known):
            found[index, [self.place[key] for key in keys & self.place.keys()]] = 1.0
        return found

    def passed(self, present: Array, about: Array) -> Array:
        """The chance, row by row, that all that was said of the problem is kept under the text with these lines."""
        return np.asarray(np.exp((about * self._logs(present)).sum(axis=1)))

    def otherwise_passed(self, present: Array, about: Array) -> Array:
        """By row and line: the chance that all is kept but for what the line itself says, on which the rest depends."""
        logs = about * self._logs(present)
        return np.asarray(np.exp(logs.sum(axis=1)[:, None] - logs @ self.covers.T))

    def _logs(self, present: Array) -> Array:
        texts: dict[bytes, int] = {}
        places = [texts.setdefault(row.tobytes(), len(texts)) for row in present]
        each = [np.frombuffer(text, dtype=present.dtype) for text in texts]
        return np.log([self.mean.under(text) for text in each]).reshape(len(each), len(self.place))[places]

    def follows(self, journal: Journal, about: Array, problems: Sequence[str]) -> Array:
        """The same with what will be said of the problems once they get further: what was said next to, or after, what is
        known of them on other problems, as a share of those that got past it."""
        past = np.zeros((len(self.place), len(self.place)))
        seen = dict(zip(problems, about, strict=True))
        count = np.full(len(self.place), ONCE_MORE)
        for problem, keys in journal.beyond.items():
            for key in keys & self.place.keys():
                if problem in seen:
                    past[self.place[key]] += seen[problem]
                    count[self.place[key]] += 1
        share = past / count[:, None]
        found = about.copy()
        for place in np.flatnonzero(about.any(axis=0)):
            np.maximum(found, about[:, place, None] * share[place], out=found)
        return found

    def broken_by(self, journal: Journal, present: Array, now: int, within: bool = False) -> Array:
        """By line: how often answers break something because of it, on problems that it is not about, as far as is clear.

        A line that is about a problem lets the grader come to what follows, which is no harm. So what is said of an answer is
        regressed on the lines of its text, those that are about the problem apart from the others. `within` compares only
        rollouts of the same problem: where the problem decides which lines are shown, other problems break other things."""
        about = self.about(journal.known) @ self.covers.T > 0
        lines = np.hstack([present * ~about, present * about])
        said = self.about([frozenset(row.said) if row.score < 1 else frozenset() for row in journal.rows])
        weight = np.array([0.5 ** ((now - row.cycle) / HALF_LIFE) for row in journal.rows])
        count = present.shape[1]
        if within:
            lines, said = (_by_problem(each.astype(float), journal) for each in (lines, said))
        cover = np.linalg.inv((lines.T * weight) @ lines / SAID_NOISE + np.eye(2 * count) / SAID_EFFECT**2)
        left = said - np.average(said, axis=0, weights=weight) if len(said) else said
        effect = (cover @ (lines.T * weight) @ left / SAID_NOISE)[:count]
        clear = effect - 2 * np.sqrt(np.diag(cover)[:count])[:, None]
        return np.asarray(np.where(self.covers > 0, 0.0, np.maximum(0.0, clear)).max(axis=1, initial=0.0))

    def heeded(self, key: str) -> tuple[float, float]:
        """The chance that a statement is kept under the line that says it best, and the answers that this is known from."""
        place = self.place[key]
        line = int(np.argmax(self.mean.told[:, place])) if len(self._told) else -1
        return (float(self.mean.told[line, place]), float(self._told[line, place].sum())) if line >= 0 else (0.0, 0.0)

    @property
    def tried(self) -> float:
        """The answers from which it is known how often lines are followed at all."""
        return float(self._told.sum())


def _by_problem(values: Array, journal: Journal) -> Array:
    """Rows less the mean row of their problem."""
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(row.problem, len(numbers)) for row in journal.rows]
    sums = np.zeros((len(numbers), values.shape[1]))
    np.add.at(sums, rows, values)
    return np.asarray(values - (sums / np.bincount(rows, minlength=len(numbers))[:, None])[rows])


class Order:
    """How far a grader had come when it said something: it may stop at the first fault, or pass over what a fault hides."""

    def __init__(self, journal: Journal) -> None:
        self._first: Counter[tuple[str, str]] = Counter()
        """By two statements that were made of one problem: how often the first was said, and not the other though no line of
        the text says it."""
        self._both: Counter[tuple[str, str]] = Counter()
        """How often they were made of one answer: who names both does not stop at the first."""
        self._then: Counter[tuple[str, str]] = Counter()
        """How often an answer of which the first was said was tried again, and the other was said for the first time."""
        self._company: Counter[str] = Counter()
        """How often each was said beside another."""
        self._beside: Counter[tuple[str, str, bool]] = Counter()
        """By two statements, and whether a line says the second: how often the first was said where the second could be."""
        self._said: Counter[tuple[str, bool]] = Counter()
        self._open: Counter[tuple[str, bool]] = Counter()
        """By a statement, and whether a line says it: how often it was said, and could have been, of problems that it was
        made of."""
        self._together: Counter[tuple[str, str, bool]] = Counter()
        for row in journal.rows:
            if row.score < 1 and not row.said:
                continue
            said = set(row.said) if row.score < 1 else set[str]()
            could = journal.about(row.problem) | said
            for key in could:
                told = key in row.lines
                self._open[key, told] += 1
                self._said[key, told] += key in said
                for other in said:
                    self._beside[other, key, told] += 1
                    self._together[other, key, told] += key in said
            self._both.update(itertools.permutations(said, 2))
            self._first.update((key, other) for key in said for other in could - row.lines - said)
            if len(said) > 1:
                self._company.update(said)
        for before, new in journal.tries:
            self._then.update(itertools.product(before, new))

    def passed(self, key: str, said: Sequence[str]) -> float:
        """The chance that a grader who said this would have said the statement too, were it broken."""
        beside = [self._named(key, other) for other in said if self._both[key, other] or self._in_company(key)]
        return min(beside) if beside else max(self._before(key, other) for other in said)

    def _in_company(self, key: str) -> bool:
        """Whether a statement is mostly made beside others: then nothing that is missing beside it was hidden by it."""
        return 2 * self._company[key] > self._said[key, False] + self._said[key, True]

    def got_past(self, said: Iterable[str], about: Iterable[str]) -> set[str]:
        """What else is said of a problem, and before this by a grader who stops at the first fault, as far as was seen."""
        found, later = set(said), list(said)
        while later:
            this = later.pop()
            earlier = {
                key
                for key in about
                if not self._both[key, this]
                and not self._in_company(key)
                and self._ahead(key, this) > self._ahead(this, key)
                and key not in found
            }
            found |= earlier
            later += sorted(earlier)
        return found.difference(said)

    def _ahead(self, one: str, other: str) -> int:
        return self._first[one, other] + self._then[one, other]

    def _before(self, one: str, other: str) -> float:
        return self._ahead(one, other) / (self._ahead(one, other) + self._ahead(other, one) + 1.0)

    def _named(self, key: str, other: str) -> float:
        """How often a statement is made beside another, compared with how often it is made without it under texts that say it
        or do not, as these do."""
        both = expected = 0.0
        for told in (False, True):
            together, there = self._together[other, key, told], self._beside[other, key, told]
            without = self._open[key, told] - there
            both += together
            expected += there * (self._said[key, told] - together) / without if without else 0.0
        return min(1.0, (both + BESIDE) / (expected + BESIDE))
