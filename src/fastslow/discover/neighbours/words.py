"""What a neighbour's evaluator says beside the score, as the words that the fast loop reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastslow.base.text import one_line

LONGEST = 400
"""Characters that are kept of each entry."""
TOLERANCE = 1.0
"""Their evaluators may draw at random or measure time: two scores may differ by as much as they are, and the lower counts."""


def number(value: Any) -> float | None:
    """A score as a float, where it is one."""
    value = value.item() if hasattr(value, "item") and getattr(value, "size", 2) == 1 else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def failure(entries: Mapping[str, Any]) -> str:
    """What an entry `error` says; both libraries' evaluators use it for candidates that could not be scored."""
    said = entries.get("error")
    return one_line(said, LONGEST) if isinstance(said, str | BaseException) and str(said).strip() else ""


def told(entries: Mapping[str, Any], candidate: str) -> str:
    """Entries, one a line; without those that are empty or repeat the candidate."""
    lines = []
    for name, value in entries.items():
        if value is None or (isinstance(value, str) and value.strip() in ("", candidate.strip())):
            continue
        shown = number(value)
        lines.append(f"{name}: {one_line(value, LONGEST) if shown is None else format(shown, '.10g')}")
    return "\n".join(lines)
