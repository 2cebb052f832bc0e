"""Numbers with intervals: what arms cost and reached, over their seeds and compared with one of them, the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

from fastslow.base.errors import FastSlowError
from fastslow.evaluation.asymptote import Asymptote, fit_asymptote
from fastslow.study.arms import Arm
from fastslow.study.curves import COSTS, Cost, Curve, Estimate, difference, over_seeds, ratio, unknown

COLUMNS = {
    **{"steps": "step", "rollouts": "rollouts", "tokens": "tokens", "seconds": "seconds"},
    **{"rewards": "reward", "lows": "low", "highs": "high", "kls": "kl", "seed_kls": "kl_under_seed"},
}
"""Columns of points.csv, by the field of a curve."""
SHARE = 0.8
"""The part of the baseline's gain whose cost is compared."""
UNRESOLVED = "not resolved: before the first evaluation"
"""In place of a cost: after the start, the first evaluation is already at the level, and when it was reached is unknown."""
DRAWS = 100
"""Bootstrap samples for the interval of an asymptote."""


def gain(curves: Sequence[Curve]) -> tuple[float, float]:
    """The mean reward before training, and that with `SHARE` of the gain until the end."""
    start, end = (sum(each) / len(curves) for each in zip(*((c.rewards[0], c.end) for c in curves), strict=True))
    return start, start + SHARE * (end - start)


