"""Texts of hostile shapes, and how the time to read one grows with its length."""

from __future__ import annotations

import time
from collections.abc import Callable

UNITS = {
    "spaces": " ",
    "newlines": "\n",
    "quotes": '"',
    "apostrophes": " 'a",
    "curly quotes": "“a",
    "backticks": "` ",
    "fences": "```",
    "opening brackets": "[",
    "opening braces": "{",
    "boxes": r"\boxed{",
    "digits": "7",
    "words": "a ",
    "dotted words": "a.",
    "hyphens": "a-",
    "dots": ".",
    "dashes": "- ",
    "long dashes": "–",
    "numbered": "1) ",
    "commas": "1,",
    "combining": "e\u0301",
    "combining alone": "\u0301",
    "unbalanced": "'(\"[",
    "given": "got 'a got ",
    "given to": "got to to ",
    "colons": "a: ",
    "tags": "<answer>",
    "wide": "\u3000",
    "differences": "-- a: b\n+- a: c\n",
    "names": "Aa Aa & ",
    "carriage returns": "\r",
    "edits": "<<<<<<< SEARCH\n=======\n",
    "fences with a name": "```a\n",
}
SHAPES: dict[str, Callable[[int], str]] = {
    **{name: lambda size, unit=unit: (unit * (size // len(unit) + 1))[:size] for name, unit in UNITS.items()},
    **{f"{name} inside": lambda size, unit=unit: f"x{(unit * size)[: size - 2]}!" for name, unit in UNITS.items()},
    "fence and spaces": lambda size: f"```{' ' * size}!",
    "fenced spaces": lambda size: f"```{' ' * size}!```",
    "statements": lambda size: "\n".join(f"Rule {number} says word{number}." for number in range(size // 25)),
    "sentences": lambda size: " ".join(f"Rule {number} says word{number}." for number in range(size // 25)),
}


def seconds(read: Callable[[str], object], text: str, times: int = 3) -> float:
    """Seconds of this process, the least of several readings: what else the machine does is not counted."""
    found = []
    for _ in range(times):
        started = time.process_time()
        read(text)
        found.append(time.process_time() - started)
    return min(found)


def within(limit: float, read: Callable[[str], object], text: str, times: int = 3) -> bool:
    """Whether the least of several readings is below the limit: the first one that is decides."""
    return any(seconds(read, text, 1) < limit for _ in range(times))


def grows_linearly(read: Callable[[str], object], shape: Callable[[int], str], size: int = 4_000) -> bool:
    """Whether four times the text takes about four times as long, and not sixteen times; what is too fast to measure is."""
    short = seconds(read, shape(size))
    return short < 1.0 and within(9 * max(short, 0.002), read, shape(4 * size))
