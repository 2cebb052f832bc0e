"""DSPy's optimizers on our contexts."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from cycle_helpers import Stage, evolve, knows_rule, pool_of, problems
from optimizer_helpers import each, half, needs_optuna, scripted
from rich.console import Console

from fastslow.base.errors import RecipeError
from fastslow.fast.optimizers.dspy_search import hushed
from fastslow.fast.pool import Member, Pool
from fastslow.fast.reflection import Attempt, LanguageModelReflector, Lessons, Reply
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Context

ANCHORS = problems(12)
both = each("mipro", "dspy-gepa")


@pytest.mark.parametrize("optimizer", ["mipro", "dspy-gepa"])
@pytest.mark.parametrize("missing", ["dspy", "optuna"])
def test_a_missing_package_is_one_error_with_the_line_to_type(
    optimizer: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (optimizer, missing) == ("dspy-gepa", "optuna"):
        OPTIMIZER.registry.find(optimizer)  # has no use for it
        return
    for name in ("dspy_search", "mipro", "dspy_gepa"):
        monkeypatch.delitem(sys.modules, f"fastslow.fast.optimizers.{name}", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(RecipeError, match=rf"fast.optimizer=mipro .*needs? the package {missing}.*fastslow\[dspy\]"):
        OPTIMIZER.registry.find(optimizer)


@both
def test_an_evaluation_is_played_as_one_batch_and_a_known_one_not_at_all(optimizer: str) -> None:
    stage = Stage(half)
    evolve(stage, Lessons(), pool_of("A"), ANCHORS, budget=100, optimizer=optimizer)
    assert {(purpose, len(pairs)) for purpose, _, pairs in stage.calls} == {
        ("rescore", 12), ("fast-minibatch", 3), ("fast-score", 12),
    }  # fmt: skip
    full = [pairs[0][0] for purpose, _, pairs in stage.calls if purpose != "fast-minibatch"]
    assert len(full) == len(set(full))


@both
def test_dspy_is_quiet(optimizer: str, capfd: pytest.CaptureFixture[str]) -> None:
    for reflector in (Lessons(), scripted()[0]):
        evolve(Stage(half), reflector, pool_of("A"), ANCHORS, budget=60, optimizer=optimizer)
    assert capfd.readouterr() == ("", "")


def test_what_the_run_shows_is_shown_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    with hushed():
        print("a progress bar")
        print("a warning", file=sys.stderr)
        console.print("cycle 3")
    assert capsys.readouterr() == ("cycle 3\n", "")


@both
def test_a_text_that_dspy_would_tidy_up_is_left_as_it_is(optimizer: str) -> None:
    """DSPy takes indentation and blank lines off instructions."""
    stage, text = Stage(half), "  Answer.\n\n    Twice.\n"
    found = evolve(stage, Lessons(), pool_of(text, "B"), ANCHORS, budget=60, optimizer=optimizer)
    seeds = [context.texts["system"] for context in found.contexts if not context.parents]
    assert seeds == [text, "B"]
    scored = [pairs[0][0] for purpose, _, pairs in stage.calls if purpose == "fast-score"]
    assert found.contexts[0].id not in scored  # it was known by its scores


@both
def test_tasks_that_are_dspy_programs_themselves_play_under_the_settings_of_the_user(optimizer: str) -> None:
    stage, seen = Stage(half), []
    mine = dspy.JSONAdapter()

    def play(pairs, purpose, seed):
        seen.append((dspy.settings.adapter, dspy.settings.lm, list(dspy.settings.callbacks or [])))
        return Stage.play(stage, pairs, purpose, seed)

    stage.play = play  # type: ignore[method-assign]
    with dspy.context(adapter=mine):
        evolve(stage, Lessons(), pool_of("A"), ANCHORS, budget=60, optimizer=optimizer)
    assert len(seen) > 3
    assert all(each == seen[0] for each in seen)
    assert seen[0][0] is mine


@both
def test_a_text_that_is_too_long_is_refused_before_it_is_played(optimizer: str) -> None:
    _, chat = scripted()

    def wordy(messages: list[dict[str, str]], seed: int) -> Reply:
        return Reply(chat(messages, seed).text.replace("Idea", "Idea " * 30))

    stage = Stage(half)
    found = evolve(
        stage, LanguageModelReflector(wordy), pool_of("A"), ANCHORS, budget=60, max_tokens=20, optimizer=optimizer
    )
    assert found.faults["proposal_too_long"] > 0
    assert {context for _, _, pairs in stage.calls for context, _ in pairs} == {found.contexts[0].id}
    assert not found.edits


@both
def test_an_answer_that_dspy_cannot_read_ends_the_cycle_at_most(optimizer: str) -> None:
    stage = Stage(half)
    mumbling = LanguageModelReflector(lambda messages, seed: Reply("hm"))
    found = evolve(stage, mumbling, pool_of("A"), ANCHORS, budget=60, optimizer=optimizer)
    assert [member.context.texts["system"] for member in found.pool.members] == ["A"]
    assert stage.fast <= 60


@needs_optuna
def test_trials_and_full_scorings_fit_into_the_budget() -> None:
    from fastslow.fast.optimizers.mipro import FULL_EVERY, affordable_trials

    for minibatch, anchors in ((3, 12), (6, 24), (3, 192), (12, 12)):
        for rollouts in range(0, 1000, 37):
            trials = affordable_trials(rollouts, minibatch, anchors)
            fulls = 0 if minibatch >= anchors else trials // FULL_EVERY + 1
            assert trials == 0 or trials * minibatch + fulls * anchors <= rollouts
    assert affordable_trials(960, 3, 192) == 19
    assert affordable_trials(14, 3, 12) == 0


@both
def test_the_reflection_model_is_told_of_the_problems(optimizer: str) -> None:
    reflector, chat = scripted()
    evolve(Stage(knows_rule), reflector, pool_of("A\nrule 0"), ANCHORS, budget=60, optimizer=optimizer)
    assert any("question problem-" in heard for heard in chat.heard)
    assert any("A\nrule 0" in heard or "A\\nrule 0" in heard for heard in chat.heard)


@needs_optuna
def test_without_a_model_mipro_demonstrates_right_answers_only() -> None:
    from fastslow.fast.optimizers.mipro import Mipro

    given: list[str] = []
    attempts = {
        name: Attempt(f"question {name}", f"answer {name}", "", score) for name, score in (("a", 1.0), ("b", 0.5))
    }
    best = Member(Context({"system": "Answer."}))
    search: Any = SimpleNamespace(
        full={best.context.id: {name: [name] for name in attempts}},
        carried=Pool((best,)),
        components=["system"],
        questions=[],
        attempt=lambda rollout, component: attempts[rollout],
        text_request=lambda what, text, fence, by_hand: by_hand,
        ask=lambda by_hand: given.extend(line for seed in range(40) for line in by_hand(random.Random(seed))) or "new",
    )
    assert Mipro.instruction(search, "Answer.") == "new"
    assert any("answer a" in line for line in given)
    assert not any("answer b" in line for line in given)
