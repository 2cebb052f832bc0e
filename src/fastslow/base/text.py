"""Numbers, durations and foreign text as messages and terminals can show them."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

BARS = "▁▂▃▄▅▆▇█"


def one_line(value: object, limit: int = 300) -> str:
    """The text of a value on one line, truncated to `limit` characters."""
    return _spelled(str, value, limit)


def quoted(value: object, limit: int = 300) -> str:
    """The same as Python writes it, a text in quotes."""
    return _spelled(repr, value, limit)


def _spelled(spell: Callable[[object], str], value: object, limit: int) -> str:
    try:
        spelled = spell(value)
    except Exception:  # an integer of thousands of digits, a list that holds itself, somebody's own class
        spelled = f"<{type(value).__name__}>"
    text = " ".join(spelled.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """The text without control characters, which could clear the screen or hide what it says, and without credentials."""
    return without_controls(redacted(text))


def without_controls(text: str) -> str:
    """The text with a mark in place of every control character other than line breaks and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


HIDDEN = "[redacted]"
_ADDRESS = re.compile(r"://[^\s/?#@'\"]+@")
_IN_QUERY = re.compile(
    r"(?i)(?P<name>[?&;][\w.-]*(?:key|token|secret|password|passwd|pwd|sig|signature|auth)=)[^&#\s'\"]+"
)
_KEYS = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|AIza[\w-]{30,}|xox[abp]-[\w-]{10,})"
    r"|(?<=Bearer )[\w.~+/-]{16,}=*"
)
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|password|passwd)$")


def redacted(text: str) -> str:
    """The text without credentials: those in addresses, those that look like an API key, and those in the environment."""
    text = _ADDRESS.sub(f"://{HIDDEN}@", text)
    text = _IN_QUERY.sub(rf"\g<name>{HIDDEN}", text)
    text = _KEYS.sub(HIDDEN, text)
    for name, value in os.environ.items():
        if len(value) >= 12 and value in text and _SECRET_NAME.search(name):
            text = text.replace(value, HIDDEN)
    return text


def has_credentials(text: str) -> bool:
    return redacted(text) != text


_UNSEEN = {"\N{COMBINING GRAPHEME JOINER}", "\N{HANGUL FILLER}", "\N{HALFWIDTH HANGUL FILLER}"}
_UNSEEN |= {"\N{HANGUL CHOSEONG FILLER}", "\N{HANGUL JUNGSEONG FILLER}", "\N{BRAILLE PATTERN BLANK}"}


def hidden_characters(text: str) -> str:
    """The characters of a text that a reader does not see or that change what is seen: control characters other than line
    breaks and tabs, direction marks, zero-width and tag characters, variation selectors other than those of emoji, lone
    surrogates."""
    return "".join(dict.fromkeys(letter for letter in text if _is_hidden(letter)))


def _is_hidden(letter: str) -> bool:
    if letter in "\n\t\r":
        return False
    # Control, format, surrogate, line separator, paragraph separator, and code points that are no characters.
    category = unicodedata.category(letter)
    selector = 0xFE00 <= ord(letter) <= 0xFE0D or 0xE0000 <= ord(letter) <= 0xE0FFF
    return category in ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn") or selector or letter in _UNSEEN


def number(value: Any) -> str:
    """A count in full, a score with three decimals, a large measurement with none; a missing value is a dash."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else printable(str(value))
    return f"{value:.3f}" if isinstance(value, float) and abs(value) < 100 else f"{value:,.0f}"


def scored(score: float | None, drawn: Sequence[float] | None = None) -> str:
    """The score of a context. Where it is expected rather than measured, `drawn` has the mean score of its rollouts and their
    number, which is shown beside it."""
    if drawn is None:
        return f"score {number(score)}"
    mean, count = drawn
    measured = (
        f"measured {number(float(mean))} in {count:,.0f} rollout{'' if count == 1 else 's'}"
        if count
        else "not played in this cycle"
    )
    return f"expected score {number(score)}, {measured}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def sparkline(values: Sequence[float]) -> str:
    """The values as bars, scaled between the lowest and the highest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in values)


def shorten(text: str, longest: int) -> str:
    """Leave out the middle of a long text: the beginning says what it is, the end how it turned out."""
    if len(text) <= longest:
        return text
    head = longest // 2
    return f"{text[:head]}\n[… {len(text) - longest} characters left out …]\n{text[len(text) - (longest - head) :]}"


def unlisted(text: str) -> str:
    """A quoted text whose lines are no entries of a list where it stands below instructions (tasks/skills.py)."""
    return re.sub(r"(?m)^- ", " - ", text)


def edits_in(text: str, marks: re.Pattern[str]) -> list[tuple[str, str]]:
    """The old and the new lines of each edit, where `marks` finds the lines before, between and after them as its groups 1, 2
    and 3. Read in one pass, however many edits never end."""
    found, seen = list[tuple[str, str]](), list[re.Match[str]]()
    for mark in marks.finditer(text):
        if mark.lastindex == len(seen) + 1:
            seen.append(mark)
        if len(seen) == 3:
            first, middle, last = seen
            found.append((text[first.end() + 1 : middle.start()], text[middle.end() + 1 : last.start()]))
            seen = []
    return found


BULLETS = re.compile(r"^(?:(?:[-*+•–]|\(?\d+[.)])\s+)+")


def line_key(line: str) -> str:
    """A line of a text without its bullet or number, in one case and spacing."""
    return " ".join(BULLETS.sub("", line.strip()).casefold().split())
