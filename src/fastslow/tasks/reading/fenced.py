"""Finding the answer a model put into a fenced block."""

import re

FENCE = "```"
_LANGUAGE = re.compile(r"[ \t]*[\w+-]*[ \t]*\r?\n")


def has_fence(text: str) -> bool:
    """Whether a block is opened at all, closed or not."""
    return FENCE in text


def last_fenced(text: str) -> str | None:
    """What the last fenced block holds, without the name of its language; None when there is none or it is never closed.

    As with boxes, an earlier complete block does not stand in for an unfinished last one.
    """
    pieces = text.split(FENCE)
    if len(pieces) < 3 or len(pieces) % 2 == 0:
        return None
    return _LANGUAGE.sub("", pieces[-2], count=1) if _LANGUAGE.match(pieces[-2]) else pieces[-2]
