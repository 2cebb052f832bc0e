"""One cycle of the fast loop with real gepa, in a world where every context's score is known."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from cycle_helpers import (
    PARTS,
    Scripted,
    Stage,
    add_counter,
    add_hint,
    by_text,
    evolve,
    knows_rule,
    one_cycle,
    own_hint,
    pool_of,
    problems,
)

from fastslow.fast.memory import Evidence
from fastslow.fast.optimizers.base import Cycle
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons, Request
from fastslow.recipe import FastRecipe
from fastslow.records import Context, Rollout
from fastslow.tasks import Example

ANCHORS = problems(12)


def flat(cycle: Cycle) -> tuple:
    return cycle.pool.to_dict(), [vars(edit) for edit in cycle.edits], cycle.generations, cycle.faults


@pytest.mark.parametrize("reflector", [Lessons(), Scripted(add_hint)])
def test_the_rules_hidden_in_the_feedback_are_found(reflector) -> None:
    stage = Stage(knows_rule)
    found = evolve(stage, reflector, pool_of("Answer."), ANCHORS, budget=200)
    best = found.pool.best
    assert best.mean == 1.0
    assert set(best.context.texts["system"].splitlines()) >= {"rule 0", "rule 1", "rule 2"}
    assert all(m.scored_at == 0 and len(m.scores) == len(ANCHORS) for m in found.pool.members)
    for m in found.pool.members:  # the scores are what the world says, under the problems' own ids
        assert m.scores == {example.id: knows_rule(m.context.texts, example) for example in ANCHORS}


# Starting from the whole population, with scores of the current policy -------------------------------------------------


def test_the_whole_carried_population_takes_part_with_fresh_scores() -> None:
    """Each carried context alone solves one kind of problem; all of them are parents, none is scored inside the budget."""
    stage = Stage(knows_rule)
    stale = [{example.id: 0.0 for example in ANCHORS}] * 3
    pool = pool_of("A\nrule 0", "B\nrule 1", "C\nrule 2", scores=stale)
    stage.policy_step = 7
    reflector = Scripted(add_counter())
    found = evolve(stage, reflector, pool, ANCHORS, budget=150)
    assert {request.text for request in reflector.requests} == {"A\nrule 0", "B\nrule 1", "C\nrule 2"}
    assert stage.booked["rescore"] == 3 * len(ANCHORS)
    assert stage.calls[0][0] == "rescore"
    assert Counter(context for context, _ in stage.calls[0][2]) == {m.context.id: 12 for m in pool.members}
    assert all(call[0] != "rescore" for call in stage.calls[1:])
    kept = by_text(found.pool)
    for text in ("A\nrule 0", "B\nrule 1", "C\nrule 2"):
        assert kept[text].mean == pytest.approx(1 / 3)
        assert kept[text].front
        assert kept[text].scored_at == 7
    assert found.generations > 3


def test_a_context_the_new_policy_does_badly_under_leaves_within_one_cycle() -> None:
    """Stale scores would keep "once best" on the front for ever: it was perfect under the policy of step 0."""
    scores = [{e.id: 1.0 for e in ANCHORS}, {e.id: 0.5 for e in ANCHORS}, {e.id: 0.25 for e in ANCHORS}]
    pool = pool_of("once best", "fair", "poor", scores=scores)
    now = {"once best": 0.0, "fair": 0.5, "poor": 0.25}
    stage = Stage(lambda texts, example: now.get(texts["system"], 0.0))
    stage.policy_step = 6
    reflector = Scripted(add_counter())
    found = evolve(stage, reflector, pool, ANCHORS, population=2, budget=60)
    assert [m.context.texts["system"] for m in found.pool.members] == ["fair", "poor"]
    assert [m.front for m in found.pool.members] == [True, False]
    assert [m.mean for m in found.pool.members] == [0.5, 0.25]
    # Nor is it anybody's parent: gepa itself never saw the old score.
    assert {request.text for request in reflector.requests} == {"fair"}


def test_a_weak_child_enters_when_the_old_best_has_become_weaker() -> None:
    """The front is free again after the weights moved: a child that beats the present scores gets in."""
    pool = pool_of("old best", scores=[{e.id: 1.0 for e in ANCHORS}])
    stage = Stage(lambda texts, example: 0.1 if texts["system"] == "old best" else 0.2)
    found = evolve(stage, Scripted(lambda request: "child"), pool, ANCHORS, budget=40)
    assert found.pool.best.context.texts["system"] == "child"
    assert found.pool.best.mean == pytest.approx(0.2)


# Budget ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 10, 33, 100])
@pytest.mark.parametrize(("proposals", "samples"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_the_budget_is_kept_to_within_one_generation(budget: int, proposals: int, samples: int) -> None:
    stage = Stage(knows_rule)
    found = evolve(
        stage, Lessons(), pool_of("A", "B"), ANCHORS, budget=budget, proposals=proposals, samples=samples, minibatch=3
    )
    generation = proposals * (3 + 3 + len(ANCHORS)) * samples
    assert stage.fast < budget + generation
    assert stage.fast >= min(budget, 3) or found.faults
    assert stage.booked["rescore"] == 2 * len(ANCHORS) * samples
    assert set(stage.booked) <= {"rescore", "fast-minibatch", "fast-score"}


def test_every_rollout_belongs_to_a_score_that_was_used() -> None:
    """Full scorings are one set of anchors for each accepted child; minibatches one for each parent and child."""
    stage = Stage(knows_rule)
    found = evolve(stage, Lessons(), pool_of("A"), ANCHORS, budget=100)
    accepted = sum(edit.accepted for edit in found.edits)
    assert accepted > 0
    assert stage.booked["fast-score"] == accepted * len(ANCHORS)
    assert stage.booked["fast-minibatch"] == 3 * (
        found.generations + sum(edit.after is not None for edit in found.edits)
    )
    assert len({seed for _, seed, _ in stage.calls}) == len(stage.calls)  # no two batches draw the same numbers


def test_a_budget_of_nothing_only_scores_anew() -> None:
    stage = Stage(knows_rule)
    reflector = Scripted(add_hint)
    found = evolve(stage, reflector, pool_of("A", "B\nrule 0"), ANCHORS, budget=0)
    assert stage.booked == {"rescore": 24}
    assert not reflector.requests
    assert (found.generations, found.edits) == (0, [])
    assert [m.context.texts["system"] for m in found.pool.members] == ["B\nrule 0", "A"]


def test_a_context_that_solves_every_anchor_leaves_nothing_to_spend_on() -> None:
    stage = Stage(lambda texts, example: 1.0 if texts["system"] == "B" else 0.0)
    reflector = Scripted(add_hint)
    found = evolve(stage, reflector, pool_of("A", "B"), ANCHORS, budget=30)
    assert not reflector.requests
    assert stage.fast == 0
    assert found.pool.best.context.texts["system"] == "B"


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_anchors_than_a_minibatch(count: int) -> None:
    stage = Stage(knows_rule)
    found = evolve(stage, Scripted(add_hint), pool_of("A"), problems(count), budget=20, minibatch=3)
    assert found.pool.best.mean == 1.0
    assert {len(pairs) for purpose, _, pairs in stage.calls if purpose == "fast-minibatch"} == {count}
    assert set(found.pool.best.scores) == {example.id for example in problems(count)}


def test_a_problem_that_comes_twice_is_one_anchor() -> None:
    stage = Stage(knows_rule)
    evolve(stage, Scripted(add_hint), pool_of("A"), [*ANCHORS, *ANCHORS], budget=20)
    assert stage.booked["rescore"] == len(ANCHORS)


# What comes out --------------------------------------------------------------------------------------------------------


def test_k_distinct_contexts_come_out_topped_up_by_mean() -> None:
    """The last child solves everything, so the front is that one; the pool is filled with the next best."""
    stage = Stage(knows_rule)
    found = evolve(stage, Scripted(add_hint), pool_of("Answer."), ANCHORS, population=3, budget=300)
    assert len(found.pool.members) == 3
    assert len({m.context.id for m in found.pool.members}) == 3
    assert [m.front for m in found.pool.members] == [True, False, False]
    assert [m.mean for m in found.pool.members] == pytest.approx([1.0, 2 / 3, 1 / 3])


def test_edits_say_which_feedback_led_to_the_child_and_how_it_fared() -> None:
    stage = Stage(knows_rule)
    reflector = Scripted(add_hint)
    found = evolve(stage, reflector, pool_of("Answer."), ANCHORS, budget=200, cycle=5)
    contexts = {context.id: context for context in found.contexts}
    assert len(found.edits) == len({edit.child for edit in found.edits})
    for edit in found.edits:
        child, parent = contexts[edit.child], contexts[edit.parent]
        assert child.parents == (edit.parent,)
        assert child.born == 5
        assert edit.component == "system"
        assert edit.feedback
        new = set(child.texts["system"].splitlines()) - set(parent.texts["system"].splitlines())
        assert new <= set(edit.feedback)
        asked = [r for r in reflector.requests if r.text == parent.texts["system"]]
        fitting = [r for r in asked if [a.feedback for a in r.attempts if a.score < 1] == edit.feedback]
        assert edit.before in [sum(a.score for a in r.attempts) / len(r.attempts) for r in fitting]
        assert edit.after is not None
        assert edit.accepted == (edit.after > edit.before)
        if edit.accepted:
            assert edit.score == sum(knows_rule(child.texts, example) for example in ANCHORS) / len(ANCHORS)
        else:
            assert edit.score is None
            assert "not above" in edit.reason
    assert any(edit.accepted for edit in found.edits)


def test_reflection_reads_questions_answers_and_feedback() -> None:
    reflector = Scripted(add_hint)
    evolve(Stage(knows_rule), reflector, pool_of("Answer."), ANCHORS, budget=20, proposer="full", max_tokens=99)
    request = reflector.requests[0]
    assert (request.component, request.text) == ("system", "Answer.")
    assert (request.proposer, request.max_tokens) == ("full", 99)
    assert request.count_tokens("three words here") == 3
    assert len(request.attempts) == 3
    for attempt in request.attempts:
        assert attempt.question.startswith("question problem-")
        assert attempt.answer == "answer of system"
        assert attempt.feedback.startswith("rule ")
    assert len({request.seed for request in reflector.requests}) == len(reflector.requests)


def test_scores_are_means_over_samples() -> None:
    """Every draw of a pair alternates between right and wrong: single draws are 0 or 1, two of them always 0.5."""
    turn: Counter[tuple[str, str]] = Counter()

    def flaky(texts: Mapping[str, str], example: Example) -> float:
        turn[texts["system"], example.id] += 1
        return float(turn[texts["system"], example.id] % 2)

    stage = Stage(flaky)
    found = evolve(stage, Scripted(add_counter()), pool_of("A"), ANCHORS, budget=60, samples=2)
    assert set(found.pool.best.scores.values()) == {0.5}
    assert {edit.before for edit in found.edits} == {0.5}
    assert not any(edit.accepted for edit in found.edits)
    pairs = Counter(stage.calls[0][2])
    assert set(pairs.values()) == {2}


def test_several_proposals_a_generation_each_know_their_own_minibatch() -> None:
    """Two children of one parent in one generation: `before` is the parent on the child's own minibatch."""
    stage = Stage(lambda texts, example: float(int(example.id.split("-")[1]) >= 9 and texts["system"] == "A") / 2)
    reflector = Scripted(add_counter())
    found = evolve(stage, reflector, pool_of("A"), ANCHORS, budget=48, proposals=4)
    assert len(found.edits) == len(reflector.requests)
    for edit, request in zip(found.edits, reflector.requests, strict=True):
        assert edit.before == pytest.approx(sum(a.score for a in request.attempts) / 3)
    assert len({edit.before for edit in found.edits[:4]}) > 1
    minibatches = [pairs for purpose, _, pairs in stage.calls if purpose == "fast-minibatch"]
    assert [len(pairs) for pairs in minibatches] == [12, 12] * found.generations


