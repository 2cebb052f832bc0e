"""Advantages that seek a group's maximum, against their closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.slow.seeking import NATS, _distance, entropic, lead, ranked, seeking


def test_best_rewards_the_lead_over_the_second() -> None:
    assert lead(np.array([0.1, 0.9, 0.4])).tolist() == [0.0, 0.5, 0.0]
    assert lead(np.array([0.9, 0.9, 0.4])).tolist() == [0.0, 0.0, 0.0]


def test_best_is_the_gradient_of_the_expected_maximum() -> None:
    """For a policy over three answers with a parameter each: exact expectations over all groups of three."""
    rewards, chances = np.array([0.0, 0.3, 1.0]), np.array([0.5, 0.3, 0.2])
    found, expected = np.zeros(3), np.zeros(3)
    for group in np.ndindex(3, 3, 3):
        chance = chances[list(group)].prod()
        given_ = lead(rewards[list(group)]) if len(set(group)) > 1 else np.zeros(3)
        for member, advantage in zip(group, given_, strict=True):
            score = -chances.copy()
            score[member] += 1  # the gradient of a log-probability by the logits
            found += chance * advantage * score
            expected += chance * rewards[list(group)].max() * score
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_entropic_weights_have_the_wanted_distance_from_equal_ones() -> None:
    for rewards in ([0.1, 0.2, 0.3, 0.9], [0.5, 0.5 + 1e-9, 0.5, 0.5], [0.0, 0.0, 1.0, 0.2, 0.7, 0.1, 0.3, 0.4]):
        advantages = entropic(np.array(rewards))
        shares = (advantages + 1) / len(rewards)
        assert shares.sum() == pytest.approx(1)
        some = shares[shares > 0]
        assert (some * np.log(some * len(rewards))).sum() == pytest.approx(NATS, rel=1e-6)
        assert np.argmax(advantages) == np.argmax(rewards)


def test_entropic_weights_share_what_is_equal_at_the_top() -> None:
    advantages = entropic(np.array([1.0, 1.0, 1.0, 0.0]))  # at most ln(4/3) nats apart
    np.testing.assert_allclose(advantages, [1 / 3, 1 / 3, 1 / 3, -1], atol=1e-6)
    assert _distance(np.zeros(4)) == 0


def test_rank_weights() -> None:
    weights = np.array([math.log(3), math.log(3 / 2), 0, 0]) / math.log(3)
    np.testing.assert_allclose(ranked(np.array([5.0, 9.0, 1.0, 2.0])), weights[[1, 0, 3, 2]] - weights.mean())
    np.testing.assert_allclose(ranked(np.array([9.0, 9.0, 1.0, 2.0]))[:2], weights[:2].mean() - weights.mean())


@given(
    st.lists(st.floats(0, 1, allow_nan=False), min_size=2, max_size=16),
    st.sampled_from(["best", "entropic", "rank"]),
)
def test_a_better_rollout_never_has_a_lower_advantage(rewards: list[float], kind: str) -> None:
    values = np.array([*rewards, *rewards[::-1]])
    groups = np.array([0] * len(rewards) + [1] * len(rewards))
    found = seeking(values, groups, kind)  # type: ignore[arg-type]
    assert np.isfinite(found).all()
    first = found[: len(rewards)]
    order = np.argsort(rewards, kind="stable")
    assert (np.diff(first[order]) >= -1e-9).all()
    if kind != "best":
        assert abs(first.sum()) < 1e-6
    if len(set(rewards)) == 1:
        assert not found.any()
    assert not seeking(values, groups, "none").any()
