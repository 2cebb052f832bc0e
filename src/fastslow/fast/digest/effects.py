"""What each line of a text is worth: one Gaussian linear model of all rollouts, solved in closed form.

    score = level of the cycle + ease of the problem
            + the effects of the text's lines that were said of the problem
            + the mean effect on related problems of its other lines of the problem's topic
            + how far the text gets by the grader's words (`words.py`)
            + what showing right answers does to all problems
            + the side effects of all its lines + the cost of its length + noise

A line's effect is judged on the problems it is about, pooled over every rollout with and without it, whatever else those
texts held. On related problems it is the mean that counts, because a rule that is said twice helps once. The effects of lines
are drawn towards their common mean, which is learnt. The ease of the problems is integrated out. Older rows count less.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NOISE = 0.2
"""What the variance of a score about its expectation is taken to be; for 0 and 1 it is at most 0.25."""
NOISE_WEIGHT = 50.0
"""Rows that this counts for beside those from which it is estimated."""
DOUBT = 2.0
"""The variance is multiplied by this, because the model is not exact: which problems a line is about is partly a guess."""
EASE = 0.03
"""Variance of problems' own ease."""
LEVEL = (0.4, 0.3)
"""Prior mean and deviation of the level of the first cycle."""
MOVE = 0.05
"""Prior deviation of what the level changes by from one cycle to the next."""
LENGTH = (-0.02, 0.03)
"""Prior mean and deviation of what `LENGTH_UNIT` further tokens do to the score on every problem."""
LENGTH_UNIT = 100
WORDS = (0.2, 0.2)
"""Prior mean and deviation of what it is worth to keep all that was said of a problem."""
LEAST_WORDS = 0.1
"""What it is worth at the least; scores that say less are put down to the lines."""
SHOWING = 0.1
"""Prior deviation of what it does to every problem that a text shows right answers: they may be copied, or give the form."""
TRUE_EFFECT = (0.25, 0.15)
"""Prior mean and deviation of the common mean of the effects of true lines."""
FALSE_EFFECT = -0.3
"""The effect to be expected of a line that is false."""
DEVIATION = 0.2
"""Prior deviation of a line's effect about what is expected of it."""
RELATED = 0.5
"""What is expected of a line on other problems of its topic, as a part of what is expected on its own."""
SIDE_EFFECT = 0.02
"""Prior deviation of what a line does to problems of other topics."""
LARGE_SIDE_EFFECT = 0.2
"""That of the few lines that harm or help everywhere."""
RARE = 0.2
"""How many lines are such, beside each that is not."""
MOST_EXCEPTIONS = 6
CLEAR = 2.0
"""Deviations by which a side effect must differ from nothing to count."""
HALF_LIFE = 3.0
"""Cycles after which a row counts half: the weights have moved."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Observations:
    """Scores, and how far each line of the texts bears on the problems: rows by rollout, columns by line."""

    scores: Array
    cycles: NDArray[np.int64]
    problems: NDArray[np.int64]
    """Their numbers, from 0."""
    tokens: Array
    present: Array
    """1 where the text has the line."""
    own: Array
    """How far the problem is one of the line's own, if the text has the line."""
    related: Array
    """What part the line has in the text's effect on related problems; at most 1 over all lines."""
    passed: Array
    """How far the text gets on the problem, by the grader's words."""


@dataclass(frozen=True)
class Parts:
    """What each line does."""

    own: Array
    """On the problems it was said of."""
    related: Array
    """On related problems, beside lines that were said of them."""
    alone: Array
    """What is added on related problems where no line of the text was said of them."""
    side: Array
    """On all problems."""
    token: float
    """What one more token does on all problems."""
    words: float
    """What it is worth to keep all that was said of a problem."""


