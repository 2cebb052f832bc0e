"""Find a step function h from [0, 2] to [0, 1] whose overlap with 1 - h is small: Erdős' minimum overlap problem.
Write a Python program with a function `solve()` that returns the heights of h on 2 to 50000 equal steps, each from 0
to 1, with the mean 1/2. The score, to be minimized, is the largest integral of h(x) (1 - h(x + k)) over all shifts k,
which for n heights is max(numpy.correlate(h, 1 - h, "full")) * 2 / n. numpy and scipy are installed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import Invalid, convolve, listed, never_better, number, sequence
from fastslow.discover.problems._steps import BITS, MOST_STEPS

ROUNDING = Fraction(1, 10**6)
"""Heights outside [0, 1], and a mean away from 1/2, by no more than this are corrected; more is an error."""

goal = "minimize"
target = 0.380876
seconds = 60.0
seed = """\
def solve():
    return [0.25] * 25 + [0.75] * 50 + [0.25] * 25
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The bound of the function with rounded heights (2**-40) and a mean of exactly 1/2, never rounded down."""
    values = sequence(solution, "The list of heights", 2, MOST_STEPS)
    heights = [number(value, f"height {index}") for index, value in enumerate(values)]
    beyond = [
        f"Height {i} is {float(h):.6g}, outside [0, 1]"
        for i, h in enumerate(heights)
        if not -ROUNDING <= h <= 1 + ROUNDING
    ]
    if beyond:
        raise Invalid(listed(beyond))
    one = 2**BITS
    whole = [min(max(round(height * one), 0), one) for height in heights]
    steps, total = len(whole), sum(whole)
    mean = Fraction(total, steps * one)
    if abs(mean - Fraction(1, 2)) > ROUNDING:
        raise Invalid(
            f"The mean of the heights is {float(mean):.9g}; it must be 0.5, so that the integral of h over [0, 2] is 1."
        )
    # Scale the larger of h and 1 - h down to the mean 1/2: both then stay in [0, 1].
    part, rest = (
        (whole, total) if 2 * total >= steps * one else ([one - height for height in whole], steps * one - total)
    )
    unit = 2 * rest  # heights are now multiples of 1 / unit
    scaled = [height * steps for height in part]
    values = convolve(scaled, [unit - height for height in reversed(scaled)])
    at = max(range(len(values)), key=values.__getitem__)
    value = never_better(Fraction(2 * values[at], steps * unit**2), goal)
    near = sum(100 * overlap >= 99 * values[at] for overlap in values)
    shift = Fraction(2 * (at - steps + 1), steps) * (-1 if part is whole else 1)
    words = f"This h with {steps} steps shows that the constant is at most {value:.10g}. "
    words += f"The overlap is largest at the shift {float(shift):.4g}; "
    return (
        value,
        words + f"{near} of {len(values)} shifts are within 1 % of it. Level the overlaps: lower those at the peak.",
    )
