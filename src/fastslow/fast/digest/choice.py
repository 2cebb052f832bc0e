"""Which lines a text should have: all that may help are taken, then those go that are not worth their length.

What a line adds depends on the others. Of several rules of one topic, or of several wordings of one rule, one is enough for a
problem; of several that a problem breaks, none pays until all are there. So lines are first taken by what each does for
some of what was said of a problem, and then left out again where the text as a whole is better without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


class Chooser:
    """A text that is changed line by line."""

    def __init__(self, parts: Parts, chances: Chances, bearing: Bearing, fixed: Array) -> None:
        """`fixed` has what each line is worth wherever it stands: its side effect, its length, and that somebody wrote it."""
        self.words, self.chances, self.bearing, self.fixed = parts.words, chances, bearing, fixed
        own, related = bearing.own, bearing.related
        self._rows = own, own * parts.own, related, related * parts.related, related * parts.alone
        self._sums = [np.zeros(len(bearing.weight)) for _ in self._rows]
        self._named = np.maximum(1.0, bearing.about.sum(axis=1))
        self._says = chances.told > 0
        self._present = np.zeros(len(fixed))
        overlap = chances.shows.any() or (self._says.sum(axis=0) > 1).any()
        self._static = None if overlap else self._moves(chances.untold, chances.told)
        """What lines do to the chances, where no statement is said by two of them."""
        self._take_stock()

    def _moves(self, before: Array, after: Array) -> tuple[Array, Array]:
        """By problem and line, what it does to the chance that all, and that some, of what was said is kept."""
        after = np.where(self._says, after, before)
        about = self.bearing.about
        return about @ (np.log(after) - np.log(before)).T, about @ (after - before).T

    def _take_stock(self) -> None:
        self._kept = self.chances.under(self._present)
        self._logs, self._partly = self.bearing.about @ np.log(self._kept), self.bearing.about @ self._kept
        self._now = self._value([each[:, None] for each in self._sums], self._logs[:, None], self._partly[:, None])

    def _value(self, sums: Sequence[Array], logs: Array, partly: Array) -> tuple[Array, Array]:
        """What texts are worth on each problem, by scores and words: in full, and as far as all steps count alike."""
        count_own, sum_own, count_rel, sum_rel, sum_alone = sums
        partly = partly / self._named[:, None]
        effect = sum_own + (sum_rel + np.maximum(0.0, 1 - count_own) * sum_alone) / np.maximum(1.0, count_rel)
        effect = effect + PARTLY * partly
        return effect + self.words * np.exp(logs), effect + self.words * partly

    def changes(self, lines: Sequence[int] | NDArray[np.int64], sign: int) -> tuple[Array, Array]:
        """What the text gains with (1) or without (-1) each of these lines: in full, and as far as all steps count alike."""
        moves = self._static
        if moves is None and sign > 0:
            moves = self._moves(self._kept, self.chances.with_each(self._present))
        elif moves is None:
            moves = self._moves(self._without(lines), np.broadcast_to(self._kept, self._says.shape))
        sums = [total[:, None] + sign * rows[:, lines] for total, rows in zip(self._sums, self._rows, strict=True)]
        logs, partly = (
            self._logs[:, None] + sign * moves[0][:, lines],
            self._partly[:, None] + sign * moves[1][:, lines],
        )
        full, alike = (
            self.bearing.weight @ (new - now) + sign * self.fixed[lines]
            for new, now in zip(self._value(sums, logs, partly), self._now, strict=True)
        )
        return full, alike

    def _without(self, lines: Sequence[int] | NDArray[np.int64]) -> Array:
        """By line, the chances of all statements under the text without it."""
        found = np.broadcast_to(self._kept, self._says.shape).copy()
        for line in lines:
            present = self._present.copy()
            present[line] = 0.0
            found[line] = self.chances.under(present)
        return found

    def change(self, line: int, sign: int) -> None:
        self._present[line] += sign
        self._sums = [total + sign * rows[:, line] for total, rows in zip(self._sums, self._rows, strict=True)]
        self._take_stock()


def choose(
    parts: Parts,
    chances: Chances,
    bearing: Bearing,
    *,
    tokens: Array,
    room: Array,
    component: Sequence[int],
    bonus: Array,
    reach: Array | float = 1.0,
) -> list[int]:
    """The lines of the best text: `tokens` says how long each is, `reach` what share of the problems is shown it, `room` how
    many tokens each component has left, and `bonus` what a line is worth beside its effects."""
    places = np.array(component, dtype=int)
    left = room.astype(float).copy()
    text = Chooser(parts, chances, bearing, reach * (parts.side + parts.token * tokens) + bonus)
    taken: list[int] = []
    open_lines = np.ones(len(tokens), dtype=bool)
    while True:
        open_lines &= tokens <= left[places] if len(places) else open_lines
        lines = np.flatnonzero(open_lines)
        if not len(lines):
            break
        adds = np.maximum(*text.changes(lines, 1))
        best = int(np.argmax(adds / tokens[lines]))
        if adds[best] <= 0:
            break
        line = int(lines[best])
        taken.append(line)
        open_lines[line] = False
        left[places[line]] -= tokens[line]
        text.change(line, 1)
    while taken:
        gains, _ = text.changes(taken, -1)
        worst = int(np.argmax(gains))
        if gains[worst] <= 0:
            break
        text.change(taken.pop(worst), -1)
    return taken
