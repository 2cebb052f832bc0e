"""From the journal to a decision: which lines there are, what each is worth, and the text to write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fastslow.fast.digest.choice import PARTLY, Bearing, choose
from fastslow.fast.digest.effects import (
    DEVIATION,
    LENGTH,
    LENGTH_UNIT,
    RELATED,
    TRUE_EFFECT,
    Array,
    Effects,
    Observations,
)
from fastslow.fast.digest.journal import Journal, component_of, key_of
from fastslow.fast.digest.support import SCARCE, problem_weights, support
from fastslow.fast.digest.words import Chances, Order, Words
from fastslow.fast.digest.writing import Line, Writer

MOST_LINES = 80
"""Lines that are judged together; with more, those that reach furthest."""

NOTHING = 0.02
"""A score that is not worth keeping a text for."""

SEEN_WITHOUT = 40
"""Rollouts under texts without a line from which it is known what it does."""

CHECKED = 0.25
"""The share of a text's lines that one of the texts to compare is without, while nothing scores."""

PARTIAL = 0.1
"""Share of the scores between 0 and 1 from which answers are taken to be graded by their parts."""

KEPT_MOSTLY, SEEN_TWICE = 0.5, 2.0
"""The chance from which a statement counts as kept, and the answers from which that is known."""

HEEDED, TRIED = 0.4, 8.0
"""The chance of being kept below which a line is not understood or not followed, and the answers from which that is known."""

NEVER = 1e9
"""What is taken from the worth of a line that must not be chosen."""

KEPT = 0.01
"""What a line of the base text is worth because somebody wrote it there: it goes only if it clearly does harm."""


@dataclass(frozen=True)
class Choice:
    """A text as the set of lines it takes."""

    taken: frozenset[str]
    gain: float
    """Expected gain over the base text on new problems."""
    deviation: float


