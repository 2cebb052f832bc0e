"""The archive: what is kept, who becomes a parent, and how scores become rewards."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from discover_helpers import search_of
from hypothesis import given
from hypothesis import strategies as st

from fastslow.discover.archive import BEST, WORST, Archive, Candidate, View
from fastslow.discover.candidates import Form
from fastslow.discover.problem import Problem, load_problem
from fastslow.discover.task import question

PROBLEM = Problem("p", "", "maximize", "seed", "", "p.py")
DOWN = Problem("p", "", "minimize", "seed", "", "p.py")
numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))


def of(number: int, score: float, text: str = "x") -> Candidate:
    return Candidate(f"id{number}", text, score, "", number)


@given(st.lists(numbers, min_size=1, max_size=30, unique=True), st.lists(numbers, min_size=2, max_size=20))
def test_rewards_rise_with_scores_and_a_new_best_stands_out(known: list[float], found: list[float]) -> None:
    view = View(PROBLEM, (), sorted(known), {}, 0)
    rewards = [view.reward(value) for value in sorted(found)]
    assert all(0 < reward < 1 for reward in rewards)
    assert all(one <= other + 1e-12 for one, other in pairwise(rewards))
    assert view.reward(max(known)) >= BEST - 1e-12
    assert view.reward(max(known) + 1e3) > BEST
    if len(known) > 1:
        assert view.reward(min(known)) <= WORST + 1e-12


def test_an_island_keeps_its_best_one_of_each_score() -> None:
    for problem, best in ((PROBLEM, [9.0, 7.0, 5.0]), (DOWN, [1.0, 3.0, 5.0])):
        archive = Archive(problem, islands=2, keep=3)
        for number, score in enumerate([5.0, 1.0, 9.0, 3.0, 7.0], 1):
            archive.add(of(number, score, "longer"), island=0)
        archive.add(of(9, best[0], "x"), island=2)  # island 0 again
        archive.look()
        assert [each.score for each in archive.view.islands[0]] == best
        assert archive.view.islands[0][0].text == "x"  # the shorter of one score
        assert not archive.view.islands[1]
        assert archive.view.parent(1, seed=3) in archive.islands[0]
        others = archive.view.others(archive.islands[0][1], 5, seed=1)
        assert others[0].score == best[0]
        assert len(others) == 2


def test_better_candidates_are_parents_more_often_and_many_children_make_it_less_likely() -> None:
    archive = Archive(PROBLEM, islands=1, keep=10)
    for number in range(10):
        archive.add(of(number, float(number)), island=0)
    archive.look()
    picked = [archive.view.parent(0, seed).score for seed in range(500)]  # type: ignore[union-attr]
    assert picked.count(9.0) > 2 * picked.count(3.0) > 0
    archive.children["id9"] = 1000
    archive.look()
    assert sum(archive.view.parent(0, seed).score == 9.0 for seed in range(500)) < picked.count(9.0) / 5  # type: ignore[union-attr]


def test_what_problems_show_changes_between_steps_only() -> None:
    archive = Archive(PROBLEM, islands=3, keep=5)
    archive.add(of(1, 1.0))
    view = archive.view
    assert view.parent(0, 0) is None
    archive.turn()
    assert archive.view is not view
    assert archive.view.parent(2, 0) is not None


def test_islands_hand_on_their_best() -> None:
    archive = Archive(PROBLEM, islands=2, keep=5)
    archive.add(of(1, 1.0), island=0)
    for _ in range(10):
        archive.turn()
    assert [each.id for each in archive.islands[1]] == ["id1"]


@given(st.lists(numbers, max_size=20))
def test_it_is_the_same_when_it_was_saved(scores: list[float]) -> None:
    archive = Archive(PROBLEM, islands=2, keep=4)
    for number, score in enumerate(scores, 1):
        archive.seen[f"id{number}"] = (number, score)
        archive.children[f"id{number // 2}"] += 1
        archive.add(of(number, score), island=number)
    archive.turn()
    other = Archive(PROBLEM, islands=2, keep=4)
    other.restore(json.loads(json.dumps(archive.to_data())))
    assert other.to_data() == archive.to_data()
    assert other.view == archive.view


def test_without_the_archive_every_problem_shows_the_seed() -> None:
    task = search_of("differences", archive=False)
    task.memory.archive.add(of(1, 3.0, "a b"))
    task.memory.archive.turn()
    example = task.examples("train")[5]
    assert task.memory.parent(example).text == task.problem.seed
    assert task.messages(example)[0]["content"].startswith("letters: a b c d e f")


@pytest.mark.parametrize("form", ["edits", "whole", "either"])
def test_a_program_is_asked_to_return_the_same_each_time_and_a_text_is_not(form: Form) -> None:
    program, text = load_problem("heilbronn-square"), replace(load_problem("differences"), prompt="")
    asked = {each.name: question(each, of(1, 3.0, each.seed), [], form) for each in (program, text)}
    assert "the same each time it runs: give random numbers a seed." in asked["heilbronn-square"]
    assert "each time it runs" not in asked["differences"]
    assert asked["heilbronn-square"].endswith((">>>>>>> REPLACE", "begins with ```python."))
