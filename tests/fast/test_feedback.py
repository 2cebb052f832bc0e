"""`fast.feedback: false`: no reflector sees a word of what the grader said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cycle_helpers import Scripted, Stage, add_counter, evolve, pool_of, problems

from fastslow.fast.reflection import LanguageModelReflector, Lessons, Reply
from fastslow.records import Rollout
from fastslow.tasks import Example, Feedback

ANCHORS = problems(12)
READERS = ["gepa", "textgrad", "reflexion", "ace", "dspy-gepa"]


class Talking(Stage):
    """A grader with words for all and, with several components, for each. Half of the problems are solved, and every word of
    a text helps a little with the others."""

    def __init__(self, *components: str) -> None:
        super().__init__(self._worth, components)

    @staticmethod
    def _worth(texts: Mapping[str, str], example: Example) -> float:
        words = sum(len(text.split()) for text in texts.values())
        return 1.0 if int(example.id.split("-")[1]) % 2 else min(0.9, 0.02 * words)

    def _rollout(self, example: Example, context: Any) -> Rollout:
        rollout = super()._rollout(example, context)
        own = {name: f"SECRET of {name}" for name in self.components} if len(self.components) > 1 else {}
        feedback = Feedback(rollout.score, "SECRET of the grader", by_component=own)
        return Rollout(example, rollout.context, rollout.policy_step, rollout.turns, feedback)


class Listening:
    """A chat that remembers what it hears and has something new to say, in the form it is asked for."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        heard = "\n".join(message["content"] for message in messages)
        self.heard.append(heard)
        text = f"Answer.\nIdea {len(self.heard)}."
        if "new_instruction" in heard:
            return Reply(f'{{"new_instruction": "Idea {len(self.heard)}."}}')
        return Reply(f"```\n{'ADD: ' if 'one line for each change' in heard else ''}{text}\n```")


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("components", [("system",), ("plan", "solve")])
@pytest.mark.parametrize("optimizer", READERS)
def test_a_model_hears_the_grader_or_does_not(optimizer: str, components: tuple[str, ...], feedback: bool) -> None:
    chat, texts = Listening(), dict.fromkeys(components, "Answer.")
    found = evolve(
        Talking(*components),
        LanguageModelReflector(chat),
        pool_of(texts),
        ANCHORS,
        optimizer=optimizer,
        feedback=feedback,
    )
    assert found.edits
    assert any("question problem-" in heard and "answer of" in heard for heard in chat.heard)  # attempts are shown
    assert any("SECRET" in heard for heard in chat.heard) == feedback
    if not feedback:
        assert not any(edit.feedback for edit in found.edits)


def test_gepa_is_told_of_the_same_attempts_with_and_without() -> None:
    reflectors = {feedback: Scripted(add_counter()) for feedback in (True, False)}
    for feedback, reflector in reflectors.items():
        evolve(Talking("plan", "solve"), reflector, pool_of({"plan": "P", "solve": "S"}), ANCHORS, feedback=feedback)
    seen, unseen = (
        [[(a.question, a.answer, a.score) for a in request.attempts] for request in reflector.requests]
        for reflector in reflectors.values()
    )
    assert seen == unseen != []
    assert {a.feedback for request in reflectors[False].requests for a in request.attempts} == {""}
    assert {a.feedback for request in reflectors[True].requests for a in request.attempts} == {
        "SECRET of plan", "SECRET of solve",
    }  # fmt: skip


@pytest.mark.parametrize("optimizer", READERS)
def test_without_a_model_nothing_is_learnt_and_nothing_breaks(optimizer: str) -> None:
    """Lines that a text has can be dropped, and no other can be added."""
    pool = pool_of("Answer.\nThink.\nCheck.")
    found = evolve(Talking("system"), Lessons(), pool, ANCHORS, optimizer=optimizer, feedback=False)
    lines = {line for context in found.contexts for line in context.texts["system"].splitlines()}
    assert lines == {"Answer.", "Think.", "Check."}
    assert set(found.faults) <= {"reflection_failed", "proposal_not_new"}
