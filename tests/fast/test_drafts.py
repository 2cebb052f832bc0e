"""Edits drafted while the model trains: what they are made from, where they are used, and that nobody waits for them."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count
from typing import Any

import pytest
from cycle_helpers import Scripted, Stage, add_counter, add_hint, evolve, knows_rule, own_hint, pool_of, problems

from fastslow.base.world import World
from fastslow.fast.cycle import Cycle, FastLoop
from fastslow.fast.drafts import PARALLEL_CALLS, Desk, Draft, expected, make_drafts
from fastslow.fast.evidence import Evidence
from fastslow.fast.pool import Member, Pool
from fastslow.fast.reflection import Attempt, Lessons, ReflectionFailed, Reflector, Request
from fastslow.recipe import FastRecipe

ANCHORS = problems(12)
SIZES: dict[str, Any] = {"population": 2, "minibatch": 3, "anchors": 12, "budget": 120}
RECIPE = FastRecipe(**SIZES)


def evidence_of(pool: Pool, components: tuple[str, ...] = ("system",)) -> Evidence:
    stage = Stage(knows_rule, components)
    return Evidence(stage._rollout(example, m.context) for example in ANCHORS for m in pool.members for _ in range(2))


def drafts(reflector: Reflector, pool: Pool, evidence: Evidence | None = None, seed: int = 0) -> list[Draft]:
    seen = evidence_of(pool) if evidence is None else evidence
    return make_drafts(RECIPE, reflector, pool, seen, lambda text: len(text.split()), budget=RECIPE.budget, seed=seed)


def test_drafts_are_edits_of_what_went_wrong_under_a_parent() -> None:
    reflector = Scripted(add_hint)
    made = drafts(reflector, pool_of("A", "B"))
    assert len(made) == expected(RECIPE, 120) == 10  # 120 / (2 · 3 + 12 / 2)
    parents = {m.context.id: m.context for m in pool_of("A", "B").members}
    for draft in made:
        (request,) = [each for each in reflector.requests if each.attempts is draft.attempts]
        assert request.text == parents[draft.parent].texts["system"]
        assert draft.text == add_hint(request)
        assert len({attempt.question for attempt in draft.attempts}) == 3
    assert len({request.seed for request in reflector.requests}) == 10


def test_parents_are_drawn_as_a_cycle_draws_them() -> None:
    first, second, third = pool_of("A", "B", "C").members
    pool = Pool((Member(first.context, {}, 0, True, 9), Member(second.context, {}, 0, True, 3), third))
    counts: Counter[str] = Counter()
    for seed in range(60):
        counts.update(draft.parent for draft in drafts(Scripted(add_hint), pool, seed=seed))
    assert set(counts) == {first.context.id, second.context.id}  # none that is best nowhere
    assert counts[first.context.id] / counts.total() == pytest.approx(0.75, abs=0.06)


def test_the_same_rollouts_pool_and_seed_give_the_same_drafts() -> None:
    assert drafts(Lessons(), pool_of("A", "B")) == drafts(Lessons(), pool_of("A", "B"))
    assert drafts(Lessons(), pool_of("A", "B")) != drafts(Lessons(), pool_of("A", "B"), seed=1)


def test_components_take_turns() -> None:
    pool = pool_of({"plan": "p", "solve": "s"})
    made = drafts(Scripted(own_hint), pool, evidence_of(pool, ("plan", "solve")))
    assert [draft.component for draft in made[:4]] == ["plan", "solve", "plan", "solve"]


def test_without_rollouts_there_is_nothing_to_draft_from() -> None:
    reflector = Scripted(add_hint)
    assert drafts(reflector, pool_of("A"), Evidence()) == []
    assert not reflector.requests


def test_without_a_budget_nothing_is_asked() -> None:
    reflector, pool = Scripted(add_hint), pool_of("A")
    assert make_drafts(RECIPE, reflector, pool, evidence_of(pool), len, budget=0, seed=0) == []
    assert not reflector.requests


def test_failures_cost_their_draft_and_for_good_ends_the_drafting() -> None:
    turns = count()

    def sometimes(request: Request) -> str:
        if next(turns) % 2:
            raise ReflectionFailed("away")
        return add_hint(request)

    def refused(request: Request) -> str:
        raise ReflectionFailed("refused", permanent=True)

    def breaks(request: Request) -> str:
        raise ZeroDivisionError

    reflector = Scripted(sometimes)
    assert len(drafts(reflector, pool_of("A"))) == 5
    for answer in (refused, breaks):
        reflector = Scripted(answer)
        assert drafts(reflector, pool_of("A")) == []
        assert len(reflector.requests) <= PARALLEL_CALLS < expected(RECIPE, 120)


def only_together(parties: int) -> Scripted:
    """Answers when so many ask at a time, and else not at all."""
    together = threading.Barrier(parties)

    def slow(request: Request) -> str:
        together.wait(timeout=20)
        return f"{request.text}\nedit {request.seed}"

    return Scripted(slow)


def test_drafts_are_asked_for_side_by_side() -> None:
    assert len(drafts(only_together(5), pool_of("A"))) == 10
    assert drafts(Scripted(add_hint), pool_of("A")) == drafts(Scripted(add_hint), pool_of("A"))  # whoever answers first


# In a cycle ------------------------------------------------------------------------------------------------------------


def test_a_cycle_takes_a_draft_where_it_would_have_asked() -> None:
    reflector, pool = Scripted(add_counter()), pool_of("A")
    seen = [Attempt("a question", "an answer", "what the draft was made from", 0.0)]
    made = [Draft(pool.best.context.id, "system", f"A\ndrafted {n}", seen) for n in range(3)]
    stage = Stage(knows_rule)
    loop = FastLoop(RECIPE, reflector, stage.play, lambda text: len(text.split()), World())
    found = loop.evolve(pool, ANCHORS, cycle=1, policy_step=0, seed=0, drafts=made, budget=5 * 6)
    texts = {context.id: context.texts["system"] for context in found.contexts}
    assert [texts[edit.child] for edit in found.edits[:3]] == ["A\ndrafted 0", "A\ndrafted 1", "A\ndrafted 2"]
    assert all(edit.feedback == ["what the draft was made from"] for edit in found.edits[:3])
    assert len(found.edits) == 5
    assert len(reflector.requests) == 2  # from here on it asks


def test_drafts_of_others_and_unusable_ones_are_passed_over() -> None:
    reflector, pool = Scripted(add_counter()), pool_of("A")
    mine = pool.best.context.id
    made = [Draft("somebody", "system", "X", []), Draft(mine, "other", "X", []), Draft(mine, "system", "A", [])]
    loop = FastLoop(RECIPE, reflector, Stage(knows_rule).play, lambda text: len(text.split()), World())
    found = loop.evolve(pool, ANCHORS, cycle=1, policy_step=0, seed=0, drafts=made, budget=6)
    assert "X" not in {context.texts["system"] for context in found.contexts}
    assert found.faults == {"proposal_not_new": 1}
    assert len(reflector.requests) == 1


def test_what_a_generation_has_no_drafts_of_is_asked_for_side_by_side() -> None:
    recipe = FastRecipe(**{**SIZES, "optimizer": {"proposals": 4}, "overlap": True})

    def cycle() -> Cycle:
        pool = pool_of("A")
        made = [Draft(pool.best.context.id, "system", "A\ndrafted", [])]
        reflector = only_together(3)
        loop = FastLoop(recipe, reflector, Stage(knows_rule).play, lambda text: len(text.split()), World())
        found = loop.evolve(pool, ANCHORS, cycle=1, policy_step=0, seed=0, drafts=made, budget=1)
        assert len(reflector.requests) == 3
        return found

    found = cycle()
    texts = {context.id: context.texts["system"] for context in found.contexts}
    first, *others = [texts[edit.child] for edit in found.edits]
    assert first == "A\ndrafted"
    assert len(set(others)) == 3
    assert all(edit.feedback and edit.before == 0 for edit in found.edits[1:])
    assert cycle() == found  # whoever answers first


def test_what_fails_side_by_side_is_asked_for_again_and_told() -> None:
    def refused(request: Request) -> str:
        raise ReflectionFailed("away")

    recipe = FastRecipe(**{**SIZES, "optimizer": {"proposals": 3}, "overlap": True})
    reflector = Scripted(refused)
    loop = FastLoop(recipe, reflector, Stage(knows_rule).play, lambda text: len(text.split()), World())
    found = loop.evolve(pool_of("A"), ANCHORS, cycle=1, policy_step=0, seed=0)
    assert not found.edits
    assert found.faults == {"reflection_failed": 6}  # two generations, then the cycle is tired of it
    assert len(reflector.requests) == 12


def test_without_drafts_a_cycle_is_as_ever() -> None:
    one, two = Stage(knows_rule), Stage(knows_rule)
    first = evolve(one, Lessons(), pool_of("A"), ANCHORS)
    loop = FastLoop(FastRecipe(population=4, budget=120), Lessons(), two.play, lambda text: len(text.split()), World())
    second = loop.evolve(pool_of("A"), ANCHORS, cycle=0, policy_step=0, seed=0, drafts=[], evidence=None)
    assert one.calls == two.calls
    assert first.pool == second.pool


# In a thread -----------------------------------------------------------------------------------------------------------


def test_work_goes_on_while_drafts_are_made() -> None:
    trained, draft = threading.Event(), Draft("p", "system", "text", [])

    def slow() -> list[Draft]:
        assert trained.wait(timeout=10)  # finishes only after the main thread has done its part
        return [draft]

    desk = Desk()
    desk.start(slow)
    assert desk.started
    trained.set()
    assert desk.collect(lambda: []) == [draft]
    assert not desk.started


def test_where_none_were_begun_they_are_made_at_once() -> None:
    draft = Draft("p", "system", "text", [])
    assert Desk().collect(lambda: [draft]) == [draft]


def test_what_goes_wrong_in_the_thread_is_heard() -> None:
    def breaks() -> list[Draft]:
        raise ZeroDivisionError("in the thread")

    desk = Desk()
    desk.start(breaks)
    with pytest.raises(ZeroDivisionError, match="in the thread"):
        desk.collect(lambda: [])
    assert desk.collect(lambda: []) == []
