"""Heilbronn's problem: the smallest of all triangles that points make, exactly."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

from fastslow.discover.problems._exact import Invalid, listed, never_better

ROUNDING = Fraction(1, 10**9)
"""Points that are outside their region by no more than this are brought into it by scaling; more is an error."""

Point = list[Fraction]


def smallest_triangle(points: list[Point], area: Fraction) -> tuple[float, str]:
    """The area of the smallest triangle as a part of the region's area, never rounded up, and which triangles those are."""
    areas = []
    for (i, (x, y)), (j, (u, v)), (k, (s, t)) in combinations(enumerate(points), 3):
        areas.append((abs((u - x) * (t - y) - (s - x) * (v - y)) / 2 / area, (i, j, k)))
    areas.sort()
    least = areas[0][0]
    if not least:
        flat = [f"Points {i}, {j} and {k} are on one line" for part, (i, j, k) in areas if not part]
        raise Invalid(f"{listed(flat)} The smallest triangle has no area.")
    value = never_better(least, "maximize")
    near = [triple for part, triple in areas if part <= least * Fraction(1001, 1000)]
    named = ", ".join(f"({i}, {j}, {k})" for i, j, k in near[:6]) + (", …" if len(near) > 6 else "")
    fixed = {point for triple in near for point in triple}
    free = [str(index) for index in range(len(points)) if index not in fixed]
    words = f"The smallest triangle has the area {value:.10g}. "
    words += f"Triangles as small as that, within 0.1 %: {len(near)}, of the points {named}."
    if free:
        words += f" Points in none of them, free to move: {', '.join(free)}."
    return value, words


def outside(points: list[Point], region: str, beyond: Callable[[Fraction, Fraction], Fraction]) -> Fraction:
    """How far points are out of their region, where that can be rounding; further out is an error that names them."""
    out = sorted(((beyond(x, y), index) for index, (x, y) in enumerate(points) if beyond(x, y) > 0), reverse=True)
    worst = out[0][0] if out else Fraction(0)
    if worst > ROUNDING:
        named = ((by, index, *map(float, points[index])) for by, index in out)
        raise Invalid(
            listed(
                [f"Point {i}, ({x:.6g}, {y:.6g}), is outside the {region} by {float(by):.3g}" for by, i, x, y in named]
            )
        )
    return worst