# Several components ----------------------------------------------------------------------------------------------------


def two_components(seed: int = 0, **fast: object) -> tuple[Stage, Scripted, Cycle]:
    stage, reflector = Stage(knows_rule, ("plan", "solve")), Scripted(own_hint)
    pool = pool_of({"plan": "Plan.", "solve": "Solve."})
    return stage, reflector, evolve(stage, reflector, pool, PARTS, seed=seed, **{"budget": 300, **fast})


def test_components_take_turns_and_are_reflected_on_apart() -> None:
    _, reflector, found = two_components()
    requests = reflector.requests
    assert {request.component for request in requests} == {"plan", "solve"}
    assert [request.component for request in requests[:2]] == ["plan", "solve"]
    for request in requests:
        assert all(attempt.answer == f"answer of {request.component}" for attempt in request.attempts)
        assert request.text.splitlines()[0] == {"plan": "Plan.", "solve": "Solve."}[request.component]
    contexts = {context.id: context for context in found.contexts}
    for edit in found.edits:  # an edit touches its own component only
        child, parent = contexts[edit.child].texts, contexts[edit.parent].texts
        assert [name for name in child if child[name] != parent[name]] == [edit.component]


def test_a_component_reads_its_own_feedback_and_is_spared_attempts_that_teach_it_nothing() -> None:
    class Apart(Stage):
        def _rollout(self, example: Example, context: Context) -> Rollout:
            rollout = super()._rollout(example, context)
            words = {"plan": "to the planner", "solve": ""} if int(example.id[-1]) % 2 else {"plan": "again to it"}
            return replace(rollout, feedback=replace(rollout.feedback, by_component=words))

    reflector = Scripted(add_counter())
    stage = Apart(lambda texts, example: 0.0, ("plan", "solve"))
    evolve(stage, reflector, pool_of({"plan": "p", "solve": "s"}), problems(4), minibatch=4)
    heard = {request.component: {each.feedback for each in request.attempts} for request in reflector.requests}
    assert heard["plan"] == {"to the planner", "again to it"}
    assert heard["solve"] == {"rule 0", "rule 2"}  # of the problems 0 and 2, in the common words


