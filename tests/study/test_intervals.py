"""Intervals over seeds, against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fastslow.study.curves import Estimate, difference, over_seeds, ratio


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8))
def test_the_interval_is_that_of_a_t_test(values: list[float]) -> None:
    found = over_seeds(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.seeds == len(values)
    if np.ptp(values) > 1e-6:
        expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
        assert found.low <= found.mean <= found.high


def test_seeds_that_are_all_alike_do_not_tell_how_far_they_may_differ() -> None:
    found = over_seeds([3.0, 3.0, 3.0])
    assert not found.has_interval
    assert found.words(0) == "3 (equal in all seeds)"


def test_one_seed_has_no_interval_and_none_has_no_mean() -> None:
    one = over_seeds([0.5, math.nan])
    assert (one.mean, one.has_interval, one.seeds) == (0.5, False, 1)
    assert one.words() == "0.50"
    none = over_seeds([math.nan])
    assert math.isnan(none.mean)
    assert none.words() == "-"


def test_an_interval_stays_within_what_is_possible() -> None:
    found = over_seeds([0.1, 0.9], 0.0, 1.0)
    assert (found.low, found.high) == (0.0, 1.0)
    assert Estimate(1234.5, 1000, 2000, 3).words(0) == "1,234 [1,000, 2,000]"


def test_a_ratio_is_taken_seed_by_seed() -> None:
    """About twice as cheap with every seed: nearly certain, though the costs themselves differ tenfold."""
    found = ratio({0: 100, 1: 1000, 2: 400}, {0: 50, 1: 510, 2: 195})
    logs = np.log([2, 1000 / 510, 400 / 195])
    expected = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(np.exp(logs.mean()))
    assert (found.low, found.high) == pytest.approx((np.exp(expected.low), np.exp(expected.high)))
    assert found.high - found.low < 0.25
    assert found.seeds == 3
    # Seeds that only one of them has are not used where two or more are shared.
    some = ratio({0: 100, 1: 1000, 9: 1}, {0: 50, 1: 500})
    assert some.words(1) == "2.0 (equal in all seeds) (the 2 seeds of both)"
    assert difference({0: 0.5, 1: 0.7}, {0: 0.1, 1: 0.2, 2: 0.9}).note == "(the 2 seeds of both)"


def test_without_shared_seeds_both_sides_have_a_spread() -> None:
    ours, theirs = {0: 0.5, 1: 0.7}, {2: 0.1, 3: 0.2}
    found = difference(ours, theirs)
    expected = stats.ttest_ind([0.5, 0.7], [0.1, 0.2], equal_var=False).confidence_interval(0.95)
    assert found.mean == pytest.approx(0.45)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert "other seeds" in found.note
    assert not difference({0: 0.5}, {0: 0.1}).has_interval
