r"""Finding the answer that a model put into a \boxed{}, a fenced block or <answer> tags, and comparing JSON values.

The last one counts, because the model's last word is its answer. An earlier complete one does not stand in for a last one
that is never closed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fastslow.base.text import one_line

FENCE = "```"
_BOX = re.compile(r"\\boxed\s*\{")
_LANGUAGE = re.compile(r"[ \t]*+[\w+-]*+[ \t]*+\r?\n")
_OPENING = re.compile("<answer>", re.IGNORECASE)
_CLOSING = re.compile("</answer>", re.IGNORECASE)


def has_box(text: str) -> bool:
    r"""Whether a \boxed{ is opened at all, closed or not."""
    return _BOX.search(text) is not None


def last_boxed(text: str) -> str | None:
    r"""What the last \boxed{} holds, inner braces included; None when there is none or the last one is never closed."""
    openings = list(_BOX.finditer(text))
    if not openings:
        return None
    start = openings[-1].end()
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return None


def has_fence(text: str) -> bool:
    """Whether a fenced block is opened at all, closed or not."""
    return FENCE in text


def last_fenced(text: str) -> str | None:
    """What the last fenced block holds, without the name of its language; None when there is none or it is never closed."""
    pieces = text.split(FENCE)
    if len(pieces) < 3 or len(pieces) % 2 == 0:
        return None
    return _LANGUAGE.sub("", pieces[-2], count=1) if _LANGUAGE.match(pieces[-2]) else pieces[-2]


def has_tag(text: str) -> bool:
    """Whether an <answer> is opened at all, closed or not."""
    return _OPENING.search(text) is not None


def last_tagged(text: str, *, innermost: bool = True) -> str | None:
    """What the last <answer> tags hold; None when there are none or the last <answer> is never closed.

    Where a second <answer> comes before the </answer>, the answer begins after the second one; without `innermost` it begins
    after the first, and the second is part of it.
    """
    *closed, rest = _CLOSING.split(text)
    if has_tag(rest):
        return None
    for piece in reversed(closed):
        if has_tag(piece):
            return _OPENING.split(piece, maxsplit=0 if innermost else 1)[-1]
    return None


@dataclass(frozen=True)
class Reading:
    """Where an answer stands, and what is said where it cannot be read: a fact with %s for what was asked, and advice."""

    last: Callable[[str], str | None]
    opened: Callable[[str], bool]
    missing: tuple[str, str]
    unclosed: tuple[str, str]
    empty: tuple[str, str]

    def read(self, text: str, about: str) -> tuple[str, list[str]]:
        """What the last one holds, or what keeps it from being read."""
        found = self.last(text)
        if found is not None and found.strip():
            return found, []
        fact, advice = self.empty if found is not None else self.unclosed if self.opened(text) else self.missing
        return "", [fact % about, advice]


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
