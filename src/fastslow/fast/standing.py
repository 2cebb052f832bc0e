"""Which rollouts of a problem got further by the grader's words, where rewards cannot tell (`slow.feedback: rank`).

Words are read as the digest reads them (`digest/transcript.py`). Of two rollouts of one problem one got further, by the first
of these that tells:

1. `Feedback.progress`: the grader says so.
2. *Scores.* How near answers came, the answer's own score plus the mean score of its group, is regressed on what was said of
   them. So a complaint that is made beside right answers is nearer than one that never is, also where every
   answer with a complaint scores 0. To be silent counts as a statement. The difference has to be clear.
3. *Fewer complaints.* All that was said of the one was said of the other, and more, and the grader would have said that of
   the first too (`Order.passed`). What was ever said of one answer only, such as a line that quotes it, is left out.

Two complaints that are never made of one answer have no order until scores give them one: how often each is made says which
is common, not which comes first. Contexts play no part, and rewards of the rollouts that are compared neither: what is known
of scores is of earlier steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastslow.fast.digest.journal import Row
from fastslow.fast.digest.reading import read_feedback
from fastslow.fast.digest.transcript import Graded, Transcript
from fastslow.fast.digest.words import Order
from fastslow.fast.optimizers.base import attempt_of
from fastslow.records import Rollout
from fastslow.rollouts.play import TOO_LONG, is_faulty

Signs = NDArray[np.int8]
SILENT = ""
"""Stands for what is said of an answer of which nothing is said."""
MOST_WEIGHED = 256
"""Statements that are regressed on, those of most answers."""
UNSURE = 8
"""Answers that count as if words explained nothing of how near they came."""
CLEAR = 3.0
"""Standard errors by which two sets of statements must differ to have an order."""
SAID = 0.5
"""The chance that the grader would have said something from which its silence counts."""


@dataclass(frozen=True)
class Standing:
    """What was said and scored, of the latest rollouts (`MOST_ROWS` of `digest/transcript.py`). `after` makes a new one."""

    transcript: Mapping[str, Any] = field(default_factory=dict)
    near: Sequence[float] = ()
    """How near each rollout of the transcript came."""

    def after(self, groups: Sequence[Sequence[Rollout]], step: int) -> tuple[Standing, list[Signs]]:
        """Enter the groups of a step; for each, a matrix with 1 where the rollout of the row got further than that of the
        column, −1 where it got less far and 0 where words do not tell."""
        transcript = Transcript.from_data(self.transcript) if self.transcript else Transcript()
        known, near, places = len(transcript.rows), list(self.near), []
        for group in groups:
            places.append([_enter(transcript, rollout, step) for rollout in group])
            near += _near(group)
        journal = transcript.read()
        weighed = Weighed(journal.rows[:known], self.near)
        # Equal answers to a problem are told the same. What only they were told quotes them, or is too rare to be known.
        answers = {(row.problem, frozenset(row.said)) for row in journal.rows}
        times = Counter(key for _, keys in answers for key in keys)
        said = [frozenset(key for key in row.said if times[key] > 1) or frozenset(row.said) for row in journal.rows]
        order = Order(journal)

        def further(one: tuple[Rollout, int | None], other: tuple[Rollout, int | None]) -> int:
            if one[1] is None or other[1] is None:
                return 0
            return (
                _sign(*(_progress(each[0]) for each in (one, other)))
                or weighed.compare(said[one[1]], said[other[1]])
                or _fewer(order, said[one[1]], said[other[1]])
            )

        signs = []
        for group, at in zip(groups, places, strict=True):
            found = np.zeros((len(group), len(group)), dtype=np.int8)
            for one, other in combinations(range(len(group)), 2):
                found[one, other] = further((group[one], at[one]), (group[other], at[other]))
            signs.append(found - found.T)
        transcript.forget()
        return Standing(transcript.to_data(), near[len(near) - len(transcript.rows) :]), signs

    def to_data(self) -> dict[str, Any]:
        return {"transcript": self.transcript, "near": self.near}


class Weighed:
    """What statements are worth, by a ridge regression of how near answers came on what was said of them."""

    def __init__(self, rows: Sequence[Row], near: Sequence[float]) -> None:
        # Rollouts of one group of which the same was said are one observation.
        seen: dict[tuple[str, int, frozenset[str]], list[float]] = {}
        for row, value in zip(rows, near, strict=True):
            seen.setdefault((row.problem, row.cycle, frozenset(row.said) or frozenset({SILENT})), []).append(value)
        times = Counter(key for *_, keys in seen for key in sorted(keys))
        self._place = {key: place for place, (key, _) in enumerate(times.most_common(MOST_WEIGHED))}
        values = np.array([sum(each) / len(each) for each in seen.values()])
        made = np.array([self._marks(keys) for *_, keys in seen]).reshape(len(seen), len(self._place) + 1)
        self._cover = np.linalg.inv(made.T @ made + np.eye(made.shape[1]))
        self._worth = self._cover @ made.T @ values
        left = float(((values - made @ self._worth) ** 2).sum())
        self._noise = (left + UNSURE * float(values.var())) / (len(values) + UNSURE) if len(values) else 0.0

    def _marks(self, keys: frozenset[str]) -> NDArray[np.float64]:
        """1 for each of the statements, and for the constant."""
        marks = np.zeros(len(self._place) + 1)
        marks[[*(self._place[key] for key in keys if key in self._place), -1]] = 1.0
        return marks

    def compare(self, one: frozenset[str], other: frozenset[str]) -> int:
        unknown = any(keys and not keys & self._place.keys() for keys in (one, other))
        if one == other or unknown or not self._noise:
            return 0
        apart = self._marks(one or frozenset({SILENT})) - self._marks(other or frozenset({SILENT}))
        gap, error = float(apart @ self._worth), float(np.sqrt(self._noise * (apart @ self._cover @ apart)))
        return _sign(gap, 0.0) if abs(gap) > CLEAR * error else 0


def _enter(transcript: Transcript, rollout: Rollout, step: int) -> int | None:
    """The place of a rollout in the transcript; None where the grader did not see the answer."""
    if not _graded(rollout):
        return None
    lines = []
    for component in rollout.context.texts:
        if shown := attempt_of(rollout, component):
            lines += read_feedback(component, shown.feedback, shown.answer, shown.question, transcript.parts)
    keys = tuple(tuple(part.key for part in line) for line in lines)
    question = "\n".join(turn.question for turn in rollout.turns)
    answer = rollout.turns[-1].answer if rollout.turns else ""
    row = Graded(rollout.example.id, frozenset(), 0, rollout.score, step, keys)
    transcript.add(row, chain(*lines), question, answer)
    return len(transcript.rows) - 1


def _graded(rollout: Rollout) -> bool:
    return not is_faulty(rollout) and TOO_LONG not in rollout.faults


def _near(group: Sequence[Rollout]) -> list[float]:
    """Of the rollouts of a group that were graded: their own score plus the mean."""
    scores = [rollout.score for rollout in group if _graded(rollout)]
    return [score + sum(scores) / len(scores) for score in scores]


def _progress(rollout: Rollout) -> float | None:
    """What the grader says of it; few say it of right answers."""
    said = rollout.feedback.progress
    return None if rollout.score >= 1 and not said else said


def _fewer(order: Order, one: frozenset[str], other: frozenset[str]) -> int:
    if one > other:
        return -_fewer(order, other, one)
    known = bool(one) and one < other
    return int(known and all(order.passed(key, sorted(one)) >= SAID for key in other - one))


def _sign(one: float | None, other: float | None) -> int:
    return 0 if one is None or other is None else (one > other) - (one < other)
