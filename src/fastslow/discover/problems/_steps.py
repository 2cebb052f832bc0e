"""Step functions on equal intervals as whole numbers, whose autoconvolution is computed exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fastslow.discover.problems._exact import Invalid, convolve, number, sequence

MOST_STEPS = 50_000
BITS = 40
"""What is scored is the step function whose heights are rounded to multiples of 2**-40 of the largest."""


def whole_heights(solution: Any, *, signed: bool = False) -> list[int]:
    """The heights as multiples of 2**-40 of the largest; the constants of autocorrelation do not depend on the scale."""
    values = sequence(solution, "The list of heights", 2, MOST_STEPS)
    exact = [number(value, f"height {index}") for index, value in enumerate(values)]
    largest = max(map(abs, exact))
    if not largest:
        raise Invalid("All heights are 0; at least one must be positive.")
    whole = [round(height * 2**BITS / largest) for height in exact]
    if not signed and (least := min(whole)) < 0:
        at = whole.index(least)
        below = sum(height < 0 for height in whole)
        raise Invalid(
            f"{below} heights are negative, the lowest is height {at}: {float(exact[at]):.6g}. All must be at least 0."
        )
    return whole


def autoconvolution(heights: list[int], *, absolute: bool = False) -> tuple[list[int], int]:
    """f*f at the multiples of the width of a step, between which it is linear, and the index of its peak."""
    values = convolve(heights, heights)
    shape = [abs(value) for value in values] if absolute else values
    return values, max(range(len(shape)), key=shape.__getitem__)


def peak_words(values: list[int], at: int, steps: int) -> str:
    """Where f*f peaks and how flat it is: what a better function changes."""
    top = abs(values[at])
    sizes = [abs(value) / top for value in values]
    around = [-1.0, *sizes, -1.0]
    tops = [place for place, size in enumerate(sizes) if size >= around[place] and size > around[place + 2]]
    others = sorted((place for place in tops if place != at), key=lambda place: -sizes[place])[:3]
    named = ", ".join(f"{sizes[place]:.4g} of that at t = {_place(place, steps):.4g}" for place in others)
    return (
        f"f*f is largest at t = {_place(at, steps):.4g}; its next peaks are {named or 'none'}. "
        f"{sum(size >= 0.99 for size in sizes)} of {len(values)} grid points are within 1 % of the largest value, and half "
        f"of them are below {sorted(sizes)[steps - 1]:.3g} of it. Lower the peaks by moving weight to where f*f is small."
    )


def _place(index: int, steps: int) -> float:
    return float(Fraction(index + 1, 2 * steps) - Fraction(1, 2))
