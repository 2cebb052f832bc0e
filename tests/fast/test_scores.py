"""Scores from few draws, against closed forms and plain counting."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fastslow.fast.pool import (
    CONTEXT_WEIGHT,
    PROBLEM_WEIGHT,
    Scores,
    plain,
    select,
    shrunken,
)
from fastslow.records import Context

PROBLEMS = [f"p{number}" for number in range(24)]


def context(name: str) -> Context:
    return Context({"system": name})


def draws(rights: str, count: int = 1) -> dict[str, list[float]]:
    """One digit for every problem: how many of `count` draws were right."""
    return {
        problem: [1.0] * int(right) + [0.0] * (count - int(right))
        for problem, right in zip(PROBLEMS, rights, strict=False)
    }


def test_shrunken_scores_are_the_posterior_means_of_the_beta_model() -> None:
    found = shrunken(draws("210", count=2), overall=0.3)
    mean = (CONTEXT_WEIGHT * 0.3 + 3) / (CONTEXT_WEIGHT + 6)
    assert found == pytest.approx(
        {"p0": (PROBLEM_WEIGHT * mean + 2) / (PROBLEM_WEIGHT + 2), "p1": (PROBLEM_WEIGHT * mean + 1) / (PROBLEM_WEIGHT + 2),
         "p2": PROBLEM_WEIGHT * mean / (PROBLEM_WEIGHT + 2)}
    )  # fmt: skip
    assert shrunken({"p0": [], "p1": [1.0]}, 0.3)["p0"] == pytest.approx(
        (CONTEXT_WEIGHT * 0.3 + 1) / (CONTEXT_WEIGHT + 1)
    )


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), max_size=5), min_size=1, max_size=8), st.floats(0, 1))
def test_shrunken_scores_lie_between_the_draws_and_the_prior(rows: list[list[float]], overall: float) -> None:
    by_problem = dict(zip(PROBLEMS, rows, strict=False))
    found = shrunken(by_problem, overall)
    everything = [score for row in rows for score in row] + [overall]
    for problem, score in found.items():
        assert min(everything) - 1e-9 <= score <= max(everything) + 1e-9
        more = shrunken({**by_problem, problem: [*by_problem[problem], 1.0]}, overall)
        assert more[problem] >= score - 1e-9  # another success never lowers a score


def test_many_draws_are_believed() -> None:
    many = {"p0": [1.0] * 900 + [0.0] * 100}
    assert shrunken(many, 0.0)["p0"] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_a_lucky_context_is_not_crowned_by_a_few_draws(seed: int) -> None:
    """A steady context is right in 70% of many draws. A lucky one was right in its only draws, of a few problems."""
    chance = random.Random(seed)
    steady = {problem: [float(chance.random() < 0.7) for _ in range(8)] for problem in PROBLEMS}
    lucky = {problem: [1.0] if number < 3 else [] for number, problem in enumerate(PROBLEMS)}
    scores = Scores(overall=0.4)
    scores.remember(context("steady"), steady, 0)
    scores.remember(context("lucky"), lucky, 0)
    assert not scores.perfect
    assert select(list(scores.members.values()), 2).best.context == context("steady")


def test_one_lucky_solution_does_not_make_a_front() -> None:
    """Among plain means the worse context wins the one problem it alone solved; shrunken, its other failures weigh more."""
    good, bad = draws("1" * 20 + "0111", 1), draws("0" * 20 + "1000", 1)
    for overall, on_front in ((None, True), (0.5, False)):
        scores = Scores(overall)
        scores.remember(context("good"), good, 0)
        scores.remember(context("bad"), bad, 0)
        pool = select(list(scores.members.values()), 2)
        assert {m.context.texts["system"]: m.front for m in pool.members} == {"good": True, "bad": on_front}


def test_a_perfect_context_is_right_in_every_draw_on_every_problem() -> None:
    for by_problem, perfect in ((draws("111"), True), (draws("110"), False), ({"p0": [1.0], "p1": []}, False)):
        scores = Scores(0.5)
        scores.remember(context("a"), by_problem, 0)
        assert scores.perfect is perfect


@given(st.lists(st.tuples(*[st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=3)] * 2), min_size=2, max_size=24))
def test_surely_better_is_the_paired_statistic_on_problems_both_were_drawn_on(
    pairs: list[tuple[list[float], list[float]]],
) -> None:
    scores = Scores(overall=0.5)
    one, other = (
        scores.remember(context(str(side)), {p: pair[side] for p, pair in zip(PROBLEMS, pairs, strict=False)}, 0)
        for side in (0, 1)
    )
    means = [(np.mean(mine), np.mean(theirs)) for mine, theirs in pairs if mine and theirs]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all gains alike, or too few
        statistic = stats.ttest_rel(*zip(*means, strict=True)).statistic if len(means) > 1 else np.nan
    if not np.isclose(statistic, stats.norm.isf(0.05)):  # near the limit either is right
        assert scores.surely_better(one, other) == bool(statistic > stats.norm.isf(0.05))
    if not np.isclose(statistic, stats.norm.isf(0.01)):
        assert scores.surely_better(one, other, tried=5) == bool(statistic > stats.norm.isf(0.01))


@pytest.mark.parametrize("seed", range(3))
def test_luck_is_rarely_taken_for_a_find_and_a_large_gain_mostly_is(seed: int) -> None:
    chance = random.Random(seed)

    def share_better(rate: float) -> float:
        better = 0
        for _ in range(300):
            scores = Scores()
            one, other = (
                scores.remember(context(name), {p: [float(chance.random() < r)] for p in PROBLEMS}, 0)
                for name, r in (("child", rate), ("carried", 0.3))
            )
            better += scores.surely_better(one, other)
        return better / 300

    assert share_better(0.3) < 0.1
    assert share_better(0.7) > 0.8


def test_plain_scores_are_means() -> None:
    assert plain({"p0": [1.0, 0.0, 0.5]}) == {"p0": 0.5}
