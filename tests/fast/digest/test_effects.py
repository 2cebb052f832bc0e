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
    # level, length, common, words, showing, own, related, side
    design = np.stack(
        [np.ones(5), *np.zeros((1, 5)), present, *np.zeros((2, 5)), present, *np.zeros((1, 5)), present], 1
    )
    mean = np.array([e.LEVEL[0], e.LENGTH[0], e.TRUE_EFFECT[0], e.WORDS[0], 0, 0, 0, 0])
    shared = [e.LEVEL[1], e.LENGTH[1], e.TRUE_EFFECT[1], e.WORDS[1], e.SHOWING]
    prior = np.diag([*shared, e.DEVIATION, e.DEVIATION, e.SIDE_EFFECT]) ** 2

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


def marginal(
    seen: Observations, truth: np.ndarray, now: int, side: np.ndarray, noise: float, right: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """The expected scores, their covariance without ease and noise, and with both, written out pair by pair."""
    common = seen.own @ truth + e.RELATED * np.maximum(0, 1 - seen.own.sum(axis=1)) * (seen.related @ truth)
    tokens = seen.tokens / 100
    lines = (seen.own + seen.related) @ ((1 - truth) * e.FALSE_EFFECT)
    mean = e.LEVEL[0] + e.LENGTH[0] * tokens + e.TRUE_EFFECT[0] * common + e.WORDS[0] * seen.passed + lines
    walked = np.minimum.outer(seen.cycles, seen.cycles) - seen.cycles.min()
    cover = e.LEVEL[1] ** 2 + e.MOVE**2 * walked
    shown = (seen.present @ (np.zeros(len(truth)) if right is None else right) > 0).astype(float)
    shared = ((tokens, e.LENGTH[1]), (common, e.TRUE_EFFECT[1]), (seen.passed, e.WORDS[1]), (shown, e.SHOWING))
    for values, deviation in shared:
        cover = cover + deviation**2 * np.outer(values, values)
    cover = cover + e.DEVIATION**2 * (seen.own @ seen.own.T + seen.related @ seen.related.T)
    cover = cover + (seen.present * side**2) @ seen.present.T
    rows = e.DOUBT * noise * 2.0 ** ((now - seen.cycles) / e.HALF_LIFE)
    ease = e.EASE * np.equal.outer(seen.problems, seen.problems)
    return mean, cover, cover + ease + np.diag(rows)


def estimated_noise(seen: Observations, truth: np.ndarray, now: int, right: np.ndarray | None = None) -> float:
    side = np.full(len(truth), e.SIDE_EFFECT)
    mean, cover, whole = marginal(seen, truth, now, side, e.NOISE, right)
    fitted = mean + cover @ np.linalg.solve(whole, seen.scores - mean)
    weights = 0.5 ** ((now - seen.cycles) / e.HALF_LIFE)
    squares = weights @ (seen.scores - fitted) ** 2
    return float((e.NOISE_WEIGHT * e.NOISE + squares) / (e.NOISE_WEIGHT + weights.sum()))


@pytest.mark.parametrize("seed", range(3))
def test_what_a_text_is_expected_to_score_is_the_conditional_mean_of_the_joint_gaussian(seed: int) -> None:
    """Over several cycles, with texts of several lengths and lines that bear on problems in every way. What is asked for is
    one more row, of the last cycle, that was not scored."""
    chance = np.random.default_rng(seed)
    rows, lines, now = 14, 3, 7
    present = (chance.random((rows, lines)) < 0.6).astype(float)
    seen = Observations(
        chance.random(rows),
        np.sort(chance.choice([1, 2, 5], rows)),
        chance.integers(0, 5, rows),
        chance.integers(0, 400, rows).astype(float),
        present,
        present * chance.random((rows, lines)) * 0.6,
        present * chance.random((rows, lines)) * 0.3,
        0.5 + 0.5 * chance.random(rows),
    )
    truth, right = np.array([1.0, 0.7, 0.2]), np.array([0.0, 1.0, 1.0])
    found = Effects(seen, truth, now, right)
    assert found.parts(found.mean).words > e.LEAST_WORDS, "else it is not the Gaussian's"
    for row in range(rows):
        asked = Observations(*(values[[*range(rows), row]] for values in vars(seen).values()))
        asked.cycles[-1] = 5
        side = np.full(lines, e.SIDE_EFFECT)
        mean, cover, _ = marginal(asked, truth, now, side, 1.0, right)
        own_mean, _, whole = marginal(seen, truth, now, side, estimated_noise(seen, truth, now, right), right)
        expected = mean[-1] + cover[-1, :-1] @ np.linalg.solve(whole, seen.scores - own_mean)
        one, weight = slice(row, row + 1), np.ones(1)
        contrast = found.contrast(
            seen.present[row], seen.own[one], seen.related[one], weight, seen.tokens[row], seen.passed[row]
        )
        assert found.expected(contrast) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("rows", "most"), [(60, 0.65), (240, 0.35)])
def test_a_side_effect_is_large_where_that_is_likelier_than_such_lines_are_rare(
    rows: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that takes more and more on all problems. The marginal likelihoods of the scores say from where on."""
    truth, taken, wanted, margins = np.array([0.9, 0.9]), [], [], []
    for harm in np.linspace(0.05, most, 41):
        present = np.array([[index % 2, index // 2 % 2] for index in range(rows)], dtype=float)
        zeros, nothing = np.zeros((rows, 2)), np.zeros(rows)
        scores = 0.5 + 0.3 * (-1.0) ** (np.arange(rows) // 4) - harm * present[:, 1]
        cycles, problems = np.zeros(rows, dtype=np.int64), np.arange(rows)
        seen = Observations(scores, cycles, problems, nothing, present, zeros, zeros, nothing)
        noise = estimated_noise(seen, truth, 0)
        likelihoods = []
        for deviation in (e.SIDE_EFFECT, e.LARGE_SIDE_EFFECT):
            mean, _, whole = marginal(seen, truth, 0, np.array([e.SIDE_EFFECT, deviation]), noise)
            left = scores - mean
            likelihoods.append(-0.5 * (np.linalg.slogdet(whole)[1] + left @ np.linalg.solve(whole, left)))
        margins.append(likelihoods[1] - likelihoods[0] + np.log(0.2))  # one in five
        wanted.append(margins[-1] > 0)
        found = Effects(seen, truth, 0)
        with monkeypatch.context() as patch:
            patch.setattr(e, "MOST_EXCEPTIONS", 0)
            narrow = Effects(seen, truth, 0)
        taken.append(not np.array_equal(found.mean, narrow.mean))
    assert taken == wanted
    assert min(map(abs, margins)) < 0.3, "a step near the bound"
    assert taken == sorted(taken)
    assert len(set(taken)) == 2


def test_the_level_moves_by_five_points_a_cycle_more_or_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e, "DOUBT", 1e12)  # nothing is learnt from the rows
    seen = observations([0.0, 1.0], [0, 0])
    seen.cycles[:] = 2, 6
    found = Effects(seen, np.array([0.9]), 6)
    first, move = np.eye(len(found.mean))[:2]
    assert found.judge(first) == pytest.approx((0.4, 0.3), abs=1e-6)
    assert found.judge(move) == pytest.approx((0.0, 0.05 * 2), abs=1e-6)
