"""Intervals of means of scores in [0, 1], and of the difference of two."""

from __future__ import annotations

import math

Z95, Z99 = 1.959964, 2.575829


def interval(mean: float, problems: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval with one trial per problem.

    Scores are in [0, 1], so their variance is at most mean·(1 − mean): the interval is conservative for k > 1 and graded
    scores, and valid at 0 and 1, where a bootstrap interval has no width.
    """
    centre = (mean + z**2 / (2 * problems)) / (1 + z**2 / problems)
    half = z / (1 + z**2 / problems) * math.sqrt(mean * (1 - mean) / problems + z**2 / (4 * problems**2))
    # At 0 and 1 the mean is an end of the interval; rounding must not exclude it.
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def difference(first: float, problems: int, second: float, others: int, z: float = Z95) -> tuple[float, float, float]:
    """`first` − `second` with Newcombe's interval, which joins the two of Wilson; also valid where both are 0 or 1."""
    (low, high), (lower, higher) = interval(first, problems, z), interval(second, others, z)
    gap = first - second
    return gap, gap - math.hypot(first - low, higher - second), gap + math.hypot(high - first, second - lower)
