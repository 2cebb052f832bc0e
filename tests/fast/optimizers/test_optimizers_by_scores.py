"""What is particular to the optimizers that learn from scores alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from cycle_helpers import Stage, evolve, pool_of, problems
from optimizer_helpers import Watched, advice, half, scripted

from fastslow.fast.optimizers import ape
from fastslow.fast.optimizers.evoprompt import roulette
from fastslow.fast.optimizers.lines import GENERIC
from fastslow.fast.optimizers.promptbreeder import SENTENCES, mutated, remutated, sentences
from fastslow.fast.pool import Member
from fastslow.fast.reflection import Lessons
from fastslow.records import Context

ANCHORS = problems(12)


# APE -------------------------------------------------------------------------------------------------------------------


def test_ape_screens_a_round_and_scores_its_best() -> None:
    stage = Stage(advice)
    found = evolve(stage, Lessons(), pool_of("Answer."), ANCHORS, budget=48, optimizer="ape", seed=1)
    assert found.generations == 1
    assert [purpose for purpose, _, _ in stage.calls] == ["rescore", "fast-minibatch", "fast-score"]
    assert stage.booked == {"rescore": 12, "fast-minibatch": ape.WIDTH * 3, "fast-score": ape.KEPT * 12}
    assert len(found.edits) == ape.WIDTH
    kept = sorted(edit.after for edit in found.edits if edit.accepted)
    left = [edit for edit in found.edits if not edit.accepted]
    assert len(kept) == ape.KEPT
    assert min(kept) >= max(edit.after for edit in left)
    assert all("not among the best 2" in edit.reason for edit in left)


def test_ape_first_guesses_from_right_answers_and_then_says_the_best_in_other_words() -> None:
    reflector, chat = scripted()
    evolve(Stage(half), reflector, pool_of("Answer."), ANCHORS, budget=150, optimizer="ape")
    first, rest = chat.heard[: ape.WIDTH], chat.heard[ape.WIDTH :]
    assert rest
    for heard in first:
        assert "Right answer:\n```\nanswer of system" in heard
        assert not any(f"question problem-{even} " in heard for even in range(0, 12, 2))  # those are never solved
    assert all("says it differently" in heard and "Right answer" not in heard for heard in rest)


def test_where_nothing_is_solved_only_problems_are_shown() -> None:
    reflector, chat = scripted()
    stage = Stage(lambda texts, example: 0.0)
    evolve(stage, reflector, pool_of("Answer."), ANCHORS, budget=50, optimizer="ape")
    assert "question problem-" in chat.heard[0]
    assert "answer of system" not in chat.heard[0]
    assert "No right answer" in chat.heard[0]


# OPRO ------------------------------------------------------------------------------------------------------------------


def test_opro_shows_the_scored_texts_worst_first() -> None:
    worth = {"good": 0.75, "fair": 0.5, "poor": 0.25}
    stage = Stage(lambda texts, example: worth.get(texts["system"], 0.0))
    reflector, chat = scripted()
    evolve(stage, reflector, pool_of("good", "poor", "fair"), ANCHORS, budget=36, optimizer="opro", proposals=3)
    heard = chat.heard[0]
    places = [heard.index(line) for line in ("Score 25:\n```\npoor", "Score 50:\n```\nfair", "Score 75:\n```\ngood")]
    assert places == sorted(places)
    assert stage.booked == {"rescore": 36, "fast-score": 36}  # every proposal is scored in full, all as one batch
    assert [purpose for purpose, _, _ in stage.calls] == ["rescore", "fast-score"]


# EvoPrompt -------------------------------------------------------------------------------------------------------------


def members(*scores: float) -> list[Member]:
    return [Member(Context({"system": f"text {i}"}), {"p": score}) for i, score in enumerate(scores)]


def test_the_roulette_draws_by_score() -> None:
    population = members(0.6, 0.3, 0.1)
    firsts, pairs = Counter(), Counter()
    for seed in range(4000):
        first, second = (population.index(member) for member in roulette(population, random.Random(seed)))
        firsts[first] += 1
        pairs[first, second] += 1
    for index, share in enumerate((0.6, 0.3, 0.1)):
        assert firsts[index] / 4000 == pytest.approx(share, abs=0.03)
    assert pairs[0, 1] / firsts[0] == pytest.approx(0.3 / 0.4, abs=0.04)
    assert not any(first == second for first, second in pairs)


def test_where_nobody_scores_the_roulette_is_even() -> None:
    population = members(0.0, 0.0, 0.0)
    firsts = Counter(population.index(roulette(population, random.Random(seed))[0]) for seed in range(3000))
    assert all(count / 3000 == pytest.approx(1 / 3, abs=0.04) for count in firsts.values())
    assert len(roulette(members(0.0), random.Random(0))) == 1


def test_evoprompt_breeds_a_generation_from_pairs() -> None:
    watched = Watched()
    pool = pool_of("A\none", "A\ntwo", "A\nthree", "A\nfour")
    found = evolve(Stage(half), watched, pool, ANCHORS, budget=96, optimizer="evoprompt", population=4)
    assert found.generations == 2
    children = [context for context in found.contexts if context.parents]
    assert len(children) == 8
    assert all(len(set(child.parents)) == 2 for child in children)
    for child in children:  # nothing but lines of the population and of the advice
        known = {
            line for context in found.contexts if context is not child for line in context.texts["system"].splitlines()
        }
        assert set(child.texts["system"].splitlines()) <= known | set(GENERIC)
    assert all(
        "Instruction 1:" in request.prompt and "Instruction 2:" in request.prompt for request, _ in watched.requests
    )


def test_advice_is_added_as_often_as_a_line_of_a_text_that_scored_0() -> None:
    watched = Watched()
    pool = pool_of(*(f"A\nline {number}" for number in range(8)))
    evolve(Stage(lambda *_: 0.0), watched, pool, ANCHORS, budget=12, optimizer="evoprompt", population=8)
    texts = [watched.requests[0][0].by_hand(random.Random(seed)).splitlines() for seed in range(1000)]
    advised = sum(bool(set(text) & set(GENERIC)) for text in texts)
    lines = len(GENERIC) / (len(GENERIC) + 7)  # of the eight, one is in most texts already
    assert advised / 1000 == pytest.approx((0.4 + 0.25) * lines, abs=0.05)  # it is added, or takes another's place


# Promptbreeder ---------------------------------------------------------------------------------------------------------


def test_a_mutation_prompt_says_what_is_done_to_a_text() -> None:
    add, drop, exchange, move = SENTENCES
    source = {"new": 1.0}
    assert mutated("a\nb", add, source, random.Random(0)) == ["a", "b", "new"]
    assert mutated("a\nb", f"{drop}\n{add}", source, random.Random(1)) in (["a", "new"], ["b", "new"])
    assert mutated("a\nb", move, {}, random.Random(0)) == ["b", "a"]
    assert mutated("a\nb", "Be bold.", source, random.Random(0)) != ["a", "b"]  # what is not understood is any change
    assert "new" in mutated("a\nb", exchange, source, random.Random(0))


def test_a_mutation_prompt_is_mutated_into_another_of_the_same_language() -> None:
    mutation = next(iter(SENTENCES))
    for seed in range(50):
        after = remutated(mutation, random.Random(seed))
        assert after != mutation
        assert set(after.splitlines()) <= set(SENTENCES)
        mutation = after
    assert sentences("Be bold.") == []


def test_mutation_prompts_evolve_and_are_carried_with_their_texts() -> None:
    stage, pool, seen = Stage(half), pool_of("Answer."), set()
    for cycle in range(2):
        found = evolve(stage, Lessons(), pool, ANCHORS, budget=240, cycle=cycle, seed=cycle, optimizer="promptbreeder")
        pool = found.pool
        seen |= {member.notes["mutation"] for member in pool.members if member.notes}
    assert len(seen) > 1
    assert any(len(sentences(mutation)) > 1 for mutation in seen)  # none of the first ones has two


def test_the_winner_of_a_tournament_is_copied_and_the_loser_makes_room() -> None:
    """Only texts with the good line score, so no child has another parent; taking over another text is the exception."""
    stage = Stage(lambda texts, example: 0.5 * ("good" in texts["system"].splitlines()))
    pool = pool_of("A\ngood", "B", "C", "D")
    found = evolve(stage, Lessons(), pool, ANCHORS, budget=600, optimizer="promptbreeder")
    parents = Counter(edit.parent for edit in found.edits)
    good = {context.id for context in found.contexts if "good" in context.texts["system"].splitlines()}
    assert sum(parents[parent] for parent in good) > 0.8 * parents.total()
