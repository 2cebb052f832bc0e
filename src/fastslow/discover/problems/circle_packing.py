"""Pack 26 circles into the unit square so that the sum of their radii is as large as possible.
Write a Python program with a function `solve()` that returns 26 rows `(x, y, r)`: the centre and the radius of each
circle. No circle may overlap another or leave the square from (0, 0) to (1, 1). numpy and scipy are installed.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

from fastslow.discover import run
from fastslow.discover.problems._exact import Invalid, listed, never_better, root_below, rows

CIRCLES = 26
ROUNDING = Fraction(1, 10**6)
"""Radii that are too large by no more than this part of them are scaled down to what is valid; more is an error."""

goal = "maximize"
target = 2.635983
seconds = 60.0
seed = """\
def solve():
    circles = []
    for row in range(5):
        for column in range(5):
            circles.append((0.1 + 0.2 * column, 0.1 + 0.2 * row, 0.1))
    circles.append((0.2, 0.2, 0.04))
    return circles
"""

Circle = list[Fraction]


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate, "solve"))


def score(solution: Any) -> tuple[float, str]:
    """The sum of the radii after `valid`, never rounded up, and what is slack."""
    circles = rows(solution, "circle", CIRCLES, ("x", "y", "r"))
    scale = valid_scale(circles)
    if 1 - scale > ROUNDING:
        raise Invalid(f"{listed(_faults(circles))} All radii times {float(scale):.6g} would be valid.")
    value = never_better(scale * sum((r for _, _, r in circles), Fraction(0)), goal)
    words = [f"Valid, with a sum of radii of {value:.10g}."]
    if scale < 1:
        words.append(f"Rounding errors were removed: all radii were scaled down by {float(1 - scale):.1e} of them.")
    return value, " ".join([*words, _slack(circles)])


def valid_scale(circles: list[Circle]) -> Fraction:
    """The factor for all radii, at most 1, with which the packing is valid: proven, in rational numbers."""
    scale = Fraction(1)
    for index, (x, y, r) in enumerate(circles):
        if r < 0:
            raise Invalid(f"Circle {index} has the radius {float(r):.6g}; a radius cannot be negative.")
        room = min(x, 1 - x, y, 1 - y)
        if room < 0:
            raise Invalid(f"The centre of circle {index}, ({float(x):.6g}, {float(y):.6g}), is outside the square.")
        if r > room:
            scale = min(scale, room / r)
    for (x, y, r), (u, v, s) in combinations(circles, 2):
        square = (x - u) ** 2 + (y - v) ** 2
        if (r + s) ** 2 > square:
            scale = min(scale, root_below(square) / (r + s))
    return scale


def _faults(circles: list[Circle]) -> list[str]:
    """Every overlap and every side that is crossed, the worst first."""
    faults = []
    for index, (x, y, r) in enumerate(circles):
        for side, room in (("left", x), ("right", 1 - x), ("lower", y), ("upper", 1 - y)):
            if r > room:
                faults.append((float(r - room), f"Circle {index} crosses the {side} side by {float(r - room):.3g}"))
    for (one, (x, y, r)), (other, (u, v, s)) in combinations(enumerate(circles), 2):
        square = (x - u) ** 2 + (y - v) ** 2
        if (r + s) ** 2 > square:
            by, apart = float(r + s - root_below(square)), float(root_below(square))
            sizes = f"centres {apart:.6g} apart, radii {float(r):.6g} and {float(s):.6g}"
            faults.append((by, f"Circles {one} and {other} overlap by {by:.3g}: {sizes}"))
    return [words for _, words in sorted(faults, reverse=True)]


def _slack(circles: list[Circle]) -> str:
    """Which circles could grow alone, and by how much."""
    room = []
    for index, (x, y, r) in enumerate(circles):
        gaps = [
            float(root_below((x - u) ** 2 + (y - v) ** 2) - r - s)
            for at, (u, v, s) in enumerate(circles)
            if at != index
        ]
        room.append((min(*gaps, *(float(side - r) for side in (x, 1 - x, y, 1 - y))), index))
    loose = sorted((gap, index) for gap, index in room if gap > 1e-6)[::-1]
    if not loose:
        return "Every circle touches another or a side: only a different arrangement can have a larger sum."
    names = ", ".join(f"circle {index} by {gap:.3g}" for gap, index in loose[:3])
    return f"{len(loose)} of {len(circles)} circles touch nothing and could grow alone: {names}."
