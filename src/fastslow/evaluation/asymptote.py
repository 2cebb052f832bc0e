"""Asymptote of a learning curve: R(C) = R0 + (A − R0) / (1 + (Cmid/C)^B), fitted to reward against steps or rollouts.

R0 is the reward before training, A the asymptote, Cmid the compute at half of the gain, B the steepness. The loss is robust,
since single evaluations are noisy; every fit has several starting points, since the loss surface has flat regions. A curve
that has not risen or not levelled off is compatible with almost any A: the result then lists doubts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares
from scipy.special import expit, fdtrc, ndtri, stdtrit  # scipy.stats has the same, and takes a second to import

from fastslow.base.errors import FastSlowError

Floats = NDArray[np.float64]

FEWEST = 6
"""Minimum number of evaluations after the start of training: the curve has four parameters."""
BENT = 0.7
"""Fraction of the gain A − R0 that the curve must have reached at its last point."""
WIDEST = 0.5
"""Maximum width of A's interval, as a fraction of A − R0."""
NARROW = 0.05
"""An interval up to this width is always accepted."""
STEEPNESS = (0.3, 12.0)
"""Bounds of B: below, the curve is a straight line over decades; above, a jump between two evaluations."""
OUTLIER = 0.03
"""Residuals larger than this count less than quadratically."""
CEILING = 1.0
"""The highest possible reward."""


@dataclass(frozen=True)
class Asymptote:
    """The fitted curve, the 95% interval of A, and doubts about A."""

    start: float
    """R0."""
    limit: float
    """A."""
    low: float
    high: float
    middle: float
    """Cmid."""
    steepness: float
    """B."""
    doubts: tuple[str, ...]
    """Why the data do not determine A; empty if they do."""

    @property
    def determined(self) -> bool:
        return not self.doubts

    def at(self, compute: ArrayLike) -> Floats:
        return curve(np.asarray(compute, dtype=float), self.start, self.limit, self.middle, self.steepness)


def curve(compute: Floats, start: float, limit: float, middle: float, steepness: float) -> Floats:
    return start + (limit - start) * _fraction(_log(compute), np.log(middle), steepness)


