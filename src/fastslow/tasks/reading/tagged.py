"""Finding the answer a model put inside <answer> tags."""

import re

_OPENING = re.compile("<answer>", re.IGNORECASE)
_CLOSING = re.compile("</answer>", re.IGNORECASE)


def has_tag(text: str) -> bool:
    """Whether an <answer> is opened at all, closed or not."""
    return _OPENING.search(text) is not None


def last_tagged(text: str, *, innermost: bool = True) -> str | None:
    """What the last tags hold; None when there are none or the last <answer> is never closed.

    As with boxes, an earlier complete answer does not stand in for an unfinished last one. Where a second <answer> comes
    before the </answer>, what is read begins after it; without `innermost` after the first, the second being part of it.
    """
    *closed, rest = _CLOSING.split(text)
    if has_tag(rest):
        return None
    for piece in reversed(closed):
        if has_tag(piece):
            return _OPENING.split(piece, maxsplit=0 if innermost else 1)[-1]
    return None