@dataclass(frozen=True)
class Comparison:
    """Arms, and the baseline that the others are compared with."""

    arms: Sequence[Arm]
    baseline: Arm

    @classmethod
    def of(cls, arms: Sequence[Arm], baseline: str | None = None) -> Comparison:
        """The baseline is the arm with this label or method; by default RL only, or the first arm where there is none."""
        wanted = "rl" if baseline is None else baseline
        found = [arm for arm in arms if wanted in (arm.label, arm.method)]
        if not found and baseline is not None:
            labels = ", ".join(f"'{arm.label}'" for arm in arms)
            raise FastSlowError(f"--baseline {baseline}: no such arm or method; the arms are {labels}")
        return cls(arms, found[0] if found else arms[0])

    @property
    def others(self) -> list[Arm]:
        return [arm for arm in self.arms if arm is not self.baseline]

    # What was reached --------------------------------------------------------------------------------------------------

    def end(self, arm: Arm) -> Estimate:
        """Reward at the last evaluation."""
        return arm.mean(lambda curve: curve.rewards[-1], 1.0)

    def margin(self, arm: Arm) -> Estimate:
        """Reward at the last evaluation, less the baseline's."""
        ours, theirs = (each.each(lambda curve: curve.rewards[-1]) for each in (arm, self.baseline))
        return difference(ours, theirs).within(-1.0, 1.0)

    def is_apart(self, arm: Arm) -> bool:
        """Whether the reward at the end differs from the baseline's beyond noise, over seeds: one seed cannot tell, because
        two runs of one arm differ by more than the noise of their evaluations."""
        return self.margin(arm).settled(0)

    @property
    def one_seed(self) -> bool:
        """Whether no arm can be told from the baseline, because of one of the two there is one seed only."""
        return all(self.margin(arm).seeds < 2 for arm in self.others)

    @cached_property
    def shared_rollouts(self) -> float:
        """The rollouts of the run that spent the fewest."""
        return min(curve.rollouts[-1] for arm in self.arms for curve in arm.curves.values())

    def within_shared_rollouts(self, arm: Arm) -> Estimate:
        """Reward at the last evaluation within the rollouts that every run spent; unknown where that was before training."""
        if any(
            curve.within(self.shared_rollouts).rewards == curve.rewards[:1] != curve.rewards
            for curve in arm.curves.values()
        ):
            return unknown("not evaluated by then")
        return arm.mean(lambda curve: curve.reward_after(self.shared_rollouts), 1.0)

    def asymptote(self, arm: Arm) -> Asymptote | str:
        """The limit of reward over rollouts, or the reason why it cannot be fitted."""
        try:
            points = [(curve.rollouts, curve.rewards) for curve in arm.curves.values()]
            return fit_asymptote(points, draws=DRAWS, moved=_moves(arm, 1) or _moves(arm, -1))
        except FastSlowError as error:
            return str(error).partition(";")[0]

    # What it cost to reach the baseline's level ------------------------------------------------------------------------

    @cached_property
    def level(self) -> float:
        """The reward whose cost is compared: `SHARE` of the way from the baseline's mean reward before training to that at
        its end. A maximum would be partly luck, and the more so the more evaluations there are. Where the baseline does not
        rise, to exceed what it had before training."""
        start, level = gain(list(self.baseline.curves.values()))
        return level if self.baseline_rises else math.nextafter(start, math.inf)

    @property
    def level_words(self) -> str:
        base = self.baseline.label
        return f"{SHARE:.0%} of the gain of {base}" if self.baseline_rises else f"a reward above {base} before training"

    @property
    def baseline_rises(self) -> bool:
        """Whether the baseline improves on its reward before training beyond the noise of evaluations."""
        return _moves(self.baseline, 1)

    def costs(self, arm: Arm, of: Cost) -> dict[int, float]:
        """The cost at which each seed reached the level; infinity where it did not."""
        return arm.each(lambda curve: curve.cost(self.level, of))

    def unresolved(self, arm: Arm) -> bool:
        """Whether all seeds that reach the level are there by their first evaluation after the start. Where only some are, a
        straight line from the start does for them: without those seeds intervals would miss the truth more often."""
        reached = [at for curve in arm.curves.values() if (at := curve.reached(self.level))]
        return bool(reached) and max(reached) == 1

    def cost(self, arm: Arm, of: Cost) -> Estimate:
        """The mean over the seeds that reached it, with an interval only where all did: the others would have cost more."""
        if of == "steps" and arm.method == "gepa":
            return unknown("no updates")
        if self.unresolved(arm):
            return unknown(UNRESOLVED)
        costs = list(self.costs(arm, of).values())
        reached = [cost for cost in costs if cost < math.inf]
        if len(reached) == len(costs):
            return over_seeds(reached, 0.0)
        if not reached:
            return unknown("not reached")
        note = f"(in {len(reached)} of {len(costs)} seeds)"
        return Estimate(sum(reached) / len(reached), seeds=len(reached), note=note)

    def saving(self, arm: Arm, of: Cost) -> Estimate:
        """The baseline's cost of the level divided by this arm's."""
        if arm is self.baseline:
            return Estimate(1.0)
        if why := self._no_saving(arm, of):
            return unknown(why)
        sides = [self.costs(each, of) for each in (arm, self.baseline)]
        ours, theirs = ({seed: cost for seed, cost in side.items() if 0 < cost < math.inf} for side in sides)
        if not ours or not theirs:
            return unknown("not reached" if all(cost == math.inf for cost in sides[0].values()) else "-")
        found = ratio(theirs, ours)
        if (len(ours), len(theirs)) == (len(sides[0]), len(sides[1])):
            return found
        reached = [f"{len(ours)} of {len(sides[0])}", f"{len(theirs)} of {len(sides[1])}"]
        note = f"(in the {' and '.join(dict.fromkeys(reached))} seeds that reach it)"
        return Estimate(found.mean, seeds=found.seeds, note=note)

    def _no_saving(self, arm: Arm, of: Cost) -> str:
        """Why two costs cannot be divided."""
        if of == "steps" and "gepa" in (arm.method, self.baseline.method):
            return "no updates"
        if not self.baseline_rises:
            return "baseline does not improve"
        return "not resolved" if self.unresolved(arm) or self.unresolved(self.baseline) else ""

    def savings(self) -> dict[str, dict[Cost, Estimate]]:
        """How many times less each arm needs than the baseline, where that is known."""
        found = {arm.label: {cost: self.saving(arm, cost) for cost in COSTS} for arm in self.others}
        known = {
            label: {cost: saved for cost, saved in costs.items() if not math.isnan(saved.mean)}
            for label, costs in found.items()
        }
        return {label: costs for label, costs in known.items() if costs}

    # How far it moved --------------------------------------------------------------------------------------------------

    @property
    def has_kl(self) -> bool:
        return any(not math.isnan(_reach(arm)) for arm in self.arms)

    def kl_at_level(self, arm: Arm) -> Estimate:
        """KL from the base model when the level was reached."""
        return arm.mean(lambda curve: curve.kl_at(self.level))

    def shared_kl(self, arm: Arm) -> float:
        """The KL from the base model that every trained run of the arm and of the baseline reached.

        It is taken per arm: with a common one, an arm that hardly moves would hide the others.
        """
        reached = [_reach(each) for each in (arm, self.baseline) if each.method != "gepa"]
        return math.nan if any(math.isnan(kl) for kl in reached) else min(reached, default=math.nan)

    def reward_at_kl(self, arm: Arm, kl: float) -> Estimate:
        """The best reward within this KL from the base model."""
        return arm.mean(lambda curve: curve.reward_within(kl), 1.0)

    def margin_at_kl(self, arm: Arm) -> Estimate:
        """The best reward within the KL that arm and baseline reached, less the baseline's."""
        kl = self.shared_kl(arm)
        ours, theirs = (each.each(lambda curve: curve.reward_within(kl)) for each in (arm, self.baseline))
        return difference(ours, theirs).within(-1.0, 1.0)

    def last(self, arm: Arm, of: str) -> Estimate:
        """A field of the curves at the last evaluation."""
        return arm.mean(lambda curve: getattr(curve, of)[-1])

    def entropy(self, arm: Arm) -> Estimate:
        """Entropy of the policy at the last step, nats a token."""
        return over_seeds([series[-1][1] for series in arm.entropies.values() if series], 0.0)

    # As tables ----------------------------------------------------------------------------------------------------------

    def measures(self) -> Iterator[tuple[Arm, str, Estimate]]:
        """Every number of the comparison."""
        base = self.baseline.label
        level = self.level_words
        for arm in self.arms:
            yield arm, "reward at the end", self.end(arm)
            yield arm, f"reward at the end, difference from {base}", self.margin(arm)
            yield arm, f"reward within {self.shared_rollouts:.0f} rollouts", self.within_shared_rollouts(arm)
            for of in COSTS:
                yield arm, f"{of} at the end", self.last(arm, of)
                yield arm, f"{of} to reach {level}", self.cost(arm, of)
                yield arm, f"{of} of {base} to reach it, divided by its own", self.saving(arm, of)
            yield arm, "KL from base at the end, nats per token", self.last(arm, "kls")
            yield arm, "KL from base at the end, both under the seed text", self.last(arm, "seed_kls")
            yield arm, f"KL from base at {level}", self.kl_at_level(arm)
            shared = self.shared_kl(arm)
            yield arm, f"KL that it and {base} have reached", Estimate(shared)
            yield arm, "reward within that KL", self.reward_at_kl(arm, shared)
            yield arm, f"reward within that KL, difference from {base}", self.margin_at_kl(arm)
            yield arm, "entropy at the end, nats per token", self.entropy(arm)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"arm": arm.label, "method": arm.method, "measure": measure, **asdict(found)}
            for arm, measure, found in self.measures()
        ]

    def points(self) -> list[dict[str, Any]]:
        return [
            {"arm": arm.label, "method": arm.method, "seed": seed}
            | {name: getattr(curve, column)[index] for column, name in COLUMNS.items()}
            for arm in self.arms
            for seed, curve in arm.curves.items()
            for index in range(len(curve.rewards))
        ]


def _moves(arm: Arm, sign: int) -> bool:
    """Whether some evaluation of an arm, averaged over seeds, is above (1) or below (-1) that before training beyond the
    noise of evaluations: with 95% confidence, although the furthest of several is looked at."""
    curves = list(arm.curves.values())
    later = range(1, min(len(curve.rewards) for curve in curves))
    needed = NormalDist().inv_cdf(1 - 0.05 / max(1, len(later)))
    return any(
        sign * sum(curve.rewards[at] - curve.rewards[0] for curve in curves)
        > needed * math.hypot(*(curve.deviation(place) for curve in curves for place in (0, at)))
        for at in later
    )


def _reach(arm: Arm) -> float:
    """The KL from the base model that every run of the arm reached; NaN where it was not measured."""
    most = [max((kl for kl in curve.kls if not math.isnan(kl)), default=math.nan) for curve in arm.curves.values()]
    return min((kl for kl in most if not math.isnan(kl)), default=math.nan)
