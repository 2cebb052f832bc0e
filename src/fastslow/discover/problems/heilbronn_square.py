"""Place 10 points in the unit square so that the smallest triangle that any three of them make is as large as possible.
Write a Python program with a function `solve()` that returns 10 points `(x, y)` with 0 <= x <= 1 and 0 <= y <= 1. The
score is the area of the smallest of the 120 triangles. numpy and scipy are installed.
"""

from __future__ import annotations

from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import rows
from fastslow.discover.problems._triangles import outside, smallest_triangle

POINTS = 10

goal = "maximize"
target = 0.046537
seconds = 60.0
seed = """\
import math

def solve():
    angles = [0.1 + 0.2 * math.pi * k for k in range(10)]
    return [(0.5 + 0.5 * math.cos(angle), 0.5 + 0.5 * math.sin(angle)) for angle in angles]
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The smallest area; where rounding put points out of the square, the square is taken as large as they need."""
    points = rows(solution, "point", POINTS, ("x", "y"))
    over = outside(points, "square", lambda x, y: max(-x, x - 1, -y, y - 1))
    return smallest_triangle(points, (1 + 2 * over) ** 2)
