"""Faulty grades: what a grader, a tool or an environment that fails costs, and when it stops the run.

A task that raises, returns something other than feedback, or runs out of time or turns costs its rollout: the rollout scores
0, is counted as faulty and is shown to no reflector. Its error is for people. Too many of them stop the run, because its
rewards would mean nothing.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.records import Rollout

FAULT = "grader"
"""The name under which a rollout and the ledger count a faulty grade."""
LEAST = 20
"""Rollouts of a step before its share of faulty grades is judged; at the end of a step any number is."""
_OWN = str(Path(__file__).parent.parent)


class GradingError(TaskError):
    """Too many grades are faulty."""


class FaultyGrades:
    """Counts the grades of a step and refuses more faulty ones than `limit`, a share."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._graded = 0
        self._faulty: list[Rollout] = []

    def count(self, rollouts: Sequence[Rollout]) -> None:
        self._graded += len(rollouts)
        self._faulty += [rollout for rollout in rollouts if is_faulty(rollout)]
        if self._graded >= LEAST:
            self._check()

    def end_step(self) -> None:
        """Judge the step, and begin the next."""
        self._check()
        self._graded, self._faulty = 0, []

    def _check(self) -> None:
        if len(self._faulty) > self.limit * self._graded:
            raise GradingError(
                f"{len(self._faulty)} of {self._graded} grades are faulty, and grading.faulty={self.limit:g} allows a share "
                f"of {self.limit:.0%} in a step; {first_error(self._faulty)}; correct the grader, or raise grading.faulty"
            )


def is_faulty(rollout: Rollout) -> bool:
    return FAULT in rollout.faults


def first_error(faulty: Sequence[Rollout]) -> str:
    """The first of some faulty grades, for people."""
    return f"the first is problem '{one_line(faulty[0].example.id, 60)}': {faulty[0].error}"


def describe(error: BaseException) -> str:
    """An error of a task on one line, with the line of the code outside this package that it came from."""
    words = one_line(error) if isinstance(error, TaskError) else f"{type(error).__name__}: {one_line(error)}"
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames if not frame.filename.startswith(_OWN)]
    return f"{words.rstrip('.')} ({places[-1]})" if places else words.rstrip(".")
