"""What each line of a text is worth: one Gaussian linear model of all rollouts, solved in closed form.

    score = level of the cycle + ease of the problem
            + the effects of the text's lines that were said of the problem
            + the mean effect on related problems of its other lines of the problem's topic
            + the side effects of all its lines + the cost of its length + noise

A line's effect is judged on the problems it is about, pooled over every rollout with and without it, whatever else those
texts held. On related problems it is the mean that counts, because a rule that is said twice helps once. The effects of lines
are drawn towards their common mean, which is learnt. The ease of the problems is integrated out. Older rows count less.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
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


class Effects:
    """The posterior of all lines: effects, side effects and the cost of length, jointly Gaussian.

    The unknowns are, in this order: the level of the first cycle and its moves; the cost of length; the common mean effect;
    and, line by line, what its effect on its own problems, on related ones and on all departs by from what is expected.
    """

    def __init__(self, seen: Observations, truth: Array, now: int) -> None:
        """`truth` has the probability, line by line, that it is true."""
        self.truth = truth
        self.cycles = sorted(set(seen.cycles.tolist())) or [now]
        levels, count = len(self.cycles), len(truth)
        self.length, self.common = levels, levels + 1
        self.own, self.related, self.side = (levels + 2 + part * count for part in range(3))
        moves = [MOVE * np.sqrt(later - earlier) for earlier, later in itertools.pairwise(self.cycles)]
        mean = np.zeros(levels + 2 + 3 * count)
        mean[[0, self.length, self.common]] = LEVEL[0], LENGTH[0], TRUE_EFFECT[0]
        mean[self.own : self.related] = mean[self.related : self.side] = (1 - truth) * FALSE_EFFECT
        deviation = np.array(
            [LEVEL[1], *moves, LENGTH[1], TRUE_EFFECT[1]] + [DEVIATION] * (2 * count) + [SIDE_EFFECT] * count
        )
        design = np.zeros((len(seen.scores), len(mean)))
        for index, cycle in enumerate(self.cycles):
            design[:, index] = seen.cycles >= cycle  # each level is the one before and a move
        design[:, self.length] = seen.tokens / LENGTH_UNIT
        design[:, self.common] = _common(seen.own, seen.related, truth)
        design[:, self.own :] = np.hstack([seen.own, seen.related, seen.present])
        age = 0.5 ** ((now - seen.cycles) / HALF_LIFE)
        self.noise = NOISE
        for _ in range(2):
            left = seen.scores - design @ mean
            self.covariance, pull = _with_ease(design, left, age / (DOUBT * self.noise), seen.problems, deviation)
            self.mean = mean + self.covariance @ pull
            # Where a text decides between never and always, few rows say much: the noise is estimated, and all solved again.
            squares = age @ (seen.scores - design @ self.mean) ** 2
            self.noise = float((NOISE_WEIGHT * NOISE + squares) / (NOISE_WEIGHT + age.sum()))
        self._root = np.linalg.cholesky(self.covariance)

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
        )

    def contrast(self, present: Array, own: Array, related: Array, weight: Array, tokens: float) -> Array:
        """What the unknowns are multiplied by in a text's mean score over problems of these weights, but for the level, given
        how far its lines bear on each (rows by problem)."""
        common = float(weight @ _common(own, related, self.truth))
        levels = np.zeros(len(self.cycles))
        return np.concatenate(
            [levels, [tokens / LENGTH_UNIT, common], weight @ own, weight @ related, present * weight.sum()]
        )

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


def choose(
    parts: Parts,
    own: Array,
    related: Array,
    weight: Array,
    tokens: Array,
    room: Array,
    component: Sequence[int],
    bonus: Array,
) -> list[int]:
    """Which lines a text should have: line by line the one that adds most for its length, until none adds anything. What a
    line adds beyond the problems it was said of depends on the lines that are there: of several rules of one topic, or of
    several wordings of one rule, one is enough for a problem.

    `own` and `related` say, by problem and line, how far the line bears on the problem; `weight` is
    what each problem counts, `tokens` how long each line is, `room` how many tokens each component has left, and `bonus` what
    a line is worth beside its effects."""
    places = np.array(component, dtype=int)
    left = room.astype(float).copy()
    fixed = parts.side + parts.token * tokens + bonus
    count_own, sum_own = np.zeros(len(weight)), np.zeros(len(weight))
    count_rel, sum_rel, sum_alone = np.zeros(len(weight)), np.zeros(len(weight)), np.zeros(len(weight))
    rows_own, rows_rel, rows_alone = own * parts.own, related * parts.related, related * parts.alone
    now = np.zeros(len(weight))
    taken: list[int] = []
    open_lines = np.ones(len(tokens), dtype=bool)
    while True:
        open_lines &= tokens <= left[places] if len(places) else open_lines
        lines = np.flatnonzero(open_lines)
        if not len(lines):
            return taken
        after = _text_effect(
            count_own[:, None] + own[:, lines],
            sum_own[:, None] + rows_own[:, lines],
            count_rel[:, None] + related[:, lines],
            sum_rel[:, None] + rows_rel[:, lines],
            sum_alone[:, None] + rows_alone[:, lines],
        )
        adds = weight @ (after - now[:, None]) + fixed[lines]
        best = int(np.argmax(adds / tokens[lines]))
        if adds[best] <= 0:
            return taken
        line = int(lines[best])
        taken.append(line)
        open_lines[line] = False
        left[places[line]] -= tokens[line]
        count_own, sum_own = count_own + own[:, line], sum_own + rows_own[:, line]
        count_rel, sum_rel = count_rel + related[:, line], sum_rel + rows_rel[:, line]
        sum_alone, now = sum_alone + rows_alone[:, line], after[:, best]


def _text_effect(count_own: Array, sum_own: Array, count_rel: Array, sum_rel: Array, sum_alone: Array) -> Array:
    """A text's effect on problems, from how many of its lines bear on them and the sums of their effects."""
    share_rel = 1 / np.maximum(1.0, count_rel)
    missing = np.maximum(0.0, 1 - count_own)
    return sum_own + share_rel * (sum_rel + missing * sum_alone)
