"""Which lines a text should have: all that may help are taken, then those go that are not worth their length.

What a line adds depends on the others. Of several rules of one topic, or of several wordings of one rule, one is enough for a
problem; of several that a problem breaks, none pays until all are there. So lines are first taken by what each does for
some of what was said of a problem, and then left out again where the text as a whole is better without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastslow.fast.digest.effects import Array, Parts
from fastslow.fast.digest.words import Chances

PARTLY = 0.2
"""What it is worth to keep a part of what was said of a problem: it decides where the score is silent."""


@dataclass(frozen=True)
class Bearing:
    """How far lines bear on the problems that stand for new ones: rows by problem, columns by line or by statement."""

    weight: Array
    """What each problem counts."""
    own: Array
    related: Array
    about: Array
    """1 where a statement was made of the problem."""
    covers: Array
    """By line: 1 for the statements that it says."""


class Chooser:
    """A text that is changed line by line."""

    def __init__(self, parts: Parts, chances: Chances, bearing: Bearing, fixed: Array) -> None:
        """`fixed` has what each line is worth wherever it stands: its side effect, its length, and that somebody wrote it."""
        self.parts, self.bearing, self.fixed = parts, bearing, fixed
        self._rows = (
            bearing.own,
            bearing.own * parts.own,
            bearing.related,
            bearing.related * parts.related,
            bearing.related * parts.alone,
        )
        self._sums = [np.zeros(len(bearing.weight)) for _ in self._rows]
        self._kept = bearing.about @ np.log(chances.untold)
        self._partly = bearing.about @ chances.untold
        self._gain = np.log(chances.told) - np.log(chances.untold), chances.told - chances.untold
        self._named = np.maximum(1.0, bearing.about.sum(axis=1))
        self._said = np.zeros(bearing.covers.shape[1])
        """How many lines of the text say each statement."""
        self._shared = bool((bearing.covers.sum(axis=0) > 1).any())
        self._once = self._by_line(np.ones_like(self._said))
        self._now = self._value([each[:, None] for each in self._sums], self._kept[:, None], self._partly[:, None])

    def _by_line(self, counts: Array) -> tuple[Array, Array]:
        """By problem and line, what it does to the chance that all or some of what was said is kept."""
        covers = (self.bearing.covers * counts).T
        every, partly = ((self.bearing.about * gain) @ covers for gain in self._gain)
        return every, partly

    def _value(self, sums: Sequence[Array], kept: Array, partly: Array) -> tuple[Array, Array]:
        """What texts are worth on each problem, by scores and words: in full, and as far as all steps count alike."""
        count_own, sum_own, count_rel, sum_rel, sum_alone = sums
        effect = sum_own + (sum_rel + np.maximum(0.0, 1 - count_own) * sum_alone) / np.maximum(1.0, count_rel)
        partly = partly / self._named[:, None]
        effect = effect + PARTLY * partly
        return effect + self.parts.words * np.exp(kept), effect + self.parts.words * partly

    def changes(self, lines: Sequence[int], sign: int) -> tuple[Array, Array]:
        """What the text gains with (1) or without (-1) each of these lines: in full, and as far as all steps count alike."""
        once = self._once
        if self._shared:
            once = self._by_line((self._said == (0 if sign > 0 else 1)).astype(float))
        sums = [total[:, None] + sign * rows[:, lines] for total, rows in zip(self._sums, self._rows, strict=True)]
        kept, partly = (
            total[:, None] + sign * change[:, lines]
            for total, change in zip((self._kept, self._partly), once, strict=True)
        )
        after = self._value(sums, kept, partly)
        full, alike = (
            self.bearing.weight @ (new - now) + sign * self.fixed[lines]
            for new, now in zip(after, self._now, strict=True)
        )
        return full, alike

    def change(self, line: int, sign: int) -> None:
        once = self._once
        if self._shared:
            once = self._by_line((self._said == (0 if sign > 0 else 1)).astype(float))
        for total, rows in zip(self._sums, self._rows, strict=True):
            total += sign * rows[:, line]
        self._kept = self._kept + sign * once[0][:, line]
        self._partly = self._partly + sign * once[1][:, line]
        self._said = self._said + sign * self.bearing.covers[line]
        self._now = self._value([each[:, None] for each in self._sums], self._kept[:, None], self._partly[:, None])


def choose(
    parts: Parts,
    chances: Chances,
    bearing: Bearing,
    *,
    tokens: Array,
    room: Array,
    component: Sequence[int],
    bonus: Array,
) -> list[int]:
    """The lines of the best text: `tokens` says how long each is, `room` how many tokens each component has left, and `bonus`
    what a line is worth beside its effects."""
    places = np.array(component, dtype=int)
    left = room.astype(float).copy()
    text = Chooser(parts, chances, bearing, parts.side + parts.token * tokens + bonus)
    taken: list[int] = []
    open_lines = np.ones(len(tokens), dtype=bool)
    while True:
        open_lines &= tokens <= left[places] if len(places) else open_lines
        lines = np.flatnonzero(open_lines)
        if not len(lines):
            break
        full, alike = text.changes(lines, 1)
        adds = np.maximum(full, alike)
        best = int(np.argmax(adds / tokens[lines]))
        if adds[best] <= 0:
            break
        line = int(lines[best])
        taken.append(line)
        open_lines[line] = False
        left[places[line]] -= tokens[line]
        text.change(line, 1)
    while taken:
        full, _ = text.changes(taken, -1)
        worst = int(np.argmax(full))
        if full[worst] <= 0:
            break
        text.change(taken.pop(worst), -1)
    return taken
