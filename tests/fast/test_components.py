"""Components as records: their kinds, and feedback on one that is never asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from cycle_helpers import Scripted, Stage, add_counter, knows_rule, one_cycle, pool_of, problems

from fastslow.base.errors import TaskError
from fastslow.fast.reflection import LanguageModelReflector, Lessons, Reply, Request
from fastslow.fast.reflection import base as kinds
from fastslow.recipe import FastRecipe
from fastslow.records import Component, Context, Feedback, Rollout
from fastslow.tasks import Example, QuestionTask, Task

ANCHORS = problems(12)


class Tooled(Stage):
    """A program that asks `system` twice and uses a tool, of which only the grader speaks."""

    def __init__(self) -> None:
        super().__init__(lambda texts, example: knows_rule({"tool": texts["tool"]}, example), ("system", "system"))

    def _rollout(self, example: Example, context: Context) -> Rollout:
        rollout = super()._rollout(example, context)
        words = {} if rollout.score >= 1 else {"tool": rollout.feedback.text, "system": ""}
        feedback = Feedback(rollout.score, "", by_component=words)
        return Rollout(example, context, rollout.policy_step, rollout.turns, feedback)


@pytest.mark.parametrize("optimizer", ["gepa", "textgrad"])
def test_a_component_that_is_never_asked_learns_from_the_words_for_it(optimizer: str) -> None:
    recipe = FastRecipe(optimizer=optimizer, population=4, budget=400)
    pool = pool_of({"system": "Answer.", "tool": "Search."})
    found = one_cycle(recipe, Lessons(), Tooled().play, pool, ANCHORS)
    best = found.pool.best
    assert best.mean == 1.0
    assert set(best.context.texts["tool"].splitlines()) == {"Search.", "rule 0", "rule 1", "rule 2"}
    assert best.context.texts["system"] == "Answer."


def test_its_attempts_show_the_whole_rollout() -> None:
    reflector = Scripted(add_counter())
    pool = pool_of({"tool": "Search.", "system": "Answer."})
    one_cycle(FastRecipe(population=4, budget=20), reflector, Tooled().play, pool, ANCHORS)
    of_tool = [request for request in reflector.requests if request.component == "tool"]
    attempts = [attempt for request in of_tool for attempt in request.attempts]
    assert attempts
    for attempt in attempts:
        assert attempt.question.count(" to system") == 2
        assert attempt.answer == "answer of system\n\nanswer of system"
        assert attempt.feedback.startswith("rule ")


def test_without_words_for_it_or_without_feedback_it_has_no_attempts() -> None:
    for stage, feedback in ((Stage(knows_rule, ("system",)), True), (Tooled(), False)):
        reflector = Scripted(add_counter())
        recipe = FastRecipe(population=4, budget=20, feedback=feedback)
        one_cycle(recipe, reflector, stage.play, pool_of({"tool": "Search.", "system": "Answer."}), ANCHORS)
        assert not [each for request in reflector.requests if request.component == "tool" for each in request.attempts]


class Verse(kinds.Prompt):
    """Text in lines of three words."""

    def check(self, text: str, count_tokens: Any, max_tokens: int) -> kinds.Refusal | None:
        if any(len(line.split()) != 3 for line in text.splitlines()):
            return kinds.Refusal("proposal_no_verse", "a line has not three words")
        return super().check(text, count_tokens, max_tokens)

    def show(self, component: str, text: str, fence: str) -> str:
        return f"The poem {component}: {text}"


def test_a_kind_checks_and_shows_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.KINDS, "verse", Verse())
    asked: list[str] = []

    def chat(messages: list[dict[str, str]], seed: int) -> Reply:
        asked.append(messages[0]["content"])
        return Reply(f"```\nroses are red\n{'violets are blue' if len(asked) % 2 else 'violets'}\n```")

    components = [Component("system", "verse", "roses are red")]
    found = one_cycle(
        FastRecipe(population=4, budget=20, optimizer={"name": "gepa", "proposer": "full"}),
        LanguageModelReflector(chat),
        Stage(knows_rule).play,
        pool_of("roses are red"),
        ANCHORS,
        components=components,
    )
    assert asked[0].startswith("The poem system: roses are red\n")
    assert [edit.component for edit in found.edits] == ["system"]
    assert {"a line has not three words"} <= {each.reason for each in found.rejected}
    assert found.faults["proposal_no_verse"] > 0


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="kind 'song'; expected one of prompt"):
        kinds.kind_of(Component("melody", "song"))


def test_the_prompt_for_an_edit_says_what_to_leave_alone() -> None:
    text = kinds.KINDS["prompt"].ask("light", 64, "```")
    assert "leave the rest of the text unchanged" in text
    assert isinstance(Request("a", "b", [], "light", 1, len, 0).kind, kinds.Prompt)


class Stated(Task):
    def examples(self, split: Any) -> Sequence[Example]:
        return []


class Compound(Stated):
    @property
    def components(self) -> Sequence[Component]:
        return [Component("plan", seed="Plan."), Component("tool", kind="prompt", seed="Search.")]


class Texts(Stated):
    @property
    def seed_texts(self) -> Mapping[str, str]:
        return {"plan": "Plan.", "solve": "Solve."}


class Short(QuestionTask):
    seed_text = "Be brief."

    def examples(self, split: Any) -> Sequence[Example]:
        return []

    def messages(self, example: Example) -> list[dict[str, str]]:
        return []

    def grade(self, example: Example, answer: str) -> Feedback:
        return Feedback(0.0)


def test_components_and_their_short_forms_agree() -> None:
    assert Short(None).components == [Component("system", "prompt", "Be brief.")]
    assert Texts(None).components == [Component("plan", seed="Plan."), Component("solve", seed="Solve.")]
    assert Compound(None).seed_texts == {"plan": "Plan.", "tool": "Search."}
    with pytest.raises(TaskError, match="Stated says nothing of what evolves"):
        _ = Stated(None).components
