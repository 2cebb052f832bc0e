"""Place 16 points in the plane so that the ratio of the largest to the smallest of their distances is as small as possible.
Write a Python program with a function `solve()` that returns 16 points `(x, y)`, at any scale. The score, to be
minimized, is the square of the ratio: the largest squared distance divided by the smallest. numpy and scipy are
installed.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import Invalid, listed, never_better, rows

POINTS = 16

goal = "minimize"
target = 12.8893
seconds = 60.0
seed = """\
def solve():
    return [(column, row) for row in range(4) for column in range(4)]
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The squared ratio, from rational numbers, never rounded down, and which pairs decide it."""
    points = rows(solution, "point", POINTS, ("x", "y"))
    pairs = [((x - u) ** 2 + (y - v) ** 2, (i, j)) for (i, (x, y)), (j, (u, v)) in combinations(enumerate(points), 2)]
    equal = [f"Points {i} and {j} are the same" for square, (i, j) in pairs if not square]
    if equal:
        raise Invalid(listed(equal))
    least, most = min(pairs)[0], max(pairs)[0]
    value = never_better(most / least, goal)
    short = [f"{i}-{j}" for square, (i, j) in sorted(pairs) if 1000 * square <= 1001 * least]
    long = [f"{i}-{j}" for square, (i, j) in sorted(pairs, reverse=True) if 1001 * square >= 1000 * most]
    near = f"Pairs as close as the closest, within 0.1 %: {len(short)} ({', '.join(short[:6])})"
    far = f"as far as the farthest: {len(long)} ({', '.join(long[:6])})"
    return value, f"The squared ratio is {value:.10g}. {near}; {far}. Shrink the few farthest or part the few closest."
