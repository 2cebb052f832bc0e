"""What each line of a text is worth: one Gaussian linear model of all rollouts, solved in closed form.

    score = level of the cycle + ease of the problem
            + for every line of the text: its effect, if the problem is one that it is about, + its side effect on any problem
            + the cost of length + noise

A line's effect is judged on the problems it is about, pooled over every rollout with and without it, whatever else those texts
held. Of a problem about which nothing has been said yet, every line counts by its share: the chance that it is about it. The
ease of the problems is integrated out. Older rows count less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NOISE = 0.2
"""Variance of a score about its expectation; for 0 and 1 it is at most 0.25."""
EASE = 0.03
"""Variance of problems' own ease."""
LEVEL = (0.4, 0.3)
"""Prior mean and deviation of the level of a cycle."""
LENGTH = (-0.02, 0.03)
"""Prior mean and deviation of what `LENGTH_UNIT` further tokens do to the score on every problem."""
LENGTH_UNIT = 100
SIDE_EFFECT = 0.02
"""Prior deviation of what a line does to problems that it is not about."""
HALF_LIFE = 3.0
"""Cycles after which a row counts half: the weights have moved."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Observation:
    """A score, its cycle and problem, and how far each line of the text bears on that problem, from 0 to 1."""

    problem: str
    cycle: int
    score: float
    tokens: int
    bearing: Mapping[str, float]


@dataclass(frozen=True)
class Prior:
    """What is expected of a line's effect on the problems it is about."""

    mean: float
    deviation: float


class Effects:
    """The posterior of all lines: effects, side effects and the cost of length, jointly Gaussian."""

    def __init__(self, rows: Sequence[Observation], priors: Mapping[str, Prior], now: int) -> None:
        self.lines = list(priors)
        self.cycles = sorted({row.cycle for row in rows})
        place = {line: index for index, line in enumerate(self.lines)}
        levels, count = len(self.cycles), len(self.lines)
        self.length, self.first, self.side = levels, levels + 1, levels + 1 + count
        size = levels + 1 + 2 * count
        mean = np.array(
            [LEVEL[0]] * levels + [LENGTH[0]] + [priors[line].mean for line in self.lines] + [0.0] * count
        )
        deviation = np.array(
            [LEVEL[1]] * levels + [LENGTH[1]] + [priors[line].deviation for line in self.lines] + [SIDE_EFFECT] * count
        )
        design = np.zeros((len(rows), size))
        for index, row in enumerate(rows):
            design[index, self.cycles.index(row.cycle)] = 1.0
            design[index, self.length] = row.tokens / LENGTH_UNIT
            for line, bearing in row.bearing.items():
                design[index, self.first + place[line]] = bearing
                design[index, self.side + place[line]] = 1.0
        weight = np.array([0.5 ** ((now - row.cycle) / HALF_LIFE) for row in rows]) / NOISE
        problems = {name: index for index, name in enumerate(dict.fromkeys(row.problem for row in rows))}
        group = np.array([problems[row.problem] for row in rows], dtype=int)
        score = np.array([row.score for row in rows]) - design @ mean
        # With the ease integrated out, the precision of a problem's rows is W - W 1 1' W / (1 / EASE + 1' W 1).
        per_problem = np.zeros((len(problems), size))
        np.add.at(per_problem, group, design * weight[:, None])
        told = np.bincount(group, weight * score, len(problems))
        shrink = 1 / (1 / EASE + np.bincount(group, weight, len(problems)))
        precision = np.diag(deviation**-2.0) + design.T @ (design * weight[:, None])
        precision -= per_problem.T @ (per_problem * shrink[:, None])
        pull = design.T @ (weight * score) - per_problem.T @ (shrink * told)
        self.covariance: Array = np.linalg.inv(precision)
        self.mean: Array = mean + self.covariance @ pull

    def sample(self, chance: np.random.Generator) -> Array:
        """One draw from the posterior."""
        return self.mean + np.linalg.cholesky(self.covariance) @ chance.standard_normal(len(self.mean))

    def worth(self, values: Array, shares: Mapping[str, float], tokens: Mapping[str, int]) -> dict[str, float]:
        """What each line adds to the mean score on new problems, its length included, if the unknowns have these values."""
        effect, side = values[self.first : self.side], values[self.side :]
        cost = values[self.length] / LENGTH_UNIT
        return {
            line: float(shares[line] * effect[index] + side[index] + cost * tokens[line])
            for index, line in enumerate(self.lines)
        }

    def gain(self, lines: Mapping[str, float], tokens: int) -> tuple[float, float]:
        """Mean and deviation of what a text with these lines, given by their shares, adds to the base text's score."""
        contrast = np.zeros(len(self.mean))
        contrast[self.length] = tokens / LENGTH_UNIT
        for line, share in lines.items():
            index = self.lines.index(line)
            contrast[self.first + index], contrast[self.side + index] = share, 1.0
        return float(contrast @ self.mean), float(np.sqrt(contrast @ self.covariance @ contrast))

    def effect(self, line: str) -> tuple[float, float]:
        """Mean and deviation of a line's effect on the problems it is about."""
        index = self.first + self.lines.index(line)
        return float(self.mean[index]), float(np.sqrt(self.covariance[index, index]))

    def level(self, cycle: int) -> float:
        """The expected score of the base text in a cycle."""
        return float(self.mean[self.cycles.index(cycle)]) if cycle in self.cycles else LEVEL[0]
