"""Estimates over seeds: a mean with its 95% interval. One seed has no interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit  # scipy.stats has the same, and takes a second to import

ALIKE = "(all alike)"
"""The note of an estimate over several seeds that do not differ."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95% interval, which is NaN where there are too few seeds."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    seeds: int = 1
    note: str = ""

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.low)

    def settled(self, value: float) -> bool:
        """Whether the seeds exclude a value: their interval, or, where they are all alike, each of them."""
        if self.has_interval:
            return not self.low <= value <= self.high
        return self.note.startswith(ALIKE) and not math.isclose(self.mean, value)

    def within(self, floor: float, ceiling: float) -> Estimate:
        """The same estimate with its interval clipped to the possible values."""
        return replace(self, low=max(self.low, floor), high=min(self.high, ceiling)) if self.has_interval else self

    def words(self, digits: int = 2) -> str:
        if math.isnan(self.mean):
            return self.note or "-"
        interval = f"[{self.low:,.{digits}f}, {self.high:,.{digits}f}]" if self.has_interval else ""
        return " ".join(part for part in (f"{self.mean:,.{digits}f}", interval, self.note) if part)


def unknown(note: str = "") -> Estimate:
    """No estimate, and why."""
    return Estimate(math.nan, seeds=0, note=note)


def over_seeds(values: Sequence[float], floor: float = -math.inf, ceiling: float = math.inf) -> Estimate:
    """Student's t over the seeds that have a value, with the interval clipped to the possible values.

    Equal seeds, as where each reaches a peak at the same evaluation, have no spread to estimate an interval from.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return unknown()
    mean = float(np.mean(known))
    if len(known) < 2:
        return Estimate(mean)
    if max(known) - min(known) < 1e-12:
        return Estimate(mean, seeds=len(known), note=ALIKE)
    half = float(stdtrit(len(known) - 1, 0.975) * (np.std(known, ddof=1) / np.sqrt(len(known))))
    return Estimate(mean, mean - half, mean + half, len(known)).within(floor, ceiling)


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate:
    """Ours less theirs, seed by seed where both have two or more seeds in common, otherwise by Welch; there is no interval
    where a side has one seed."""
    paired = sorted(set(theirs) & set(ours))
    if len(paired) < 2:
        return _welch(list(ours.values()), list(theirs.values()))
    found = over_seeds([ours[seed] - theirs[seed] for seed in paired])
    if len(ours) == len(theirs) == len(paired):
        return found
    return replace(found, note=f"{found.note} (the {len(paired)} seeds of both)".lstrip())


def ratio(theirs: Mapping[int, float], ours: Mapping[int, float]) -> Estimate:
    """Theirs divided by ours: the difference of their logarithms, so that the mean is geometric."""
    found = difference(*({seed: math.log(value) for seed, value in side.items()} for side in (theirs, ours)))
    return replace(found, mean=math.exp(found.mean), low=math.exp(found.low), high=math.exp(found.high))


def _welch(first: Sequence[float], second: Sequence[float]) -> Estimate:
    mean, seeds = float(np.mean(first) - np.mean(second)), min(len(first), len(second))
    if seeds < 2:
        return Estimate(mean, seeds=seeds)
    variances = [float(np.var(side, ddof=1) / len(side)) for side in (first, second)]
    parts = [variance**2 / (len(side) - 1) for variance, side in zip(variances, (first, second), strict=True)]
    half = float(stdtrit(sum(variances) ** 2 / sum(parts), 0.975) * math.sqrt(sum(variances))) if sum(parts) else 0.0
    return Estimate(mean, mean - half, mean + half, seeds, "(other seeds)")