class Effects:
    """The posterior of all lines: effects, side effects and the cost of length, jointly Gaussian.

    The unknowns are, in this order: the level of the first cycle and its moves; the cost of length; the common mean effect;
    what it is worth to keep what was said, and to show right answers; and, line by line, what its effect on its own problems,
    on related ones and on all departs by from what is expected.
    """

    def __init__(self, seen: Observations, truth: Array, now: int, right: Array | None = None) -> None:
        """`truth` has the probability, line by line, that it is true; `right` 1 for those that show a right answer."""
        self.truth, self.right = truth, np.zeros(len(truth)) if right is None else right
        self.cycles = sorted(set(seen.cycles.tolist())) or [now]
        levels, count = len(self.cycles), len(truth)
        self.length, self.common, self.words, self.showing = range(levels, levels + 4)
        self.own, self.related, self.side = (levels + 4 + part * count for part in range(3))
        moves = [MOVE * np.sqrt(later - earlier) for earlier, later in itertools.pairwise(self.cycles)]
        mean = np.zeros(levels + 4 + 3 * count)
        mean[[0, self.length, self.common, self.words]] = LEVEL[0], LENGTH[0], TRUE_EFFECT[0], WORDS[0]
        mean[self.own : self.related] = mean[self.related : self.side] = (1 - truth) * FALSE_EFFECT
        deviation = np.array(
            [LEVEL[1], *moves, LENGTH[1], TRUE_EFFECT[1], WORDS[1], SHOWING]
            + [DEVIATION] * (2 * count)
            + [SIDE_EFFECT] * count
        )
        design = np.zeros((len(seen.scores), len(mean)))
        for index, cycle in enumerate(self.cycles):
            design[:, index] = seen.cycles >= cycle  # each level is the one before and a move
        design[:, self.length] = seen.tokens / LENGTH_UNIT
        design[:, self.common] = _common(seen.own, seen.related, truth)
        design[:, self.words] = seen.passed
        design[:, self.showing] = seen.present @ self.right > 0
        design[:, self.own :] = np.hstack([seen.own, seen.related, seen.present])
        age = 0.5 ** ((now - seen.cycles) / HALF_LIFE)
        self.noise = NOISE
        self.mean: Array
        self.covariance: Array
        self._solve(design, seen, mean, deviation, age)
        # Where a text decides between never and always, few rows say much: the noise is estimated, and all solved again.
        squares = age @ (seen.scores - design @ self.mean) ** 2
        self.noise = float((NOISE_WEIGHT * NOISE + squares) / (NOISE_WEIGHT + age.sum()))
        self._solve(design, seen, mean, deviation, age)
        for _ in range(MOST_EXCEPTIONS):
            line = self._exception(deviation)
            if line is None:
                break
            deviation[self.side + line] = LARGE_SIDE_EFFECT
            self._solve(design, seen, mean, deviation, age)
        if self.mean[self.words] < LEAST_WORDS:
            column = self.covariance[:, self.words] / self.covariance[self.words, self.words]
            self.mean = self.mean + column * (LEAST_WORDS - self.mean[self.words])
        self._root = np.linalg.cholesky(self.covariance)

    def _solve(self, design: Array, seen: Observations, mean: Array, deviation: Array, age: Array) -> None:
        left = seen.scores - design @ mean
        self.covariance, pull = _with_ease(design, left, age / (DOUBT * self.noise), seen.problems, deviation)
        self.mean = mean + self.covariance @ pull

    def _exception(self, deviation: Array) -> int | None:
        """The line whose side effect is most surely a large one: what the rows say of it, without its prior, is likelier
        under the wide prior than under the narrow one by more than such lines are rare."""
        prior = deviation[self.side :] ** 2
        variance = np.diag(self.covariance)[self.side :]
        precision = np.maximum(1e-9, 1 / variance - 1 / prior)
        found, spread = self.mean[self.side :] / variance / precision, 1 / precision
        odds = math.log(RARE) + _log_density(found, spread + LARGE_SIDE_EFFECT**2) - _log_density(found, spread + prior)
        odds[prior > SIDE_EFFECT**2 * 1.01] = -np.inf
        best = int(np.argmax(odds)) if len(odds) else 0
        return best if len(odds) and odds[best] > 0 else None

    def sample(self, chance: np.random.Generator) -> Array:
        """One draw from the posterior."""
        return self.mean + self._root @ chance.standard_normal(len(self.mean))

    def parts(self, values: Array) -> Parts:
        """What lines do if the unknowns have these values."""
        # A side effect counts as far as it is clear. There are as many as lines, and the luckiest few would decide.
        mean, deviation = self.mean[self.side :], np.sqrt(np.diag(self.covariance)[self.side :])
        side = np.sign(mean) * np.maximum(0.0, np.abs(mean) - CLEAR * deviation)
        expected = self.truth * values[self.common]
        return Parts(
            expected + values[self.own : self.related],
            values[self.related : self.side],
            RELATED * expected,
            side,
            float(values[self.length] / LENGTH_UNIT),
            max(LEAST_WORDS, float(values[self.words])),
        )

    def contrast(
        self, present: Array, own: Array, related: Array, weight: Array, tokens: float, passed: float
    ) -> Array:
        """What the unknowns are multiplied by in a text's mean score over problems of these weights, but for the level, given
        how far its lines bear on each (rows by problem)."""
        common, all_of = float(weight @ _common(own, related, self.truth)), weight.sum()
        shared = [tokens / LENGTH_UNIT, common, passed, all_of * (present @ self.right > 0)]
        return np.concatenate([np.zeros(len(self.cycles)), shared, weight @ own, weight @ related, present * all_of])

    def judge(self, contrast: Array) -> tuple[float, float]:
        """Mean and deviation of the sum of the unknowns, each times its number in the contrast."""
        variance = float(contrast @ self.covariance @ contrast)
        return float(contrast @ self.mean), math.sqrt(max(0.0, variance))

    def effect(self, line: int) -> tuple[float, float]:
        """Mean and deviation of a line's effect on the problems it was said of."""
        contrast = np.zeros(len(self.mean))
        contrast[self.common], contrast[self.own + line] = self.truth[line], 1.0
        return self.judge(contrast)

    def expected(self, contrast: Array) -> float:
        """The score that a text of this contrast is expected to reach now."""
        return float(contrast @ self.mean + self.mean[: len(self.cycles)].sum())


def _common(own: Array, related: Array, truth: Array) -> Array:
    """What the common mean effect is multiplied by: related lines count where none was said of the problem."""
    missing = np.maximum(0.0, 1 - own.sum(axis=1))
    return own @ truth + RELATED * missing * (related @ truth)


def _log_density(value: Array, variance: Array) -> Array:
    return np.asarray(-0.5 * (np.log(variance) + value**2 / variance))


def _with_ease(
    design: Array, scores: Array, weight: Array, problems: NDArray[np.int64], deviation: Array
) -> tuple[Array, Array]:
    """The posterior's covariance and precision-weighted mean, with the ease of the problems integrated out: the precision of
    a problem's rows is then W - W 1 1' W / (1 / EASE + 1' W 1)."""
    count = int(problems.max()) + 1 if len(problems) else 0
    weighted = design * weight[:, None]
    together = np.zeros((count, design.shape[1]))
    np.add.at(together, problems, weighted)
    shrink = 1 / (1 / EASE + np.bincount(problems, weight, count))
    precision = np.diag(deviation**-2.0) + design.T @ weighted - together.T @ (together * shrink[:, None])
    pull = weighted.T @ scores - together.T @ (shrink * np.bincount(problems, weight * scores, count))
    return np.asarray(np.linalg.inv(precision), dtype=np.float64), pull
