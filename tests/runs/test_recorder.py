"""What a run records of its steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.runs.recorder import INTERVAL, SHARE, Pace, Recorder, mean_parts, token_ages
from fastslow.slow.steady import WINDOW, Course, Point


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


def test_when_words_begin_or_cease_to_count_is_said() -> None:
    said: list[str] = []
    recorder: Any = SimpleNamespace(_trusted=True, view=SimpleNamespace(message=said.append))
    for step, trusted in enumerate([True, True, False, False, None, True]):
        Recorder._say_what_words_count(recorder, {"step": step, "words_trusted": trusted})
        Recorder._say_what_words_count(recorder, {"step": step})  # without words
    assert [text.split(",")[0] for text in said] == ["step 2", "step 4", "step 5"]


def test_a_collapse_is_said_once() -> None:
    said: list[str] = []
    state: Any = SimpleNamespace(step=0, course=Course(None))
    view = SimpleNamespace(message=lambda text, kind: said.append(text))
    recorder: Any = SimpleNamespace(_collapsed=False, state=state, view=view)
    for state.step in range(1, 3 * WINDOW):  # a tenth of the entropy after the first window
        state.course.add(Point(state.step, 0.0, 0.01, 1.0, 1.0 if state.step <= WINDOW else 0.1))
        Recorder._warn_if_collapsed(recorder)
    assert [text.split(":")[0] for text in said] == [f"step {2 * WINDOW}"]


# When a checkpoint is due -------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_due_once_its_interval_is_over() -> None:
    now = 1000.0
    pace = Pace(lambda: now)
    now += INTERVAL - 1
    assert not pace.due()
    now += 1
    assert pace.due()


@pytest.mark.parametrize("seconds", [0.1, 60.0])
def test_checkpoints_by_time_cost_a_fiftieth_of_it_at_most(seconds: float) -> None:
    now, spent, saved = 0.0, 0.0, 0
    pace = Pace(lambda: now)
    while now < 100 * INTERVAL:
        now += 7
        if pace.due():
            now, spent, saved = now + seconds, spent + seconds, saved + 1
            pace.saved(seconds)
    assert spent <= 0.02 * now
    assert saved >= min(90, 0.8 * 0.02 * now / seconds)


def test_extra_checkpoints_cost_at_most_a_share_of_the_time() -> None:
    now = 1000.0
    pace = Pace(lambda: now)
    assert pace.affordable()
    pace.saved(0.9)
    assert pace.affordable(), "no clock decides what a small run saves"
    pace.saved(1.0)
    assert not pace.affordable()
    pace.saved(4.0)
    now += 4.0 / SHARE - 1
    assert not pace.affordable()
    now += 1
    assert pace.affordable()