def test_merging_joins_two_parents_component_by_component() -> None:
    stage, _, found = two_components(proposals=2)
    contexts = {context.id: context for context in found.contexts}
    merged = [context for context in found.contexts if len(context.parents) == 2]
    assert merged
    for child in merged:
        first, second = (contexts[identifier].texts for identifier in child.parents)
        assert all(child.texts[name] in (first[name], second[name]) for name in child.texts)
        assert child.id not in child.parents
        played = Counter(p for p, _, pairs in stage.calls for context, _ in pairs if context == child.id)
        assert played["fast-minibatch"] >= 5
    assert found.pool.best.mean == 1.0
    # A generation that merges tries five problems and scores all anchors.
    assert stage.fast < 300 + max(2 * (3 + 3 + 12), 5 + 12)


def test_without_a_second_component_nothing_is_merged() -> None:
    found = evolve(Stage(knows_rule), Lessons(), pool_of("A", "B"), ANCHORS, proposals=2)
    assert not any(len(context.parents) > 1 for context in found.contexts)


# Repeating -------------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_cycle_and_another_seed_another() -> None:
    runs = []
    for seed in (0, 0, 1):
        stage = Stage(knows_rule)
        found = evolve(stage, Lessons(), pool_of("A", "B"), ANCHORS, seed=seed, proposals=2)
        runs.append((flat(found), stage.calls))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def fingerprint() -> int:
    stage, _, found = two_components(proposals=2)
    return zlib.crc32(repr((stage.calls, flat(found))).encode())


