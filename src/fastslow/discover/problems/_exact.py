"""Solutions taken exactly: a float is the rational number that it stands for, and no comparison or sum is rounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from fastslow.discover import Failed as Invalid  # a solution breaks a rule; says which, where and by how much

LARGEST = 10**15
"""Numbers of a solution are at most this large, so that exact arithmetic with them is quick."""


def number(value: Any, where: str) -> Fraction:
    """A finite int or float, as the rational number that it is."""
    value = _plain(value)
    if type(value) not in (int, float):  # a bool is neither
        raise Invalid(f"{where} must be a number; it is {_kind(value)}.")
    if not abs(value) <= LARGEST:
        given = f"a number of {value.bit_length()} bits" if isinstance(value, int) else str(value)
        raise Invalid(f"{where} is {given}; numbers must be finite and at most {LARGEST:.0e}.")
    return Fraction(value)


def sequence(value: Any, where: str, least: int = 1, most: int | None = None) -> list[Any]:
    """The elements of a list, tuple or numpy array of a permitted length."""
    value = _plain(value)
    if not isinstance(value, list | tuple):
        raise Invalid(f"{where} must be a list; it is {_kind(value)}.")
    most = most or least
    if not least <= len(value) <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise Invalid(f"{where} must have {expected} elements; it has {len(value)}.")
    return list(value)


def rows(solution: Any, name: str, count: int, columns: Sequence[str]) -> list[list[Fraction]]:
    """`count` rows with a number for each column, as in `circle 3: x`."""
    return [
        [
            number(cell, f"{name} {index}: {column}")
            for column, cell in zip(columns, sequence(row, f"{name} {index}", len(columns)), strict=True)
        ]
        for index, row in enumerate(sequence(solution, f"The list of {name}s", count))
    ]


def never_better(value: Fraction, goal: str) -> float:
    """The nearest float that claims no more than the exact value."""
    try:
        rounded = float(value)
    except OverflowError:
        raise Invalid("The score is too large for a floating-point number.") from None
    if goal == "maximize" and Fraction(rounded) > value:
        return math.nextafter(rounded, -math.inf)
    if goal == "minimize" and Fraction(rounded) < value:
        return math.nextafter(rounded, math.inf)
    return rounded


def root_below(value: Fraction) -> Fraction:
    """A rational number at most the square root of `value`, and by less than 2**-100 of it."""
    if not value:
        return value
    size = value.numerator.bit_length() - value.denominator.bit_length()
    bits = max(0, 102 - size // 2)
    return Fraction(math.isqrt((value.numerator << 2 * bits) // value.denominator), 1 << bits)


def convolve(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """The coefficients of the product of two polynomials, exactly: both become one large integer, and so does the product."""
    bound = max(1, *map(abs, left)) * max(1, *map(abs, right)) * min(len(left), len(right))
    width = (bound.bit_length() + 9) // 8  # bytes of a coefficient with its sign
    count = len(left) + len(right) - 1
    half = 1 << (8 * width - 1)
    shift = int.from_bytes(half.to_bytes(width, "little") * count, "little")
    digits = (_packed(left, width) * _packed(right, width) + shift).to_bytes(width * count + 1, "little")
    return [int.from_bytes(digits[at : at + width], "little") - half for at in range(0, width * count, width)]


def _packed(values: Sequence[int], width: int) -> int:
    positive = b"".join(max(value, 0).to_bytes(width, "little") for value in values)
    negative = b"".join(max(-value, 0).to_bytes(width, "little") for value in values)
    return int.from_bytes(positive, "little") - int.from_bytes(negative, "little")


def listed(faults: Sequence[str], most: int = 3) -> str:
    """The first faults, and how many more there are."""
    more = len(faults) - most
    return "; ".join(faults[:most]) + (f"; and {more} more" if more > 0 else "") + "."


def _plain(value: Any) -> Any:
    """Numpy's arrays and numbers as Python's; without numpy, whose import takes longer than most evaluations."""
    return value.tolist() if hasattr(value, "tolist") else value


def _kind(value: Any) -> str:
    return "nothing (None)" if value is None else f"of type {type(value).__name__}"
