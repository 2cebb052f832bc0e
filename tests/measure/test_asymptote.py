"""The fit on made-up curves whose limit is known, and on curves that have none to tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.errors import FastSlowError
from fastslow.measure.asymptote import curve, fit_asymptote

STEPS = np.arange(0, 401, 20, dtype=float)


def made(
    limit: float, seeds: int = 1, *, start: float = 0.1, middle: float = 80.0, noise: float = 0.02, steps=STEPS
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Curves with the same limit, each with noise of its own."""
    draw = np.random.default_rng(7)
    clean = curve(steps, start, limit, middle, 2.0)
    return [(steps, np.clip(clean + draw.normal(0, noise, len(steps)), 0, 1)) for _ in range(seeds)]


@settings(derandomize=True, deadline=None, max_examples=12)
@given(st.floats(0.3, 0.95), st.floats(0.0, 0.2), st.floats(30, 120), st.floats(1.2, 4.0))
def test_without_noise_the_curve_is_found(limit: float, start: float, middle: float, steepness: float) -> None:
    found = fit_asymptote([(STEPS, curve(STEPS, start, limit, middle, steepness))], draws=5)
    assert found.limit == pytest.approx(limit, abs=0.01)
    assert found.start == pytest.approx(start, abs=0.01)
    assert found.middle == pytest.approx(middle, rel=0.05)
    assert found.at(0.0) == pytest.approx(start, abs=0.01)
    np.testing.assert_allclose(found.at(STEPS), curve(STEPS, start, limit, middle, steepness), atol=0.005)


@pytest.mark.parametrize("seeds", [1, 2, 5])
@pytest.mark.parametrize("limit", [0.35, 0.8])
def test_with_noise_the_interval_holds_the_limit_and_is_telling(seeds: int, limit: float) -> None:
    found = fit_asymptote(made(limit, seeds), draws=100)
    assert found.determined, found.doubts
    assert found.low - 0.01 <= limit <= found.high + 0.01
    assert found.high - found.low < 0.12


def test_single_wild_evaluations_do_not_pull_the_limit() -> None:
    ((steps, rewards),) = made(0.6)
    wild = rewards.copy()
    wild[[5, 15]] = [0.95, 0.05]
    assert fit_asymptote([(steps, wild)], draws=20).limit == pytest.approx(0.6, abs=0.05)


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of 30 made-up sets of four seeds with a spread between seeds, most intervals hold the true limit."""
    draw, held = np.random.default_rng(0), 0
    steps = np.arange(0, 401, 40, dtype=float)
    for index in range(30):
        limits = 0.6 + draw.normal(0, 0.03, 4)
        runs = [(steps, curve(steps, 0.1, each, 60, 2.0) + draw.normal(0, 0.02, len(steps))) for each in limits]
        found = fit_asymptote(runs, draws=60, seed=index)
        held += found.low <= 0.6 <= found.high
    assert held >= 22  # a bootstrap over four seeds is known to be a little narrow


UNDETERMINED = {
    "not risen": (made(0.1), "does not change beyond the noise"),
    "not bent": (made(0.9, middle=900.0, noise=0.01), "has not bent yet"),
    "all zero": ([(STEPS, np.zeros_like(STEPS))], "does not change beyond the noise"),
    "noise all over": (made(0.4, start=0.2, middle=200, noise=0.15), "wide|noise"),
    "a straight line": ([(STEPS, 0.05 + STEPS / 1000)], "has not bent yet|wide|highest possible"),
}


@pytest.mark.parametrize("case", UNDETERMINED)
def test_where_the_data_do_not_determine_the_limit_it_says_so(case: str) -> None:
    runs, reason = UNDETERMINED[case]
    found = fit_asymptote(runs, draws=60)
    assert not found.determined
    assert pytest.approx(0) != len(found.doubts)
    import re

    assert re.search(reason, "; ".join(found.doubts))
    assert found.low <= found.limit <= found.high


def test_a_curve_that_falls_has_a_limit_too() -> None:
    found = fit_asymptote([(STEPS, curve(STEPS, 0.7, 0.2, 60.0, 2.0))], draws=20)
    assert found.limit == pytest.approx(0.2, abs=0.02)
    assert found.determined


def test_the_same_data_give_the_same_interval_and_gaps_are_left_out() -> None:
    ((steps, rewards),) = made(0.6)
    gaps = rewards.copy()
    gaps[3] = np.nan
    assert fit_asymptote([(steps, gaps)], draws=20) == fit_asymptote([(steps, gaps)], draws=20)
    assert fit_asymptote([(steps, gaps)], draws=5).limit == pytest.approx(0.6, abs=0.04)


def test_too_few_evaluations_are_refused() -> None:
    with pytest.raises(FastSlowError, match="3 evaluations after the start do not determine"):
        fit_asymptote([([0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4])])
