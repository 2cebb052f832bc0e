"""Is a line used, is it followed? Read from the rollouts that a run has saved, whatever wrote the line.

A line is *in play* in a rollout if it stood in front of a question; with skills (docs/skills.md) that is not every rollout
under a text that has it. It is *about* the problems of which the grader has said it before. On these it is *followed* where
the grader does not say it again. A line that the grader never says, because somebody put it in other words, has no such
number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastslow.base.errors import FastSlowError
from fastslow.base.text import line_key, one_line
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import context_texts
from fastslow.runs.rollout_files import newest_first

COLUMNS = ("example", "context", "score", "feedback", "error", "components", "shown")
MOST = 4000
"""Rollouts that are read, the newest."""
LONGEST = 20_000
"""Characters of a feedback that are searched."""
LONGEST_VALUE = 100
"""Characters of a value that a line leaves out."""
TRIED, SELDOM = 8, 0.1
"""A line is not followed if it was in play on problems that it is about so often, and followed in no more than this share."""
_LEFT_OUT = "…"


@dataclass
class Use:
    """What became of one line, in rollouts."""

    line: str
    written: int = 0
    """Under a text that has it."""
    in_play: int = 0
    about: int = 0
    """In play, on a problem of which the grader had said it before."""
    followed: int = 0
    """Of these, those of which the grader did not say it."""
    missed: int = 0
    """On such a problem under a text that has it, but not in play: it was not loaded."""
    by_turn: dict[int, list[int]] = field(default_factory=dict)
    """By turn, from 1: in play, about, followed."""

    @property
    def ignored(self) -> bool:
        return self.about >= TRIED and self.followed <= SELDOM * self.about

    def to_dict(self) -> dict[str, Any]:
        """For the board; turns only where there are several."""
        turns = [[turn, *counts] for turn, counts in sorted(self.by_turn.items())]
        names = ("written", "in_play", "about", "followed", "missed", "ignored")
        return {**{name: getattr(self, name) for name in names}, "turns": turns if len(turns) > 1 else []}


def uses(run: RunFolder, texts: Mapping[str, str]) -> dict[str, Use]:
    """By line of these texts, its use in the newest rollouts of the run; empty if none were saved."""
    rows = newest_rows(newest_first(run))
    return count_uses(rows, texts, context_texts(run)) if rows else {}


def newest_rows(newest: Iterable[Path]) -> list[dict[str, Any]]:
    """Rollouts of these files, the newest of which comes first: the oldest first, about as many as are read."""
    rows: list[dict[str, Any]] = []
    for path in newest:
        with suppress(FastSlowError):  # a damaged file has no numbers
            rows = [*files.read_table(path, COLUMNS).to_pylist(), *rows]
        if len(rows) >= MOST:
            break
    return rows


def count_uses(
    rows: Iterable[Mapping[str, Any]], texts: Mapping[str, str], contexts: Mapping[str, Mapping[str, str]]
) -> dict[str, Use]:
    """By line of some texts, its use in rollouts as they are saved, the oldest first; `contexts` has their texts by id."""
    lines = [line.strip() for text in texts.values() for line in text.splitlines() if line.strip()]
    keys = {line: line_key(line) for line in lines}
    found, saying = {line: Use(line) for line in keys}, {line: _saying(key) for line, key in keys.items()}
    held = {name: _keys(texts.values()) for name, texts in contexts.items()}
    said_of: dict[str, set[str]] = {}
    for row in rows:
        if row["error"] or row["score"] is None:
            continue
        words = " ".join((row["feedback"] or "")[:LONGEST].casefold().split())
        said = {line for line, pattern in saying.items() if words and row["score"] < 1 and pattern.search(words)}
        known = said_of.setdefault(row["example"], set())
        whole = held.get(row["context"], frozenset())
        turns_shown = row.get("shown") or [None] * len(row["components"] or ())
        shown = [whole if text is None else _keys([text]) for text in turns_shown]
        for line, use in found.items():
            if keys[line] not in whole:
                continue
            turns = [turn for turn, there in enumerate(shown, 1) if keys[line] in there]
            about, followed = line in known, line in known and line not in said
            use.written += 1
            use.in_play += bool(turns)
            use.about += bool(turns) and about
            use.followed += bool(turns) and followed
            use.missed += not turns and about
            for turn in turns:
                counts = use.by_turn.setdefault(turn, [0, 0, 0])
                use.by_turn[turn] = [old + new for old, new in zip(counts, (1, about, followed), strict=True)]
        known |= said
    return found


def verdict(found: Iterable[Use], method: str = "gepa") -> str:
    """One sentence about the lines that stand in front of the model and are not followed; empty if there is none. What to do
    depends on whether the method trains weights."""
    ignored = sorted((use for use in found if use.ignored), key=lambda use: -use.about)
    if not ignored:
        return ""
    first = ignored[0]
    advice = " (method=fst or rl)" if method == "gepa" else ": train longer, or raise slow.learning_rate"
    others = f", and {len(ignored) - 1} more" if len(ignored) > 1 else ""
    return (
        f"in front of the model and not followed: '{one_line(first.line, 80)}' ({first.followed} of {first.about} times)"
        f"{others}; if it is right, this is work for the weights{advice}"
    )


def _keys(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(line_key(line) for text in texts for line in text.splitlines())


def _saying(key: str) -> re.Pattern[str]:
    """Finds a line in a feedback; values that the line leaves out may be any."""
    before, after = r"(?<!\w)" if key[:1].isalnum() else "", r"(?!\w)" if key[-1:].isalnum() else ""
    first, *parts = f"{re.escape(key)}{after}".split(_LEFT_OUT)
    # What follows a value is taken where it stands first: tried everywhere, several values would take for ever.
    return re.compile(before + first + "".join(rf"(?>\S{{1,{LONGEST_VALUE}}}?{part})" for part in parts))
