"""What a run records of its steps."""

from __future__ import annotations

from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.runs.recorder import mean_parts, token_ages


def test_ages_count_every_token_by_the_policy_that_drew_it() -> None:
    def rollout(policy_step: int, *completions: Completion) -> Rollout:
        turns = [Turn("system", "", (), completion, "") for completion in completions]
        return Rollout(Example("a", {}), Context({}), policy_step, turns, Feedback(0.0))

    plain, mixed = Completion((1, 2), (0.0, 0.0)), Completion((1, 2, 3), (0.0,) * 3, (4, 4, 6))
    assert token_ages([rollout(6, plain), rollout(4, mixed, plain)], 6) == {0: 3, 2: 4}
    assert token_ages([], 6) == {}


def test_parts_of_scores_are_averaged_over_the_rollouts_that_have_them() -> None:
    def rollout(**parts: float) -> Rollout:
        return Rollout(Example("a", {}), Context({}), 0, [], Feedback(0.0, parts=parts))

    assert mean_parts([rollout(form=1.0), rollout(form=-2.0, length=4.0), rollout()]) == {"form": -0.5, "length": 4.0}
    assert mean_parts([rollout()]) == {}
