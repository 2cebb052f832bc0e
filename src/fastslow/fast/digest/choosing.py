"""Which lines a text should have: line by line the one that adds most for its length, until none adds anything.

What a line adds beyond the problems it was said of depends on the lines that are there: of several rules of one topic, or of
several wordings of one rule, one is enough for a problem.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastslow.fast.digest.effects import Array, Parts


def choose(
    parts: Parts,
    own: Array,
    related: Array,
    weight: Array,
    tokens: Array,
    room: Array,
    component: Sequence[int],
    bonus: Array,
) -> list[int]:
    """The lines to take. `own` and `related` say, by problem and line, how far the line bears on the problem; `weight` is
    what each problem counts, `tokens` how long each line is, `room` how many tokens each component has left, and `bonus` what
    a line is worth beside its effects."""
    places = np.array(component, dtype=int)
    left = room.astype(float).copy()
    fixed = parts.side + parts.token * tokens + bonus
    count_own, sum_own = np.zeros(len(weight)), np.zeros(len(weight))
    count_rel, sum_rel, sum_alone = np.zeros(len(weight)), np.zeros(len(weight)), np.zeros(len(weight))
    rows_own, rows_rel, rows_alone = own * parts.own, related * parts.related, related * parts.alone
    now = np.zeros(len(weight))
    taken: list[int] = []
    open_lines = np.ones(len(tokens), dtype=bool)
    while True:
        open_lines &= tokens <= left[places] if len(places) else open_lines
        lines = np.flatnonzero(open_lines)
        if not len(lines):
            return taken
        after = _effect(
            count_own[:, None] + own[:, lines],
            sum_own[:, None] + rows_own[:, lines],
            count_rel[:, None] + related[:, lines],
            sum_rel[:, None] + rows_rel[:, lines],
            sum_alone[:, None] + rows_alone[:, lines],
        )
        adds = weight @ (after - now[:, None]) + fixed[lines]
        best = int(np.argmax(adds / tokens[lines]))
        if adds[best] <= 0:
            return taken
        line = int(lines[best])
        taken.append(line)
        open_lines[line] = False
        left[places[line]] -= tokens[line]
        count_own, sum_own = count_own + own[:, line], sum_own + rows_own[:, line]
        count_rel, sum_rel = count_rel + related[:, line], sum_rel + rows_rel[:, line]
        sum_alone, now = sum_alone + rows_alone[:, line], after[:, best]


def _effect(count_own: Array, sum_own: Array, count_rel: Array, sum_rel: Array, sum_alone: Array) -> Array:
    """A text's effect on problems, from how many of its lines bear on them and the sums of their effects."""
    share_rel = 1 / np.maximum(1.0, count_rel)
    missing = np.maximum(0.0, 1 - count_own)
    return sum_own + share_rel * (sum_rel + missing * sum_alone)