def _log(compute: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(compute)


def _fraction(log_compute: Floats, log_middle: float, steepness: float) -> Floats:
    """The fraction of A − R0 reached: 1 / (1 + (Cmid/C)^B)."""
    return expit(steepness * (log_compute - log_middle))


def fit_asymptote(
    curves: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    draws: int = 200,
    seed: int = 0,
    moved: bool = False,
) -> Asymptote:
    """Fit one curve to the points of several runs, each (compute, reward), with a bootstrap interval for A.

    With at least three runs, the bootstrap resamples whole runs, for an interval over seeds. With fewer, it resamples the
    residuals of the fit, and the interval covers only the noise of evaluations. The bootstrap underestimates the variance of
    few runs or points, so the interval is widened by Student's t. `moved` says that the rewards are known to change beyond
    the noise of evaluations, which a fit to few points may not show.
    """
    runs = [(np.asarray(x, dtype=float), np.asarray(y, dtype=float)) for x, y in curves]
    runs = [(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in runs]
    compute, rewards = _joined(runs)
    if len(np.unique(compute[compute > 0])) < FEWEST:
        raise FastSlowError(
            f"{len(np.unique(compute[compute > 0]))} evaluations after the start do not determine a four-parameter curve; "
            f"at least {FEWEST} are needed: lower evaluation.every, or train for longer"
        )
    scale = compute.max()
    best = _fit(compute / scale, rewards, _starts(rewards))
    residuals = rewards - curve(compute / scale, *best)
    draw, limits = np.random.default_rng(seed), []
    fitted_again: dict[tuple[int, ...], float] = {}  # few runs give the same draw more than once, and fits take long

    def limit_of(x: Floats, y: Floats) -> float:
        return float(_fit(x / scale, y, [best, _flatter(best)])[1])

    for _ in range(draws):
        if len(runs) >= 3:
            chosen = tuple(sorted(draw.integers(len(runs), size=len(runs)).tolist()))
            if chosen not in fitted_again:
                fitted_again[chosen] = limit_of(*_joined([runs[index] for index in chosen]))
            limits.append(fitted_again[chosen])
        else:
            limits.append(
                limit_of(compute, curve(compute / scale, *best) + draw.choice(residuals, size=len(residuals)))
            )
    units, fitted = (len(runs), 1) if len(runs) >= 3 else (len(rewards), 4)
    start, limit, middle, steepness = (float(value) for value in best)
    low, high = _widened(limit, limits, units, max(units - fitted, 1))
    doubts = _doubts(best, (low, high), compute / scale, rewards, moved)
    return Asymptote(start, limit, low, high, middle * scale, steepness, tuple(doubts))


def _widened(limit: float, limits: Sequence[float], units: int, freedom: int) -> tuple[float, float]:
    """The middle 95% of the bootstrap draws, widened around the estimate."""
    # With this method the coverage is 95% on average for any number of draws.
    low, high = np.quantile(limits, [0.025, 0.975], method="weibull")
    factor = np.sqrt(units / freedom) * stdtrit(freedom, 0.975) / ndtri(0.975)
    below, above = max(limit - low, 0.0), max(high - limit, 0.0)
    return float(max(limit - factor * below, 0.0)), float(min(limit + factor * above, CEILING))


def _doubts(best: Floats, interval: tuple[float, float], compute: Floats, rewards: Floats, moved: bool) -> list[str]:
    """Why the data do not determine A."""
    start, limit, _, _ = best
    low, high = interval
    end = float(curve(compute.max(keepdims=True), *best)[0])
    found = []
    changes = _changes(best, compute, rewards)
    if not changes and moved:
        found.append(
            f"the evaluations, between {rewards.min():.2f} and {rewards.max():.2f}, do not follow a curve closely"
        )
    elif not changes:
        found.append(f"reward does not change beyond the noise of its evaluations (it stays near {rewards.mean():.2f})")
    elif abs(end - start) < BENT * abs(limit - start):
        share = abs(end - start) / abs(limit - start)
        found.append(
            f"the curve has reached only {share:.0%} of the gain to the fitted {limit:.2f}: it ends at {end:.2f} and has not "
            "levelled off; train for longer"
        )
    if high - low > max(NARROW, WIDEST * abs(limit - start)):
        found.append(
            f"the interval of the limit is wide: {low:.2f} to {high:.2f}; more seeds or evaluation.problems help"
        )
    if abs(limit - CEILING) < 1e-3 and end < CEILING - 0.1:
        found.append(f"the fitted limit is the highest possible reward, {CEILING:g}, and the curve ends at {end:.2f}")
    return found


def _changes(best: Floats, compute: Floats, rewards: Floats) -> bool:
    """Whether the curve fits better than a constant, by an F test."""
    constant = float(((rewards - rewards.mean()) ** 2).sum())
    fitted = float(((rewards - curve(compute, *best)) ** 2).sum())
    freedom = len(rewards) - 4
    if constant < 1e-12:
        return False
    if freedom < 1 or fitted < 1e-12:
        return True
    return bool(fdtrc(3, freedom, (constant - fitted) / 3 / (fitted / freedom)) < 0.01)


def _fit(compute: Floats, rewards: Floats, starts: Sequence[Floats]) -> Floats:
    """R0, A, Cmid and B of the best fit; `compute` is scaled to a maximum of 1."""
    low = np.array([0.0, 0.0, np.log(1e-4), np.log(STEEPNESS[0])])
    high = np.array([CEILING, CEILING, np.log(1e2), np.log(STEEPNESS[1])])

    log_compute = _log(compute)

    def residual(parameters: Floats) -> Floats:
        start, limit, log_middle, log_steepness = parameters
        return start + (limit - start) * _fraction(log_compute, log_middle, np.exp(log_steepness)) - rewards

    def slopes(parameters: Floats) -> Floats:
        start, limit, log_middle, log_steepness = parameters
        fraction, steepness = _fraction(log_compute, log_middle, np.exp(log_steepness)), np.exp(log_steepness)
        bend = (limit - start) * fraction * (1 - fraction) * steepness
        distance = np.where(compute > 0, log_compute - log_middle, 0.0)
        return np.stack([1 - fraction, fraction, -bend, bend * distance], axis=1)

    fits = []
    for start in starts:
        first = np.array([start[0], start[1], np.log(start[2]), np.log(start[3])])
        inside = np.clip(first, low + 1e-6, high - 1e-6)
        fits.append(least_squares(residual, inside, slopes, (low, high), loss="soft_l1", f_scale=OUTLIER, max_nfev=100))
    found = min(fits, key=lambda fit: fit.cost).x
    return np.array([found[0], found[1], np.exp(found[2]), np.exp(found[3])])


def _starts(rewards: Floats) -> list[Floats]:
    low, high = float(np.quantile(rewards, 0.05)), float(np.quantile(rewards, 0.95))
    far = min(CEILING, high + (high - low) + 0.05)
    return [
        np.array([low, limit, middle, steepness])
        for limit, middle, steepness in product((high, far), (0.1, 0.5, 1.5), (1.0, 4.0))
    ]


def _flatter(best: Floats) -> Floats:
    """A starting point with a higher limit, which may fit a bootstrap draw better."""
    start, limit, middle, steepness = best
    return np.array([start, min(CEILING, limit + 0.3), min(middle * 2, 50.0), max(steepness / 2, STEEPNESS[0])])


def _joined(runs: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    return np.concatenate([x for x, _ in runs]), np.concatenate([y for _, y in runs])
