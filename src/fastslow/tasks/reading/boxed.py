r"""Finding the answer a model put inside \boxed{}."""

import re

_OPENING = re.compile(r"\\boxed\s*\{")


def has_box(text: str) -> bool:
    r"""Whether a \boxed{ is opened at all, closed or not."""
    return _OPENING.search(text) is not None


def last_boxed(text: str) -> str | None:
    r"""What the last \boxed{} holds, inner braces and all; None when there is none or the last one is never closed.

    An earlier complete box does not stand in for an unfinished last one: the last word of the model is its answer.
    """
    openings = list(_OPENING.finditer(text))
    if not openings:
        return None
    start = openings[-1].end()
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return None
