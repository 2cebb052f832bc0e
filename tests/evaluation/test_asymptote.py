"""The fit on made-up curves whose limit is known, and on curves that have none to tell."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fastslow.base.errors import FastSlowError
from fastslow.evaluation.asymptote import curve, fit_asymptote

STEPS = np.arange(0, 401, 20, dtype=float)


def made(
    limit: float, seeds: int = 1, *, start: float = 0.1, middle: float = 80.0, noise: float = 0.02, steps=STEPS
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Curves with the same limit, each with noise of its own."""
    draw = np.random.default_rng(3)
    clean = curve(steps, start, limit, middle, 2.0)
    return [(steps, np.clip(clean + draw.normal(0, noise, len(steps)), 0, 1)) for _ in range(seeds)]


@settings(deadline=None, max_examples=12)
@given(st.floats(0.3, 0.95), st.floats(0.0, 0.2), st.floats(30, 120), st.floats(1.2, 4.0))
def test_without_noise_the_curve_is_found(limit: float, start: float, middle: float, steepness: float) -> None:
    found = fit_asymptote([(STEPS, curve(STEPS, start, limit, middle, steepness))], draws=5)
    assert found.limit == pytest.approx(limit, abs=0.01)
    assert found.start == pytest.approx(start, abs=0.01)
    assert found.middle == pytest.approx(middle, rel=0.05)
    assert found.at(0.0) == pytest.approx(start, abs=0.01)
    np.testing.assert_allclose(found.at(STEPS), curve(STEPS, start, limit, middle, steepness), atol=0.005)


@pytest.mark.parametrize(("seeds", "limit"), [(1, 0.35), (1, 0.8), (5, 0.35)])
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


@pytest.mark.parametrize("seeds", [1, 4])
def test_the_interval_covers_about_as_often_as_it_says(seeds: int) -> None:
    """Fifteen made-up studies; with several seeds their limits differ, and the interval is of the mean of all seeds."""
    draw, held = np.random.default_rng(1), 0
    steps = np.arange(0, 401, 25, dtype=float)
    for index in range(15):
        limits = 0.6 + (draw.normal(0, 0.03, seeds) if seeds > 1 else np.zeros(1))
        runs = [(steps, curve(steps, 0.1, each, 60, 2.0) + draw.normal(0, 0.02, len(steps))) for each in limits]
        found = fit_asymptote(runs, draws=40, seed=index)
        held += found.low <= 0.6 <= found.high
    assert held >= 13


def test_the_slopes_given_to_the_solver_lead_to_the_least_cost() -> None:
    """Against scipy's general minimizer, which is given no slopes."""
    ((steps, rewards),) = made(0.6)

    def cost(parameters: np.ndarray) -> float:
        start, limit, log_middle, log_steepness = parameters
        missed = (curve(steps, start, limit, np.exp(log_middle), np.exp(log_steepness)) - rewards) / 0.03
        return float((2 * (np.sqrt(1 + missed**2) - 1)).sum())

    found = fit_asymptote([(steps, rewards)], draws=1)
    ours = np.array([found.start, found.limit, np.log(found.middle), np.log(found.steepness)])
    theirs = minimize(cost, [0.1, 0.5, np.log(100), 0.5], method="Nelder-Mead", options={"maxiter": 4000})
    assert cost(ours) == pytest.approx(theirs.fun, rel=1e-3)


UNDETERMINED = {
    "not risen": (made(0.1), "does not change beyond the noise"),
    "not bent": (made(0.9, middle=900.0, noise=0.01), "has not levelled off"),
    "all zero": ([(STEPS, np.zeros_like(STEPS))], "does not change beyond the noise"),
    "noise all over": (made(0.4, start=0.2, middle=200, noise=0.15), "wide|noise"),
    "a straight line": ([(STEPS, 0.05 + STEPS / 1000)], "has not levelled off|wide|highest possible"),
}


@pytest.mark.parametrize("case", UNDETERMINED)
def test_where_the_data_do_not_determine_the_limit_it_says_so(case: str) -> None:
    runs, reason = UNDETERMINED[case]
    found = fit_asymptote(runs, draws=60)
    assert not found.determined
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
