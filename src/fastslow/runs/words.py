"""Numbers, times and other people's texts as a terminal can show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BARS = "▁▂▃▄▅▆▇█"


def printable(text: str) -> str:
    """Texts are written by models: control characters in them could clear the screen or hide what they say."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def number(value: Any) -> str:
    """A count in full, a score in three places, a large measurement in none; what was not measured is a dash."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else printable(str(value))
    return f"{value:.3f}" if isinstance(value, float) and abs(value) < 100 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def sparkline(values: Sequence[float]) -> str:
    """The values as bars between the lowest and the highest of them."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in values)


def evaluation_line(label: str, result: dict[str, Any]) -> str:
    """One evaluated context: mean@k with its interval, best@k, and on how many problems."""
    k = result.get("k", "k")
    line = f"{label} mean@{k} {number(result.get('mean'))}"
    if result.get("low") is not None and result.get("high") is not None:
        line += f" [{number(result['low'])}, {number(result['high'])}]"
    if result.get("best") is not None:
        line += f", best@{k} {number(result['best'])}"
    return line + (f" ({number(result['problems'])} problems)" if "problems" in result else "")


def rollouts_line(metrics: dict[str, Any]) -> str:
    """Rollouts used so far, by what for."""
    used = {name: metrics.get(f"rollouts_{name}") for name in ("slow", "fast", "evaluation")}
    line = " + ".join(f"{number(count)} {name}" for name, count in used.items() if count is not None)
    reused = metrics.get("rollouts_reused")
    return f"{line} ({number(reused)} reused)" if reused else line
