"""A penalty whose best is said to be 1."""

from __future__ import annotations

from fastslow.records import Context, Example, Feedback, Rollout
from fastslow.runs.ranges import MANY, Ranges


def rollouts(count: int, **parts: float) -> list[Rollout]:
    feedback = Feedback(0.5, "", parts=parts)
    return [Rollout(Example("a", {}), Context({"system": ""}), 0, (), feedback)] * count


def test_a_penalty_with_a_high_above_0_is_told_once() -> None:
    ranges = Ranges({"penalty": (-1, 1), "accuracy": (-1, 1), "right": (-1, 0), "plain": (0, 1)})
    parts = {"penalty": -0.48, "accuracy": -1, "right": -0.48, "plain": 0}
    assert list(ranges.add(rollouts(MANY - 1, **parts | {"accuracy": 1}))) == []
    (said,) = ranges.add(rollouts(1, **parts))
    assert said.startswith(f"penalty has never been above 0 in {MANY} rollouts, but high=1: ")
    assert list(ranges.add(rollouts(MANY, **parts))) == []
