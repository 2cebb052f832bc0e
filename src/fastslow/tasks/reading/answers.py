r"""Finding the answer that a model put into a \boxed{}, a fenced block or <answer> tags.

The last one counts, because the model's last word is its answer. An earlier complete one does not stand in for a last one
that is never closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

FENCE = "```"
_BOX = re.compile(r"\\boxed\s*\{")
_LANGUAGE = re.compile(r"[ \t]*[\w+-]*[ \t]*\r?\n")
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
