"""The choice of lines against trying them all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.digest.choice import PARTLY, Bearing, choose
from fastslow.fast.digest.effects import Parts
from fastslow.fast.digest.words import Chances

parts = st.floats(-1, 1)


def nothing_said(problems: int, lines: int) -> tuple[Chances, np.ndarray]:
    return Chances(np.zeros((lines, 0)), np.zeros(0), np.zeros(lines)), np.zeros((problems, 0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(parts, st.integers(0, 2)), min_size=1, max_size=5), st.integers(0, 60))
def test_lines_are_taken_as_long_as_they_add_and_fit(lines: list[tuple[float, int]], room: int) -> None:
    """Each line is about one of three problems. Greedy choice never takes what does harm, keeps to the room, and leaves out
    nothing that would still add and fit."""
    values = np.array([value for value, _ in lines])
    own = np.array([[float(about == problem) for _, about in lines] for problem in range(3)])
    tokens, weight = np.full(len(lines), 10.0), np.full(3, 1 / 3)
    zero = np.zeros(len(lines))
    chances, about = nothing_said(3, len(lines))
    taken = choose(
        Parts(values, zero, zero, zero, -0.001, 0.2),
        chances,
        Bearing(weight, own, np.zeros_like(own), about),
        tokens=tokens,
        room=np.array([float(room)]),
        component=[0] * len(lines),
        bonus=zero,
    )

    def worth(chosen: tuple[int, ...]) -> float:
        return float(sum(values[line] for line in chosen)) / 3 - 0.01 * len(chosen)

    assert 10 * len(taken) <= room
    assert worth(tuple(taken)) >= 0
    for extra in set(range(len(lines))) - set(taken):
        assert 10 * (len(taken) + 1) > room or worth((*taken, extra)) <= worth(tuple(taken)) + 1e-12
    best = max(worth(c) for n in range(len(lines) + 1) for c in itertools.combinations(range(len(lines)), n))
    if room >= 10 * len(lines):
        assert worth(tuple(taken)) == pytest.approx(best)


chance = st.floats(0.05, 0.95)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(chance, chance, st.booleans()), min_size=1, max_size=4))
def test_lines_that_pay_only_together_are_taken_together(said: list[tuple[float, float, bool]]) -> None:
    """One problem, and statements that are kept more often where told, one of them perhaps by two lines: the text is no worse
    than the best of all."""
    untold = np.array([min(pair[:2]) for pair in said])
    told = np.vstack([np.diag([max(pair[:2]) for pair in said]), *(np.eye(len(said))[[n]] * max(pair[:2]) * 0.9
                      for n, pair in enumerate(said) if pair[2])])  # fmt: skip
    count = len(told)
    zero, cost, words = np.zeros(count), 0.0002, 0.4
    chances, about = Chances(told, untold, np.zeros(count)), np.ones((1, len(said)))
    taken = choose(
        Parts(zero, zero, zero, zero, -cost, words),
        chances,
        Bearing(np.ones(1), np.zeros((1, count)), np.zeros((1, count)), about),
        tokens=np.full(count, 10.0),
        room=np.array([1000.0]),
        component=[0] * count,
        bonus=zero,
    )

    def worth(chosen: tuple[int, ...]) -> float:
        present = np.zeros(count)
        present[list(chosen)] = 1.0
        kept = chances.under(present)
        return float(words * kept.prod() + PARTLY * kept.mean() - 10 * cost * len(chosen))

    best = max(worth(c) for n in range(count + 1) for c in itertools.combinations(range(count), n))
    assert worth(tuple(taken)) >= best - 0.01


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_chances_with_one_line_more_are_those_of_the_longer_text(data: st.DataObject, lines: int, said: int) -> None:
    told = np.array(data.draw(st.lists(st.lists(st.sampled_from([0.0, 0.3, 0.6, 0.9]), min_size=said, max_size=said),
                                       min_size=lines, max_size=lines)))  # fmt: skip
    flags = st.lists(st.sampled_from([0.0, 1.0]), min_size=lines, max_size=lines)
    chances, present = Chances(told, np.full(said, 0.2), np.array(data.draw(flags))), np.array(data.draw(flags))
    found = chances.with_each(present)
    for line in range(lines):
        longer = present.copy()
        longer[line] = 1.0
        assert found[line] == pytest.approx(chances.under(longer))


def test_an_example_counts_in_full_beside_a_line_that_says_the_same_and_little_without() -> None:
    chances = Chances(np.array([[0.5], [0.9]]), np.array([0.1]), np.array([0.0, 1.0]))
    texts = [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert [chances.under(np.array(text, float))[0] for text in texts] == pytest.approx([0.1, 0.5, 0.26, 0.9])


@pytest.mark.parametrize(("tokens", "taken"), [(9.0, [0]), (11.0, [])])
def test_a_line_must_be_worth_its_length(tokens: float, taken: list[int]) -> None:
    """It adds 0.1 on every problem, and each of its tokens takes 0.01."""
    zero, one = np.zeros(1), np.ones((1, 1))
    chances, about = nothing_said(1, 1)
    found = choose(
        Parts(np.array([0.1]), zero, zero, zero, -0.01, 0.2),
        chances,
        Bearing(np.ones(1), one, np.zeros_like(one), about),
        tokens=np.array([tokens]),
        room=np.array([100.0]),
        component=[0],
        bonus=zero,
    )
    assert found == taken


def test_where_one_line_fits_the_one_that_adds_most_is_taken() -> None:
    """The first adds 0.2 as the problem's own line, the second 0.3 as a related one; of those the mean counts."""
    zero = np.zeros(2)
    chances, about = nothing_said(1, 2)
    found = choose(
        Parts(np.array([0.2, 0.0]), np.array([0.0, 0.3]), zero, zero, 0.0, 0.2),
        chances,
        Bearing(np.ones(1), np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), about),
        tokens=np.full(2, 10.0),
        room=np.array([10.0]),
        component=[0, 0],
        bonus=zero,
    )
    assert found == [1]