class Model:
    """What is known at one moment."""

    def __init__(self, journal: Journal, writer: Writer, now: int) -> None:
        self.journal, self.writer = journal, writer
        self.order = Order(journal)
        self.silent, self.scarce = journal.score <= NOTHING, journal.score <= SCARCE
        partial = sum(0 < row.score < 1 for row in journal.rows)
        self._partial = partial > PARTIAL * len(journal.rows)
        self.support = support(journal, self.order, now)
        self.lines = self._lines()
        self.place = {line.key: index for index, line in enumerate(self.lines)}
        supports = [self.support[line.key] for line in self.lines]
        self.shares = np.array([each.share for each in supports])
        self.tokens = np.array([float(line.tokens) for line in self.lines])
        self._reach = np.array([self._shown(line) for line in self.lines])
        self.problems = {name: index for index, name in enumerate(journal.words)}
        self._in_topic = np.zeros((len(self.problems), len(self.lines)))
        for index, each in enumerate(supports):
            for name in each.related | each.own if each.has_topic else ():
                self._in_topic[self.problems[name], index] = 1.0
        self._has_topic = np.array([float(each.has_topic) for each in supports])
        self._direct = np.array([each.direct for each in supports])
        truth = np.array([each.truth for each in supports])
        self.words = Words(journal, {line.key: self._says(line.key) for line in self.lines}, truth, self.order, now)
        self._seen = self._lines_of_rows()
        self._breaks = self.words.broken_by(journal, self._seen, now, within=bool(writer.lists))
        self._weigh_problems(problem_weights(journal, now), np.array([each.returns for each in supports]))
        self._right = np.array([float(line.key in journal.right) for line in self.lines])
        self.effects = Effects(self._observations(), truth, now, self._right)
        self.best = self.choice(self.effects.mean, self.words.mean)

    def _says(self, key: str) -> frozenset[str]:
        """The statements that a line says."""
        return self.journal.statements[key].covers | {key}

    def _shown(self, line: Line) -> float:
        """The share of the problems whose question is shown a line: an entry of a list only those of its topic."""
        found = self.support[line.key]
        return len(found.own | found.related) / max(1, len(self.journal.words)) if line.entry else 1.0

    def _weigh_problems(self, weights: Mapping[str, float], returns: Array) -> None:
        """The problems that stand for new ones: what each counts, and how far lines bear on it. A statement that may never be
        made again bears the less on the one problem that it was made of."""
        self._weight = np.array([*weights.values()]) / (sum(weights.values()) or 1.0)
        said = self._said([self.journal.about(problem) for problem in weights])
        places = [self.problems[problem] for problem in weights]
        self._said_of = said * returns
        about = self.words.about([self.journal.about(problem) for problem in weights])
        about = self.words.follows(self.journal, about, list(weights))
        self._bearing_on = Bearing(
            self._weight,
            self._said_of * self._gate(np.ones((len(weights), len(self.lines))), about),
            self._in_topic[places] * (1 - said),
            about,
        )
        names = list(self.writer.heads)
        self._component = [names.index(component_of(line.key)) for line in self.lines]
        self._bonus = np.array([KEPT if line.key in self.writer.loose else 0.0 for line in self.lines])
        self._room = np.array([float(self.writer.room()[name]) for name in names])

    def choice(self, values: Array, chances: Chances) -> Choice:
        """The best text if the unknowns have these values. What showing right answers does to all problems is no single
        line's: the best text with some is compared with the best without any."""
        parts = self.effects.parts(values)
        if self.silent:  # there is no score that length could cost
            parts = replace(parts, token=0.0)

        def best(bonus: Array) -> Array:
            taken = choose(
                *(parts, chances, self._bearing_on),
                tokens=self.tokens,
                reach=self._reach,
                room=self._room,
                component=self._component,
                bonus=bonus,
            )
            return self._present(frozenset(self.lines[index].key for index in taken))

        bonus = self._bonus - self._breaks * (parts.words + PARTLY)
        present = best(bonus)
        if present @ self._right:
            without = best(bonus - NEVER * self._right)
            known = values.copy()
            known[[self.effects.length, self.effects.words]] = parts.token * LENGTH_UNIT, parts.words
            if (self._contrast(present) - self._contrast(without)) @ known + (present - without) @ bonus < 0:
                present = without
        return self.judged(frozenset(self.lines[index].key for index in np.flatnonzero(present)))

    def judged(self, taken: frozenset[str], beside: frozenset[str] | None = None) -> Choice:
        """A text with what is expected of it beside another, the base text if none is named."""
        other = self._present(self.base if beside is None else beside)
        return Choice(taken, *self.effects.judge(self._contrast(self._present(taken)) - self._contrast(other)))

    def _contrast(self, present: Array) -> Array:
        on = self._bearing_on
        own = present * self._said_of * self._gate(np.broadcast_to(present, on.own.shape), on.about)
        related = divided(present * on.related)
        passed = float(on.weight @ self.words.passed(present[None], on.about))
        return self.effects.contrast(present, own, related, on.weight, self._longer(present), passed)

    def _longer(self, present: Array) -> float:
        """By how many tokens a text with these lines is longer than the base text, as far as it is shown."""
        return float(present @ (self.tokens * self._reach)) - sum(map(self.writer.tokens, self.writer.loose.values()))

    @property
    def base(self) -> frozenset[str]:
        """The lines of the base text, but for its first."""
        return frozenset(self.writer.loose.keys() & self.place.keys())

    def sampled(self, chance: np.random.Generator) -> Choice:
        """The best text by one draw from the posterior: doubtful lines come and go, sure ones stay."""
        return self.choice(self.effects.sample(chance), self.words.sample(chance))

    def checked(self, chance: np.random.Generator) -> Choice:
        """The best text without half of those lines of the base text that hardly any rollout was drawn without; while nothing
        scores, without a quarter of all, those that other lines were seldom played without."""
        if self.silent:
            added = [index for key, index in self.place.items() if key not in self.base]
            beside = self._seen[self._seen[:, added].any(axis=1)]
            without = len(beside) - beside.sum(axis=0)
            order = sorted(sorted(self.best.taken), key=lambda key: (without[self.place[key]], chance.random()))
            return self.judged(self.best.taken - set(order[: math.ceil(CHECKED * len(order))]))
        without = len(self.journal.rows) - self._seen.sum(axis=0)
        doubtful = [key for key in sorted(self.base & self.best.taken) if without[self.place[key]] < SEEN_WITHOUT]
        return self.judged(self.best.taken - {key for key in doubtful if chance.random() < 0.5})

    def level(self) -> float:
        """The score to be expected of the base text."""
        return max(0.0, self.effects.expected(self._contrast(self._present(self.base))))

    def texts(self, choice: Choice) -> dict[str, str]:
        return self.writer.write(self.lines, choice.taken)

    def effect(self, key: str) -> tuple[float, float]:
        """Mean and deviation of a line's effect on the problems it was said of."""
        return self.effects.effect(self.place[key])

    def kept(self, key: str) -> tuple[float, float] | None:
        """The chance that an answer keeps what a line says, where the text has it and where no line says it; None for a line
        that the grader has not said."""
        place = self.words.place.get(key)
        if place is None:
            return None
        return float(self.words.mean.told[self.place[key], place]), float(self.words.mean.untold[place])

    def complaints(self) -> tuple[int, int]:
        """Of the statements about several problems, those that answers are seen to keep mostly where a text says them; and
        all of them."""
        made = [key for key in self.words.place if len(self.journal.statements[key].problems) > 1]
        heeded = [self.words.heeded(key) for key in made]
        return sum(kept >= KEPT_MOSTLY and tried >= SEEN_TWICE for kept, tried in heeded), len(made)

    def wanting(self, problem: str, every: bool) -> float:
        """How much was said of a problem that answers seldom keep although a text says it, by how often it is said; with
        `every` all that is not always kept, unless the problem is mostly passed."""
        heeded = {key: self.words.heeded(key) for key in sorted(self.journal.about(problem) & self.words.place.keys())}
        every = every and math.prod(kept for kept, _ in heeded.values()) < KEPT_MOSTLY
        # Where few answers score, those to all statements tell that lines are not followed.
        enough = 0.0 if self.scarce and self.words.tried >= TRIED else TRIED
        return sum(
            len(self.journal.statements[key].problems) * (1 - kept)
            for key, (kept, tried) in heeded.items()
            if tried >= enough and (every or kept < HEEDED)
        )

    def reached(self, problem: str, said: Sequence[str]) -> float:
        """Of what is known to be said of a problem, how much an answer kept of which this was said."""
        if not said:
            return 0.0
        about = self.journal.about(problem)
        past = self.order.got_past(said, about)
        return sum(1.0 if key in past else self.order.passed(key, said) for key in sorted(about - set(said)))

    def expected(self, choice: Choice, problems: Sequence[str]) -> list[float]:
        """The scores to be expected of a text on these problems."""
        known = [self.journal.about(problem) for problem in problems]
        present = np.tile(self._present(choice.taken), (len(known), 1))
        in_topic = np.array(
            [
                self._in_topic[self.problems[each]] if each in self.problems else np.zeros(len(self.lines))
                for each in problems
            ]
        ).reshape(present.shape)
        own, related = self._bearing(present, known, in_topic)
        passed, longer = self._passed(present, known), self._longer(present[0]) if len(present) else 0.0
        return [
            min(1.0, max(0.0, self.effects.expected(self.effects.contrast(*row, np.ones(1), longer, float(far)))))
            for row, far in zip(zip(present, own[:, None], related[:, None], strict=True), passed, strict=True)
        ]

    def _gate(self, present: Array, about: Array) -> Array:
        """How far a line's effect can show, by row and line: where only a wholly right answer scores, as far as all else that
        was said of the problem is kept."""
        if self._partial:
            return np.ones((len(about), len(self.lines)))
        return self.words.otherwise_passed(present, about)

    def _passed(self, present: Array, known: Sequence[frozenset[str]]) -> Array:
        """How far texts get on problems by the grader's words; where nothing was said of a problem, as on all others."""
        passed = self.words.passed(present, self.words.about(known))
        usual: dict[bytes, float] = {}
        for index, keys in enumerate(known):
            if not keys:
                text = present[index].tobytes()
                if text not in usual:
                    on = self._bearing_on
                    usual[text] = float(on.weight @ self.words.passed(present[[index]], on.about))
                passed[index] = usual[text]
        return passed

    def _present(self, taken: frozenset[str]) -> Array:
        present = np.zeros(len(self.lines))
        present[[self.place[key] for key in taken]] = 1.0
        return present

    def _lines(self) -> list[Line]:
        """The statements that may become lines, those that reach furthest, in the order in which they were first made: all
        that were tried, and those that would be worth their length if they helped as much as may be hoped."""
        tried = {key for row in self.journal.rows for key in row.lines} | self.writer.loose.keys()
        heads = {key_of(name, head) for name, head in self.writer.heads.items()}
        reach = {
            key: each.truth * (each.share + RELATED * each.related_share) + (key in tried)
            for key, each in self.support.items()
            if component_of(key) in self.writer.heads and key not in heads
        }
        cost = -LENGTH[0] / LENGTH_UNIT
        hope = TRUE_EFFECT[0] + DEVIATION
        lines = [
            Line(key, each.text, self.writer.tokens(each.text), self.writer.is_entry(key, self.support[key].has_topic))
            for key, each in self.journal.statements.items()
            if key in reach
        ]
        lines = [
            line
            for line in lines
            if line.tokens <= self.writer.max_tokens and hope * reach[line.key] > cost * line.tokens * self._shown(line)
        ]
        kept = {line.key for line in sorted(lines, key=lambda line: -reach[line.key])[:MOST_LINES]}
        return [line for line in lines if line.key in kept]

    def _lines_of_rows(self) -> Array:
        """1 where the text of a row has a line."""
        present = np.zeros((len(self.journal.rows), len(self.lines)))
        for index, row in enumerate(self.journal.rows):
            present[index, [self.place[key] for key in row.lines & self.place.keys()]] = 1.0
        return present

    def _observations(self) -> Observations:
        rows, known = self.journal.rows, self.journal.known
        present = self._seen
        problems = np.array([self.problems[row.problem] for row in rows], dtype=np.int64)
        own, related = self._bearing(present, known, self._in_topic[problems])
        return Observations(
            np.array([row.score for row in rows]),
            np.array([row.cycle for row in rows], dtype=np.int64),
            problems,
            np.array([float(row.tokens) for row in rows]),
            present,
            own,
            related,
            self._passed(present, known),
        )

    def _said(self, known: Sequence[frozenset[str]]) -> Array:
        """1 where a line, or a statement that it stands for, was made of the problem before."""
        columns: dict[str, list[int]] = {}
        for line in self.lines:
            for key in {line.key} | self.journal.statements[line.key].covers:
                columns.setdefault(key, []).append(self.place[line.key])
        said = np.zeros((len(known), len(self.lines)))
        for index, keys in enumerate(known):
            for key in keys & columns.keys():
                said[index, columns[key]] = 1.0
        return said

    def _bearing(self, present: Array, known: Sequence[frozenset[str]], in_topic: Array) -> tuple[Array, Array]:
        """How far lines bear on problems of which this is known, as their own and as related ones. Of a problem about which
        nothing was said yet a line bears by the chance that it will be said of it."""
        said, told = self._said(known), np.array([bool(keys) for keys in known])[:, None]
        likely = np.where(self._has_topic > 0, in_topic * self._direct, self.shares)
        own = np.where(told, said, likely) * self._gate(present, self.words.about(known))
        related = in_topic * np.where(told, 1 - said, 1 - self._direct)
        return present * own, divided(present * related)


def divided(bearing: Array) -> Array:
    """The part that each line has in the effect of all that bear on a problem."""
    return bearing / np.maximum(1.0, bearing.sum(axis=1, keepdims=True))
