"""Place 11 points in a triangle so that the smallest triangle that any three of them make is as large as possible.
Write a Python program with a function `solve()` that returns 11 points `(x, y)` in the triangle with the corners (0,
0), (1, 0) and (0, 1): x >= 0, y >= 0 and x + y <= 1. The score is the area of the smallest of the 165 triangles as a
part of the whole triangle's area, which is 1/2; it is the same for a triangle of any shape. numpy and scipy are
installed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import rows
from fastslow.discover.problems._triangles import outside, smallest_triangle

POINTS = 11

goal = "maximize"
target = 0.03652
seconds = 60.0
seed = """\
import math

def solve():
    angles = [2 * math.pi * k / 11 for k in range(11)]
    return [(0.29 + 0.28 * math.cos(angle), 0.29 + 0.28 * math.sin(angle)) for angle in angles]
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The smallest part; where rounding put points out of the triangle, it is taken as large as they need."""
    points = rows(solution, "point", POINTS, ("x", "y"))
    over = outside(points, "triangle", lambda x, y: max(-x, -y, x + y - 1))
    return smallest_triangle(points, (1 + 3 * over) ** 2 * Fraction(1, 2))
