"""From the journal to a decision: which lines there are, what each is worth, and the text to write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fastslow.fast.digest.effects import Effects, Observation, Prior
from fastslow.fast.digest.journal import Journal, component_of
from fastslow.fast.digest.support import Support, support
from fastslow.fast.digest.writing import Line, Writer

TRUE_EFFECT, FALSE_EFFECT, DEVIATION = 0.25, -0.1, 0.25
"""Prior means of the effect of a statement that is true and of one that is a slip, and the deviation of either."""
MOST_LINES = 120
"""Lines that are judged together; with more, those that reach furthest."""


@dataclass(frozen=True)
class Choice:
    """A text as the set of lines it takes."""

    taken: frozenset[str]
    gain: float
    """Expected gain over the base text on new problems."""
    deviation: float


class Model:
    """What is known at one moment."""

    def __init__(self, journal: Journal, writer: Writer, now: int, banned: Iterable[str] = ()) -> None:
        self.journal, self.writer = journal, writer
        self.support = support(journal, now)
        self.lines = self._lines(frozenset(banned))
        self.by_key = {line.key: line for line in self.lines}
        self.shares = {line.key: self.support[line.key].share for line in self.lines}
        self.tokens = {line.key: line.tokens for line in self.lines}
        priors = {line.key: _prior(self.support[line.key]) for line in self.lines}
        self.effects = Effects([*self._observations()], priors, now)
        self.best = self.choice(self.effects.mean)

    def choice(self, values: np.ndarray) -> Choice:
        """The best text if the unknowns have these values."""
        return self.judged(self.writer.choose(self.lines, self.effects.worth(values, self.shares, self.tokens)))

    def judged(self, taken: frozenset[str]) -> Choice:
        """A text with what is expected of it."""
        taken = frozenset(taken & self.by_key.keys())
        gain = self.effects.gain({key: self.shares[key] for key in taken}, sum(self.tokens[key] for key in taken))
        return Choice(taken, *gain)

    def sampled(self, chance: np.random.Generator) -> Choice:
        """The best text by one draw from the posterior: doubtful lines come and go, sure ones stay."""
        return self.choice(self.effects.sample(chance))

    def texts(self, choice: Choice) -> dict[str, str]:
        return self.writer.write(self.lines, choice.taken)

    def expected(self, choice: Choice, problem: str, now: int) -> float:
        """The score to be expected of a text on one problem."""
        level, known = self.effects.level(now), self.journal.about(problem)
        added = sum(self.effects.effect(key)[0] * self._bearing(key, known) for key in choice.taken)
        return min(1.0, max(0.0, level + added))

    def _lines(self, banned: frozenset[str]) -> list[Line]:
        """The statements that may become lines, those that reach furthest, in the order in which they were first made."""
        tried = Counter(key for row in self.journal.rows for key in row.lines)
        ranked = sorted(
            (key for key in self.journal.statements if component_of(key) in self.writer.base and key not in banned),
            key=lambda key: (-self.support[key].share * self.support[key].truth, -tried[key]),
        )
        kept = set(ranked[:MOST_LINES])
        return [
            Line(key, each.text, self.writer.tokens(each.text))
            for key, each in self.journal.statements.items()
            if key in kept and self.writer.tokens(each.text) <= self.writer.max_tokens
        ]

    def _observations(self) -> Iterable[Observation]:
        for row, known in zip(self.journal.rows, self.journal.known, strict=True):
            present = row.lines & self.by_key.keys()
            bearing = {key: self._bearing(key, known) for key in present}
            yield Observation(row.problem, row.cycle, row.score, row.tokens, bearing)

    def _bearing(self, key: str, known: frozenset[str]) -> float:
        if not known:
            return self.shares[key]
        return float(key in known or not known.isdisjoint(self.journal.statements[key].covers))


def _prior(said: Support) -> Prior:
    return Prior(said.truth * TRUE_EFFECT + (1 - said.truth) * FALSE_EFFECT, DEVIATION)
