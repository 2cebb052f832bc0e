"""The posterior against closed forms, and the choice of lines against trying them all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.digest import effects as e
from fastslow.fast.digest.effects import Effects, Observations, Parts, choose


def observations(scores: list[float], has_line: list[int], problems: list[int] | None = None) -> Observations:
    count = len(scores)
    line = np.array(has_line, dtype=float)[:, None]
    places = np.arange(count) if problems is None else np.array(problems)
    zeros = np.zeros((count, 1))
    return Observations(np.array(scores), np.zeros(count, dtype=np.int64), places, np.zeros(count), line, line, zeros)


def test_without_evidence_a_line_is_worth_what_is_expected_of_it() -> None:
    found = Effects(observations([], []), np.array([0.8]), 0)
    mean, deviation = found.effect(0)
    assert mean == pytest.approx(0.8 * e.TRUE_EFFECT[0] + 0.2 * e.FALSE_EFFECT)
    assert deviation == pytest.approx(np.hypot(0.8 * e.TRUE_EFFECT[1], e.DEVIATION))


def test_the_posterior_is_that_of_the_joint_gaussian() -> None:
    """Against conditioning the joint Gaussian of unknowns and scores, with the covariance of the scores written out."""
    scores, line, problems = [0.0, 1.0, 1.0, 0.0, 1.0], [0, 1, 1, 0, 1], [0, 0, 1, 2, 2]
    found = Effects(observations(scores, line, problems), np.array([1.0]), 0)
    present = np.array(line, dtype=float)
    # level, length, common, own, related, side
    design = np.stack([np.ones(5), np.zeros(5), present, present, np.zeros(5), present], axis=1)
    mean = np.array([e.LEVEL[0], e.LENGTH[0], e.TRUE_EFFECT[0], 0, 0, 0])
    prior = np.diag([e.LEVEL[1], e.LENGTH[1], e.TRUE_EFFECT[1], e.DEVIATION, e.DEVIATION, e.SIDE_EFFECT]) ** 2

    def condition(noise: float) -> np.ndarray:
        same = np.equal.outer(problems, problems)
        cover = design @ prior @ design.T + e.EASE * same + e.DOUBT * noise * np.eye(5)
        return mean + prior @ design.T @ np.linalg.solve(cover, np.array(scores) - design @ mean)

    squares = np.sum((np.array(scores) - design @ condition(e.NOISE)) ** 2)
    noise = (e.NOISE_WEIGHT * e.NOISE + squares) / (e.NOISE_WEIGHT + 5)
    np.testing.assert_allclose(found.mean, condition(noise), atol=1e-9)


def test_an_effect_is_found_from_rollouts_with_and_without_the_line() -> None:
    chance = np.random.default_rng(0)
    line = [index % 2 for index in range(2000)]
    scores = [float(chance.random() < 0.3 + 0.4 * has) for has in line]
    mean, deviation = Effects(observations(scores, line), np.array([0.9]), 0).effect(0)
    assert mean == pytest.approx(0.4, abs=0.06)
    assert deviation < 0.06


def test_evidence_ages() -> None:
    seen = observations([0.0, 1.0] * 20, [0, 1] * 20)
    now, later = (Effects(seen, np.array([0.9]), when).effect(0) for when in (0, 9))
    assert later[1] > now[1]
    assert later[0] < now[0]


parts = st.floats(-1, 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(parts, st.integers(0, 2)), min_size=1, max_size=5), st.integers(0, 60))
def test_lines_are_taken_as_long_as_they_add_and_fit(lines: list[tuple[float, int]], room: int) -> None:
    """Each line is about one of three problems. Greedy choice never takes what does harm, keeps to the room, and leaves out
    nothing that would still add and fit."""
    values = np.array([value for value, _ in lines])
    own = np.array([[float(about == problem) for _, about in lines] for problem in range(3)])
    tokens, weight = np.full(len(lines), 10.0), np.full(3, 1 / 3)
    zero = np.zeros(len(lines))
    taken = choose(
        Parts(values, zero, zero, zero, -0.001), own, np.zeros_like(own), weight, tokens, np.array([float(room)]),
        [0] * len(lines), zero,
    )  # fmt: skip

    def worth(chosen: tuple[int, ...]) -> float:
        return float(sum(values[line] for line in chosen)) / 3 - 0.01 * len(chosen)

    assert 10 * len(taken) <= room
    assert worth(tuple(taken)) >= 0
    for extra in set(range(len(lines))) - set(taken):
        assert 10 * (len(taken) + 1) > room or worth((*taken, extra)) <= worth(tuple(taken)) + 1e-12
    best = max(worth(c) for n in range(len(lines) + 1) for c in itertools.combinations(range(len(lines)), n))
    if room >= 10 * len(lines):
        assert worth(tuple(taken)) == pytest.approx(best)
