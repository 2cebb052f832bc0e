"""Find 101 signs, each 1 or -1, with the lowest possible autocorrelation: the largest merit factor.
Write a Python program with a function `solve()` that returns a list s of 101 values, each 1 or -1. With C_k the sum
of s[i] * s[i + k] and E the sum of the squares of C_1 to C_100, the score is the merit factor 101^2 / (2 E). numpy is
installed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import Invalid, listed, never_better, number, sequence

LENGTH = 101

goal = "maximize"
target = 8.8243
seconds = 60.0
seed = """\
def solve():
    return [1 if pow(k, 50, 101) <= 1 else -1 for k in range(101)]
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The merit factor, from whole numbers, and which shifts cost most."""
    values = sequence(solution, "The list of signs", LENGTH)
    signs = [number(value, f"sign {index}") for index, value in enumerate(values)]
    wrong = [f"Sign {index} is {float(sign):.6g}, not 1 or -1" for index, sign in enumerate(signs) if abs(sign) != 1]
    if wrong:
        raise Invalid(listed(wrong))
    return merit([int(sign) for sign in signs])


def merit(signs: list[int]) -> tuple[float, str]:
    """The merit factor of signs, and the shifts that cost most."""
    length = len(signs)
    shifts = {k: sum(signs[i] * signs[i + k] for i in range(length - k)) for k in range(1, length)}
    energy = sum(value * value for value in shifts.values())
    value = never_better(Fraction(length**2, 2 * energy), goal)
    worst = sorted(shifts, key=lambda k: -abs(shifts[k]))[:3]
    named = ", ".join(f"C_{k} = {shifts[k]}" for k in worst)
    return (
        value,
        f"The merit factor is {value:.6g}: the squares of C_1 to C_{length - 1} sum to {energy}. Largest: {named}.",
    )
