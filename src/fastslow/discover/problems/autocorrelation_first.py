"""Find a step function f >= 0 on [-1/4, 1/4] whose autoconvolution has the smallest possible peak: the first inequality.
Write a Python program with a function `solve()` that returns the heights of f on 2 to 50000 equal steps, none
negative. The score, to be minimized, is max (f*f) / (integral of f)^2, which for n heights h is 2 n
max(numpy.convolve(h, h)) / sum(h)^2. numpy and scipy are installed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import never_better
from fastslow.discover.problems._steps import autoconvolution, peak_words, whole_heights

goal = "minimize"
target = 1.50287
seconds = 60.0
seed = """\
def solve():
    return [1.0] * 100
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The constant of the function with rounded heights (`_steps.BITS`), exactly and never rounded down."""
    heights = whole_heights(solution)
    values, at = autoconvolution(heights)
    value = never_better(Fraction(2 * len(heights) * values[at], sum(heights) ** 2), goal)
    return value, f"This f with {len(heights)} steps shows C1 <= {value:.10g}. {peak_words(values, at, len(heights))}"
