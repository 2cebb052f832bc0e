"""A run as a curve, its reward after so many steps, rollouts, tokens and seconds; and estimates over seeds with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import stdtrit  # scipy.stats has the same, and takes a second to import

from fastslow.base.errors import RunError
from fastslow.recipe.model import Method
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import read_divergence

ALIKE = "(equal in all seeds)"
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

    Equal seeds have no spread to estimate an interval from.
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
        sides = list(ours.values()), list(theirs.values())
        mean, seeds = float(np.mean(sides[0]) - np.mean(sides[1])), min(map(len, sides))
        if seeds < 2:
            return Estimate(mean, seeds=seeds)
        variances = [float(np.var(side, ddof=1) / len(side)) for side in sides]
        parts = [variance**2 / (len(side) - 1) for variance, side in zip(variances, sides, strict=True)]
        spread = sum(variances)
        half = float(stdtrit(spread**2 / sum(parts), 0.975) * math.sqrt(spread)) if sum(parts) else 0.0
        return Estimate(mean, mean - half, mean + half, seeds, "(other seeds)")
    found = over_seeds([ours[seed] - theirs[seed] for seed in paired])
    if len(ours) == len(theirs) == len(paired):
        return found
    return replace(found, note=f"{found.note} (the {len(paired)} seeds of both)".lstrip())


def ratio(theirs: Mapping[int, float], ours: Mapping[int, float]) -> Estimate:
    """Theirs divided by ours: the difference of their logarithms, so that the mean is geometric."""
    found = difference(*({seed: math.log(value) for seed, value in side.items()} for side in (theirs, ours)))
    return replace(found, mean=math.exp(found.mean), low=math.exp(found.low), high=math.exp(found.high))


Cost = Literal["steps", "rollouts", "tokens", "seconds"]
"""What reward is plotted against."""
COSTS: tuple[Cost, ...] = get_args(Cost)


@dataclass(frozen=True)
class Curve:
    """One point for every evaluation of a run, in order; values that were not measured are NaN.

    A run is evaluated under its best context, or under the seed text while there is no better one. FST-distill is evaluated
    under the seed text: its student is the model without a context.
    """

    steps: tuple[float, ...]
    """Steps of the loop; with frozen weights they update nothing."""
    rollouts: tuple[float, ...]
    """Training rollouts of both loops."""
    tokens: tuple[float, ...]
    """Prompt and completion tokens of these rollouts."""
    seconds: tuple[float, ...]
    """Training time, without evaluation."""
    rewards: tuple[float, ...]
    """Mean reward on validation problems."""
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    """The 95% interval of the reward over problems."""
    kls: tuple[float, ...]
    """KL of the policy from the base model, both under the context that the run is evaluated under."""
    seed_kls: tuple[float, ...]
    """The same KL with both under the seed text."""

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[Mapping[str, Any]],
        method: Method = "fst",
        measured: Mapping[tuple[int, str], float] | None = None,
    ) -> Curve:
        """The curve of the rows of an `evals.jsonl`; `measured` holds KLs, by step and context, that the rows lack."""
        best = "best context"
        labels = [best if best in row["results"] and method != "distill" else "seed" for row in rows]

        def known(value: float | None) -> float:
            return math.nan if value is None else value

        def kl(row: Mapping[str, Any], label: str) -> float:
            found = row["results"][label].get("kl")
            return known((measured or {}).get((row.get("step", -1), label)) if found is None else found)

        def column(name: str) -> tuple[float, ...]:
            return tuple(row["results"][label][name] for row, label in zip(rows, labels, strict=True))

        return cls(
            steps=tuple(known(row.get("step")) for row in rows),
            rollouts=tuple(row["rollouts_slow"] + row["rollouts_fast"] for row in rows),
            tokens=tuple(known(row.get("tokens")) for row in rows),
            seconds=tuple(known(row.get("seconds")) for row in rows),
            rewards=column("mean"),
            lows=column("low"),
            highs=column("high"),
            kls=tuple(map(kl, rows, labels)),
            seed_kls=tuple(kl(row, "seed") for row in rows),
        )

    def within(self, rollouts: float) -> Curve:
        """The curve truncated at so many rollouts."""
        kept = [index for index, spent in enumerate(self.rollouts) if spent <= rollouts]
        return Curve(**{each.name: tuple(getattr(self, each.name)[index] for index in kept) for each in fields(self)})

    def deviation(self, at: int) -> float:
        """The standard deviation of an evaluation over problems, from its 95% interval."""
        return (self.highs[at] - self.lows[at]) / 2 / NormalDist().inv_cdf(0.975)

    @cached_property
    def fitted(self) -> tuple[float, ...]:
        """The rewards without their noise, as far as that is known of a curve that does not fall: isotonic regression."""
        fit = isotonic_regression(self.rewards).x  # means of equal rewards are rounded
        return tuple(fit.clip(min(self.rewards), max(self.rewards)).tolist())

    def reached(self, reward: float) -> int | None:
        """The first evaluation at which the fitted curve has a reward; None where it never does."""
        return next((index for index, found in enumerate(self.fitted) if found >= reward), None)

    def cost(self, reward: float, of: Cost) -> float:
        """The cost at which the fitted curve reaches a reward, between evaluations by a straight line; infinity where it does
        not. To exceed an evaluation takes until the next. Before the second evaluation, the first after the start, this line
        is all that is known."""
        at = self.reached(reward)
        costs: tuple[float, ...] = getattr(self, of)
        if not at:
            return math.inf if at is None else costs[0]
        before, after = self.fitted[at - 1], self.fitted[at]
        way = 1.0 if math.isclose(reward, before, abs_tol=1e-12) else (reward - before) / (after - before)
        return costs[at - 1] + (costs[at] - costs[at - 1]) * way

    def kl_at(self, reward: float) -> float:
        """KL from the base model at the first evaluation where the fitted curve reaches a reward; NaN where it does not."""
        at = self.reached(reward)
        return math.nan if at is None else self.kls[at]

    @property
    def end(self) -> float:
        """Mean reward over the last quarter of the evaluations."""
        last = self.rewards[-max(1, len(self.rewards) // 4) :]
        return sum(last) / len(last)

    def reward_within(self, kl: float) -> float:
        """The best reward among evaluations with at most this KL from the base model; NaN where there are none."""
        within = [reward for reward, moved in zip(self.rewards, self.kls, strict=True) if moved <= kl]
        return max(within, default=math.nan)

    def reward_after(self, rollouts: float) -> float:
        """The reward at the last evaluation within so many rollouts; NaN where there is none."""
        return next(reversed(self.within(rollouts).rewards), math.nan)


def read_curve(folder: str | Path) -> Curve:
    """The curve of a run so far, from its folder."""
    run = RunFolder.open(folder)
    rows = run.rows("evals")
    if not rows:
        raise RunError(f"'{run.path}' has no evaluations; train it with evaluation.every above 0")
    return Curve.from_rows(rows, run.recipe.method, read_divergence(run.path))
