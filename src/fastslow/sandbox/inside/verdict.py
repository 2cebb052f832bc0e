"""What is said of a test that did not pass."""

from __future__ import annotations

import re
from typing import Any

from .doubt import Unsure

LONGEST = 300
"""Characters of what is shown."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""The one part of what Python shows that is another one every time."""


class AboutAnswer(dict[str, Any]):
    """What is known of an exception that the answer raised: a type of the judge's, so that no answer can make one."""


class Failed(AssertionError):
    """A comparison is false: its side that comes from the answer, what that gave, what the other gave, and whether they
    were to be equal."""


def verdict_of(error: BaseException) -> dict[str, Any]:
    about = vars(error).get("about_answer")
    if isinstance(about, AboutAnswer):
        return {"verdict": "raised", **about}
    if isinstance(error, Unsure):
        return {"verdict": "unsure", "error": str(error)}
    if isinstance(error, Failed):
        call, got, expected, equality = error.args
        kinds = [type(got).__name__, type(expected).__name__] if equality else []
        return {"verdict": "failed", "call": call, "got": _show(got), "expected": _show(expected), "kinds": kinds}
    if isinstance(error, AssertionError):
        return {"verdict": "failed"}
    return {"verdict": "broken", "error": f"{type(error).__name__}: {error}"[:LONGEST]}


def equal(value: Any, expected: Any) -> bool:
    """Equal, where a tuple will do for an expected list, because JSON has no other way to write one."""
    if isinstance(expected, list) and type(value) in (list, tuple):
        return len(value) == len(expected) and all(map(equal, value, expected))
    if isinstance(expected, dict) and isinstance(value, dict):
        return value.keys() == expected.keys() and all(equal(value[key], expected[key]) for key in expected)
    return bool(value == expected)


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # a number of thousands of digits, or a __repr__ of the answer's own
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    text = _ADDRESS.sub("", text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
