"""Find a step function f on [-1/4, 1/4], of any sign, whose autoconvolution has the smallest peak: the third inequality.
Write a Python program with a function `solve()` that returns the heights of f on 2 to 50000 equal steps; they may be
negative. The score, to be minimized, is max |f*f| / (integral of f)^2, which for n heights h is 2 n
max(abs(numpy.convolve(h, h))) / sum(h)^2. numpy and scipy are installed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import Invalid, never_better
from fastslow.discover.problems._steps import autoconvolution, peak_words, whole_heights

goal = "minimize"
target = 1.4688
seconds = 60.0
seed = """\
def solve():
    return [1.0] * 400
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The constant of the function with rounded heights (`_steps.BITS`), exactly and never rounded down."""
    heights = whole_heights(solution, signed=True)
    total = sum(heights)
    if not total:
        raise Invalid("The heights sum to 0, and the score divides by the square of their sum.")
    values, at = autoconvolution(heights, absolute=True)
    value = never_better(Fraction(2 * len(heights) * abs(values[at]), total**2), goal)
    sign = " There f*f is negative." if values[at] < 0 else ""
    return (
        value,
        f"This f with {len(heights)} steps shows C3 <= {value:.10g}. {peak_words(values, at, len(heights))}{sign}",
    )
