"""The posterior against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from fastslow.fast.digest import effects as e
from fastslow.fast.digest.effects import Effects, Observations


def observations(scores: list[float], has_line: list[int], problems: list[int] | None = None) -> Observations:
    count = len(scores)
    line = np.array(has_line, dtype=float)[:, None]
    places = np.arange(count) if problems is None else np.array(problems)
    zeros = np.zeros((count, 1))
    cycles = np.zeros(count, dtype=np.int64)
    return Observations(np.array(scores), cycles, places, np.zeros(count), line, line, zeros, np.zeros(count))


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
    # level, length, common, words, own, related, side
    design = np.stack([np.ones(5), np.zeros(5), present, np.zeros(5), present, np.zeros(5), present], axis=1)
    mean = np.array([e.LEVEL[0], e.LENGTH[0], e.TRUE_EFFECT[0], e.WORDS[0], 0, 0, 0])
    deviations = [e.LEVEL[1], e.LENGTH[1], e.TRUE_EFFECT[1], e.WORDS[1], e.DEVIATION, e.DEVIATION, e.SIDE_EFFECT]
    prior = np.diag(deviations) ** 2

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


def test_a_line_that_harms_everywhere_is_found_whatever_else_is_in_the_texts() -> None:
    """Two lines that come and go by chance; one takes 0.4 on all problems, whether or not it was said of them."""
    chance = np.random.default_rng(1)
    present = (chance.random((300, 2)) < 0.5).astype(float)
    scores = (chance.random(300) < 0.7 - 0.4 * present[:, 1]).astype(float)
    zeros = np.zeros((300, 2))
    seen = Observations(
        *(scores, np.zeros(300, dtype=np.int64), np.arange(300), np.zeros(300), present, zeros, zeros, np.zeros(300))
    )
    side = (found := Effects(seen, np.array([0.9, 0.9]), 0)).parts(found.mean).side
    assert side[1] < -0.1
    assert abs(side[0]) < 0.05


def test_related_lines_count_as_far_as_no_line_was_said_of_the_problem() -> None:
    """Two lines, a sure and a doubtful one. The first problem is wholly the first line's own, the second half, the third not;
    the second line is related to all of them."""
    truth = np.array([1.0, 0.6])
    nothing, zeros = np.zeros(0), np.zeros((0, 2))
    numbers = np.zeros(0, dtype=np.int64)
    found = Effects(Observations(nothing, numbers, numbers, nothing, zeros, zeros, zeros, nothing), truth, 0)
    own, related = np.array([[1.0, 0.0], [0.5, 0.0], [0.0, 0.0]]), np.array([[0.0, 1.0]] * 3)
    weights = np.eye(3)
    common = [found.contrast(np.ones(2), own, related, weight, 0.0, 0.0)[found.common] for weight in weights]
    assert common == pytest.approx([1.0, 0.5 + e.RELATED * 0.5 * 0.6, e.RELATED * 0.6])
    both = np.array([[1.0, 1.0]])  # more than one was said of it: nothing is missing
    assert found.contrast(np.ones(2), both, related[:1], np.ones(1), 0.0, 0.0)[found.common] == pytest.approx(1.6)


def test_before_anything_is_seen_keeping_what_was_said_is_worth_a_fifth_more_or_less() -> None:
    found = Effects(observations([], []), np.array([0.9]), 0)
    kept = found.contrast(np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), 0.0, 1.0)
    assert found.judge(kept) == pytest.approx((0.2, 0.2))


def test_before_anything_is_seen_a_hundred_tokens_cost_two_points_more_or_less() -> None:
    found = Effects(observations([], []), np.array([0.9]), 0)
    longer = found.contrast(np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), 100.0, 0.0)
    assert found.judge(longer) == pytest.approx((-0.02, 0.03))
    assert found.parts(found.mean).token == pytest.approx(-0.0002)
