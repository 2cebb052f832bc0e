"""Comparing JSON values by value and type, and naming the first difference."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from fastslow.base.text import one_line

Kind = Literal["type", "number", "length", "missing key", "extra key", "value"]

RELATIVE_TOLERANCE = 1e-9
"""Two floats are equal when they agree to nine digits: nobody should have to write all seventeen, and 1234567.89 still
differs from 1234567.88."""
ABSOLUTE_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Difference:
    """Where two values first differ: `place` is an index expression such as `[2]["name"]`, empty for the whole value.

    `number` is a float in place of an integer, or the other way round; `type` any other difference of types. At a key
    that is missing or too many, `expected` and `given` are the two objects and `key` names it.
    """

    kind: Kind
    place: str
    expected: Any
    given: Any
    key: str = ""


def first_difference(expected: Any, given: Any, place: str = "") -> Difference | None:
    """The first difference in the order of the expected value; lengths and keys come before what they hold."""
    wanted, found = type_name(expected), type_name(given)
    if wanted != found:
        numbers = {wanted, found} == {"integer", "float"}
        return Difference("number" if numbers else "type", place, expected, given)
    if isinstance(expected, list):
        return _in_lists(expected, given, place)
    if isinstance(expected, dict):
        return _in_objects(expected, given, place)
    tolerance = {"rel_tol": RELATIVE_TOLERANCE, "abs_tol": ABSOLUTE_TOLERANCE}
    if expected == given or (isinstance(expected, float) and math.isclose(expected, given, **tolerance)):
        return None
    return Difference("value", place, expected, given)


def _in_lists(expected: list[Any], given: list[Any], place: str) -> Difference | None:
    if len(expected) != len(given):
        return Difference("length", place, expected, given)
    differences = (
        first_difference(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(expected, given, strict=True))
    )
    return next(filter(None, differences), None)


def _in_objects(expected: dict[str, Any], given: dict[str, Any], place: str) -> Difference | None:
    for key in expected:
        if key not in given:
            return Difference("missing key", place, expected, given, key)
    for key in given:
        if key not in expected:
            return Difference("extra key", place, expected, given, key)
    differences = (first_difference(value, given[key], f"{place}[{show(key)}]") for key, value in expected.items())
    return next(filter(None, differences), None)


def type_name(value: Any) -> str:
    """The type in JSON's words; integers and floats are distinguished, as in the code that made the value."""
    if value is None:
        return "null"
    if isinstance(value, bool):  # before int: in Python True is one
        return "boolean"
    return {int: "integer", float: "float", str: "string", list: "array", dict: "object"}[type(value)]


def show(value: Any, limit: int = 120) -> str:
    """The value as JSON on one line of bearable length."""
    return one_line(json.dumps(value, ensure_ascii=False), limit)
