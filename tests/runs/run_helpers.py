"""What the tests of the runs room build on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from fastslow.records import Completion, Context, Rollout, Turn
from fastslow.tasks.base import Example, Feedback

Start = Callable[[str], "subprocess.Popen[str]"]


def make_rollout(example: str = "a", score: float = 1.0, turns: int = 1, feedback: str = "right") -> Rollout:
    """A rollout of `turns` turns, each with 3 prompt tokens and 2 completion tokens."""
    turn = Turn(
        component="system",
        question="a question",
        prompt_ids=[1, 2, 3],
        completion=Completion([4, 5], [-0.1, -0.2]),
        answer="an answer",
    )
    return Rollout(
        Example(example, {}), Context({"system": "Think."}), 4, [turn] * turns, Feedback(score, feedback), {"grader": 1}
    )
