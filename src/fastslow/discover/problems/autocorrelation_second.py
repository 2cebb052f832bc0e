"""Find a step function f >= 0 on [-1/4, 1/4] whose autoconvolution is as flat as possible: the second inequality.
Write a Python program with a function `solve()` that returns the heights of f on 2 to 50000 equal steps, none
negative. The score, to be maximized, is ||f*f||_2^2 / (||f*f||_1 ||f*f||_inf), at most 1; f*f is linear between its
values numpy.convolve(h, h) and 0 at both ends. numpy and scipy are installed.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import never_better
from fastslow.discover.problems._steps import autoconvolution, peak_words, whole_heights

goal = "maximize"
target = 0.961
seconds = 60.0
seed = """\
def solve():
    return [1.0] * 100
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The constant of the function with rounded heights (`_steps.BITS`), exactly and never rounded up."""
    heights = whole_heights(solution)
    values, at = autoconvolution(heights)
    ends = [0, *values, 0]
    squares = sum(left * left + left * right + right * right for left, right in pairwise(ends))
    value = never_better(Fraction(squares, 3 * sum(values) * values[at]), goal)
    return value, f"This f with {len(heights)} steps shows C2 >= {value:.10g}. {peak_words(values, at, len(heights))}"
