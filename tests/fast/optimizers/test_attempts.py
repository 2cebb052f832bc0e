"""What one component is shown of a rollout."""

from __future__ import annotations

from typing import Any

import pytest

from fastslow.fast.optimizers.base import attempt_of
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.rollouts.play import FAULT


def turn(component: str, **changes: Any) -> Turn:
    return Turn(component, f"ask {component}", (3,), Completion((4,), (-1.0,)), f"answer of {component}", **changes)


def rollout(*turns: Turn, **feedback: Any) -> Rollout:
    given = Feedback(0.5, "of all", **feedback)
    return Rollout(Example("one", {}), Context({}), 0, turns, given, given.faults)


BOTH = (turn("plan"), turn("solve"))


def test_a_component_is_shown_its_own_turns_with_the_words_for_it() -> None:
    attempt = attempt_of(rollout(*BOTH, by_component={"plan": "of the plan"}), "plan")
    assert attempt is not None
    assert (attempt.question, attempt.answer) == ("ask plan", "answer of plan")
    assert (attempt.feedback, attempt.score) == ("of the plan", 0.5)
    other = attempt_of(rollout(*BOTH, by_component={"plan": "of the plan"}), "solve")
    assert other is not None
    assert (other.question, other.feedback) == ("ask solve", "of all")


def test_a_text_that_stood_before_anothers_question_has_a_part_in_that_turn() -> None:
    loaded = rollout(turn("plan", shown={"skills": "Sort."}), turn("solve", shown={}), turn("check"))
    attempt = attempt_of(loaded, "skills")
    assert attempt is not None
    assert attempt.question == "ask plan"


def test_a_tool_that_is_not_asked_has_a_part_in_all_turns_if_there_are_words_for_it() -> None:
    attempt = attempt_of(rollout(*BOTH, by_component={"tool": "it returned nothing"}), "tool")
    assert attempt is not None
    assert (attempt.question, attempt.feedback) == ("ask plan\n\nask solve", "it returned nothing")


@pytest.mark.parametrize(
    ("feedback", "component", "shows_feedback"),
    [
        ({"faults": {FAULT: 1}}, "plan", True),
        ({"faults": {FAULT: 1}}, "plan", False),
        ({"by_component": {"plan": ""}}, "plan", True),
        ({}, "tool", True),
        ({}, "tool", False),
        ({"by_component": {"tool": "it returned nothing"}}, "tool", False),
    ],
    ids=[
        "faulty",
        "faulty, by scores alone",
        "nothing to teach it",
        "no words",
        "no words, by scores alone",
        "words unread",
    ],
)
def test_where_nothing_can_be_learnt_nothing_is_shown(
    feedback: dict[str, Any], component: str, shows_feedback: bool
) -> None:
    assert attempt_of(rollout(*BOTH, **feedback), component, shows_feedback=shows_feedback) is None


def test_by_scores_alone_a_turn_is_shown_without_words() -> None:
    attempt = attempt_of(rollout(*BOTH, by_component={"plan": ""}), "plan", shows_feedback=False)
    assert attempt is not None
    assert (attempt.answer, attempt.feedback) == ("answer of plan", "")