def test_all_processes_take_the_same_decisions() -> None:
    """Strings hash differently in every process; what is played, merges included, must not follow from that."""
    path = os.pathsep.join([*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")])
    other = subprocess.run(
        [sys.executable, "-c", "import test_cycle; print(test_cycle.fingerprint())"],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "1"},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    assert int(other.stdout) == fingerprint()


def test_cycles_follow_one_another() -> None:
    """The pool of one cycle is the start of the next, and what was learned is not lost."""
    stage, pool = Stage(knows_rule), pool_of("Answer.")
    best = []
    for cycle in range(3):
        stage.policy_step = cycle * 6
        found = evolve(stage, Lessons(), pool, ANCHORS, budget=45, cycle=cycle, seed=cycle)
        pool = Pool.from_dict(found.pool.to_dict())
        best.append(pool.best.mean)
        assert {m.scored_at for m in pool.members} == {cycle * 6}
    assert best == sorted(best)
    assert best[-1] == 1.0


def test_a_find_is_a_child_that_leads_by_more_than_luck() -> None:
    found = evolve(Stage(knows_rule), Lessons(), pool_of("Answer."), ANCHORS)
    assert found.found
    again = evolve(Stage(knows_rule), Lessons(), found.pool, ANCHORS, cycle=1)
    assert again.pool.best.context.id == found.pool.best.context.id
    assert not again.found  # there was nothing left to find
    ahead = evolve(NothingRight(), Scripted(add_hint), pool_of("A"), ANCHORS)
    assert ahead.found  # while nothing is right, to bring answers further is one


def test_of_many_children_that_change_nothing_one_leads_and_is_no_find() -> None:
    chance, finds, led = random.Random(0), 0, 0
    for seed in range(20):
        stage = Stage(lambda texts, example: float(chance.random() < 0.3))
        pool = pool_of("A")
        found = evolve(stage, Scripted(add_counter()), pool, problems(24), seed=seed)
        led += found.pool.best.context.id != pool.best.context.id
        finds += found.found
    assert led > 10
    assert finds < led / 4


class NothingRight(Stage):
    """Every answer is wrong, but answers get further under more of the rules."""

    def __init__(self) -> None:
        super().__init__(lambda texts, example: 0.0)

    def _rollout(self, example: Example, context: Context) -> Rollout:
        rollout = super()._rollout(example, context)
        return replace(rollout, feedback=replace(rollout.feedback, progress=knows_rule(context.texts, example) / 2))


def test_where_nothing_is_right_yet_the_text_is_kept_under_which_answers_get_further() -> None:
    found = evolve(NothingRight(), Scripted(add_hint), pool_of("A"), ANCHORS)
    best = found.pool.best
    assert set(best.context.texts["system"].splitlines()) == {"A", "rule 0", "rule 1", "rule 2"}
    assert best.mean == 0  # what is reported is the score alone
    assert all(edit.before == 0 and edit.after == 0 for edit in found.edits)


class OneRight(NothingRight):
    """One problem is solved whatever the text says."""

    def _rollout(self, example: Example, context: Context) -> Rollout:
        rollout = super()._rollout(example, context)
        right = example.id == ANCHORS[0].id
        return replace(rollout, feedback=replace(rollout.feedback, score=1.0)) if right else rollout


def test_where_something_is_right_a_text_that_only_brings_answers_further_is_not_taken() -> None:
    found = evolve(OneRight(), Scripted(add_hint), pool_of("A"), ANCHORS)
    assert found.edits
    assert [member.context.texts["system"] for member in found.pool.members] == ["A"]


def test_progress_is_heard_from_the_slow_loops_rollouts_too() -> None:
    stage, pool = NothingRight(), pool_of("A", "A\nrule 1")
    evidence = Evidence(stage._rollout(example, m.context) for example in ANCHORS for m in pool.members)
    recipe = FastRecipe(population=2, rescore="from-rollouts")
    found = one_cycle(recipe, Lessons(), stage.play, pool, ANCHORS, cycle=1, budget=0, evidence=evidence)
    assert found.pool.best.context.texts["system"] == "A\nrule 1"
    assert not stage.booked


def test_progress_is_no_word_of_the_graders_and_not_heard_without_feedback() -> None:
    rules = count()

    def guess(request: Request) -> str:
        return f"{request.text}\nrule {next(rules) % 3}"

    found = evolve(NothingRight(), Scripted(guess), pool_of("A"), ANCHORS, feedback=False)
    assert found.edits
    assert [member.context.texts["system"] for member in found.pool.members] == ["A"]
