"""A reflector that fails, repeats itself or writes too much costs the cycle little and the population nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cycle_helpers import (
    PARTS,
    Scripted,
    Stage,
    add_counter,
    evolve,
    knows_rule,
    one_cycle,
    own_hint,
    pool_of,
    problems,
)

from fastslow.fast.optimizers.base import PATIENCE, TRIES
from fastslow.fast.reflection import ReflectionFailed, Request
from fastslow.recipe import FastRecipe

ANCHORS = problems(12)
MINIBATCH = 3


def fails(request: Request) -> str:
    raise ReflectionFailed("the server is away")


def refused(request: Request) -> str:
    raise ReflectionFailed("the key is refused", permanent=True)


def breaks(request: Request) -> str:
    raise ZeroDivisionError("a bug in the reflector")


def check_pool_survived(stage: Stage, found, texts: set[str]) -> None:
    assert {m.context.texts["system"] for m in found.pool.members} == texts
    assert all(len(m.scores) == len(ANCHORS) for m in found.pool.members)
    assert stage.booked["fast-score"] == 0
    assert not found.edits


@pytest.mark.parametrize(
    ("answer", "fault", "faults", "generations"),
    [
        (fails, "reflection_failed", PATIENCE, PATIENCE),
        (refused, "reflection_failed", 1, 1),
        (breaks, "reflection_failed", PATIENCE, PATIENCE),
        (lambda request: request.text, "proposal_not_new", PATIENCE * TRIES, PATIENCE),
        (lambda request: "B", "proposal_not_new", PATIENCE * TRIES, PATIENCE),
        (lambda request: "word " * 50, "proposal_too_long", PATIENCE * TRIES, PATIENCE),
    ],
    ids=["always fails", "fails for good", "breaks", "returns the parent", "returns another member", "writes too much"],
)
def test_a_hopeless_reflector_ends_the_cycle_not_the_run(
    answer: Callable[[Request], str], fault: str, faults: int, generations: int
) -> None:
    stage, reflector = Stage(knows_rule), Scripted(answer)
    found = evolve(stage, reflector, pool_of("A", "B"), ANCHORS, budget=10_000, max_tokens=20)
    check_pool_survived(stage, found, {"A", "B"})
    assert found.faults == {fault: faults}
    assert found.generations == generations
    assert stage.fast == generations * MINIBATCH  # the parents' minibatches, nothing for the children
    assert len(reflector.requests) == faults


def test_a_reflector_that_always_writes_the_same_is_tried_once_and_then_ends_the_cycle() -> None:
    stage = Stage(knows_rule)
    found = evolve(stage, Scripted(lambda request: "always this"), pool_of("A"), ANCHORS, budget=10_000)
    assert len(found.edits) == 1
    assert found.faults == {"proposal_not_new": PATIENCE * TRIES}
    assert stage.fast == (PATIENCE + 1) * MINIBATCH + MINIBATCH
    assert [m.context.texts["system"] for m in found.pool.members] == ["A"]


def test_now_and_then_a_failure_does_not_end_a_cycle() -> None:
    """Only failures in a row count: three fail, one works, and so on until the budget is spent."""
    calls, useless = 0, add_counter()

    def answer(request: Request) -> str:
        nonlocal calls
        calls += 1
        return useless(request) if calls % PATIENCE == 0 else fails(request)

    stage = Stage(knows_rule)
    found = evolve(stage, Scripted(answer), pool_of("A"), ANCHORS, budget=100)
    assert stage.fast >= 100
    assert found.faults["reflection_failed"] > PATIENCE
    assert found.edits


def test_a_long_known_or_partly_hidden_text_is_asked_for_again() -> None:
    texts = iter(["A", "word " * 50, "obey\u200b", "short enough", *(f"new {i}" for i in range(99))])
    stage = Stage(knows_rule)
    found = evolve(stage, Scripted(lambda request: next(texts)), pool_of("A"), ANCHORS, budget=6, max_tokens=20)
    assert found.faults == {"proposal_not_new": 1, "proposal_too_long": 1, "proposal_hidden_characters": 1}
    assert [edit.child for edit in found.edits] == [c.id for c in found.contexts if c.texts["system"] == "short enough"]
    assert [(each.texts["system"][:5], each.reason.partition(":")[0]) for each in found.rejected] == [
        ("A", "not new"),
        ("word ", "too long"),
        ("obey\u200b", "hidden characters"),
    ]


def test_an_edit_keeps_its_minibatch_with_the_scores_of_parent_and_child() -> None:
    answers = iter([*(anchor.data["hint"] for anchor in ANCHORS), *map(str, range(99))])
    found = evolve(Stage(knows_rule), Scripted(lambda request: next(answers)), pool_of("A"), ANCHORS, budget=40)
    for edit in found.edits:
        assert [sum(row[when] for row in edit.minibatch) / len(edit.minibatch) for when in ("before", "after")] == [
            edit.before,
            edit.after,
        ]
    assert {member.context.id for member in found.dropped}.isdisjoint(m.context.id for m in found.pool.members)


def test_what_goes_wrong_is_told() -> None:
    told: list[str] = []
    recipe = FastRecipe(budget=30)
    one_cycle(recipe, Scripted(breaks), Stage(knows_rule).play, pool_of("A"), ANCHORS, report=told.append)
    assert any("ZeroDivisionError: a bug in the reflector" in text for text in told)
    assert told[0] == "scoring 1 carried context(s) on 12 problems"


def test_a_failure_while_playing_is_not_hidden() -> None:
    """Sampling that fails (out of memory, a lost server) must stop the run, or it would train on nothing."""
    stage = Stage(knows_rule)

    def play(pairs, purpose, seed):
        if purpose == "fast-minibatch":
            raise RuntimeError("out of memory")
        return Stage.play(stage, pairs, purpose, seed)

    stage.play = play  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of memory"):
        evolve(stage, Scripted(add_counter()), pool_of("A"), ANCHORS)


def test_contexts_that_score_nothing_anywhere_can_still_evolve_in_two_components() -> None:
    """Where everybody scores 0, as on a hard task's first day, merging has no score to draw an ancestor by."""
    for seed in range(3):
        stage = Stage(knows_rule, ("plan", "solve"))
        pool = pool_of({"plan": "Plan.", "solve": "Solve."})
        found = evolve(stage, Scripted(own_hint), pool, PARTS, seed=seed, budget=150, proposals=2)
        assert found.pool.best.mean > 0
        assert all(0 <= score <= 1 for m in found.pool.members for score in m.scores.values())
