"""Whether the slow loop rises, falls or cannot learn, from what its steps record.

The reward of a step is a noisy measurement of its policy: a few problems, each harder or easier than others. `Course` takes
the true reward to be a random walk that is measured with this noise (a local-level model). The noise is known, from the
spread of rewards over the problems of a step; how fast the walk moves is what the measurements make most likely. A Kalman
smoother then gives every step a reward with an interval, and every two steps a difference with an interval.

Nothing here reads validation problems. A course is of one stage: rewards of different tasks cannot be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

DRIFTS = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""How far the true reward may move in a step: its variance as a share of the noise's. The likeliest is taken."""
FIRST, APART, PEAKS = 3, 3, 2
"""Steps before the first best checkpoint, and from one to the next; how many are kept."""
BETTER, SURE, FALLEN = 0.3, 1.0, 3.0
"""Deviations by which a checkpoint is saved as the best so far, by which it is preferred to the last one, and by which the
reward has fallen below it (benchmarks/checkpoint_choice.py)."""
LESS, LOSS = 0.05, 0.1
"""The shares of the best reward that are lost at least where it is preferred to the last, and in a fall."""
WINDOW, EQUAL, ENTROPY, SOLVED = 10, 0.75, 0.25, 0.9
"""A collapse, over as many steps: at least this share of equal groups, at most this share of the entropy at the beginning,
at most this reward."""
CYCLES = 5
"""Cycles without a new text before a run of both loops is given up."""
SLOWER = 0.1
"""The factor of the learning rate after a fall (benchmarks/falls.py)."""


@dataclass(frozen=True)
class Point:
    """What a step says of the policy before its update."""

    step: int
    reward: float
    """The mean over problems."""
    variance: float
    """Of this mean, by the spread over problems."""
    equal: float = 0.0
    """Fraction of groups whose rewards are all equal."""
    entropy: float | None = None


def point(step: int, rewards: Sequence[float], equal: float = 0.0, entropy: float | None = None) -> Point:
    """From the mean reward of every problem of a step."""
    mean, count = fmean(rewards), len(rewards)
    spread = math.fsum((reward - mean) ** 2 for reward in rewards) / (count - 1) if count > 1 else 0.0
    return Point(step, mean, spread / count, equal, entropy)


@dataclass(frozen=True)
class Smoothed:
    """The rewards of the steps of a course, given all that was measured."""

    means: Sequence[float]
    variances: Sequence[float]
    gains: Sequence[float]
    """What a step's estimate takes over of a change in the next one's."""

    def lead(self, first: int, second: int) -> tuple[float, float]:
        """How much more the reward is at one place than at a later one, and the deviation of that."""
        together = self.variances[second] * math.prod(self.gains[first:second])
        spread = self.variances[first] + self.variances[second] - 2 * together
        return self.means[first] - self.means[second], math.sqrt(max(spread, 0.0))


def smooth(points: Sequence[Point]) -> Smoothed:
    """A Kalman smoother, with the drift of the highest likelihood."""
    rewards = [each.reward for each in points]
    noise = max(math.fsum(each.variance for each in points) / len(points), 1e-9)
    filtered = max((_filter(rewards, noise, noise * share) for share in DRIFTS), key=lambda found: found[0])
    _, means, variances, drift = filtered
    gains = [variance / (variance + drift) for variance in variances[:-1]]
    for place in range(len(points) - 2, -1, -1):
        gain = gains[place]
        means[place] += gain * (means[place + 1] - means[place])
        variances[place] += gain**2 * (variances[place + 1] - variances[place] - drift)
    return Smoothed(means, variances, gains)


def _filter(rewards: Sequence[float], noise: float, drift: float) -> tuple[float, list[float], list[float], float]:
    """The logarithm of the likelihood, then the estimate of each step from the steps so far, and its variance."""
    mean, variance, likelihood = rewards[0], noise, 0.0
    means, variances = [mean], [variance]
    for reward in rewards[1:]:
        ahead = variance + drift
        total = ahead + noise
        likelihood -= 0.5 * (math.log(total) + (reward - mean) ** 2 / total)
        mean += ahead / total * (reward - mean)
        variance = ahead * noise / total
        means.append(mean)
        variances.append(variance)
    return likelihood, means, variances, drift


class Course:
    """The rewards of a stage so far, and which checkpoint is the best by them.

    `cycle` is the number of steps after which the text changes, None where it stays.
    """

    def __init__(self, cycle: int | None) -> None:
        self.cycle = cycle
        self.points: tuple[Point, ...] = ()
        self.peaks: tuple[int, ...] = ()
        """Steps of the checkpoints with the highest rewards so far."""
        self.idle = 0
        """Steps without a gradient, since the last one with, or since the last new text."""
        self.rate = 1.0
        """Factor of the learning rate."""
        self._smoothed: tuple[int, Smoothed] | None = None

    def add(self, point: Point) -> None:
        self.points = (*self.points, point)

    def restart(self) -> None:
        """A new stage begins: its rewards are of other problems."""
        self.points, self.peaks, self.idle = (), (), 0

    @property
    def best(self) -> int | None:
        """Step of the best checkpoint; which of them that is, later steps say too."""
        return max(self.peaks, key=self._reward, default=None)

    def improved(self, step: int) -> bool:
        """Whether a checkpoint of this step, the present one, is the best so far and worth saving."""
        if len(self.points) < FIRST:
            return False
        if (best := self.best) is None:
            return True
        return step - self.peaks[-1] >= APART and -self._lead(best, step) > BETTER

    def keep(self, step: int) -> None:
        """The checkpoint of this step is kept as the best so far, in place of the worst of the others."""
        worst = min(self.peaks, key=self._reward) if len(self.peaks) == PEAKS else None
        self.peaks = (*(each for each in self.peaks if each != worst), step)

    def chosen(self, last: int) -> int:
        """The step of the checkpoint to use: the last one, unless the best is better beyond noise."""
        best = self.best
        return best if best is not None and self._lead(best, last) > SURE and self._lost(best, last) >= LESS else last

    def fall(self, step: int) -> tuple[float, float] | None:
        """The rewards of the best checkpoint and now, if that is a fall."""
        if (best := self.best) is None or self._lead(best, step) <= FALLEN:
            return None
        return (self._reward(best), self._reward(step)) if self._lost(best, step) >= LOSS else None

    def restored(self) -> None:
        """The weights are again those of the best checkpoint: what was measured after it is of weights that are gone."""
        best = self.best
        assert best is not None, "a fall is measured against it"
        self.points = tuple(each for each in self.points if each.step <= best + 1)
        self.peaks = tuple(each for each in self.peaks if each <= best)
        self.rate *= SLOWER

    def collapse(self) -> tuple[Point, Point] | None:
        """Means over the first steps and over the last, if groups have become equal without being solved."""
        if len(self.points) < 2 * WINDOW:
            return None
        first, last = _mean(self.points[:WINDOW]), _mean(self.points[-WINDOW:])
        fell = first.entropy is not None and last.entropy is not None and last.entropy <= ENTROPY * first.entropy
        return (first, last) if fell and last.equal >= EQUAL and last.reward <= SOLVED else None

    def hopeless(self, patience: int | None) -> bool:
        """Whether nothing has been learnt for so long that nothing can be expected to be."""
        return patience is not None and self.idle >= max(patience, CYCLES * (self.cycle or 0))

    def _smooth(self) -> Smoothed:
        if self._smoothed is None or self._smoothed[0] != self.points[-1].step:
            self._smoothed = self.points[-1].step, smooth(self.points)
        return self._smoothed[1]

    def _reward(self, step: int) -> float:
        return self._smooth().means[self._place(step)]

    def _lost(self, first: int, second: int) -> float:
        """The share of one checkpoint's reward that a later one lacks."""
        before, after = self._reward(first), self._reward(second)
        return (before - after) / abs(before) if before else 0.0

    def _lead(self, first: int, second: int) -> float:
        """By how many deviations one checkpoint is better than a later one."""
        place, other = self._place(first), self._place(second)
        if place >= other:
            return 0.0
        lead, deviation = self._smooth().lead(place, other)
        return lead / deviation if deviation else math.copysign(math.inf, lead) if lead else 0.0

    def _place(self, step: int) -> int:
        """Which point measures a checkpoint: the next step plays its weights, and its text unless a cycle ends here."""
        measured = step if self.cycle and step % self.cycle == 0 else step + 1
        return max((place for place, each in enumerate(self.points) if each.step <= measured), default=0)

    def to_data(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("peaks", "idle", "rate")}
        return {**kept, "points": [list(asdict(each).values()) for each in self.points]}

    def restore(self, data: Mapping[str, Any] | None) -> None:
        """Read what `to_data` returned; earlier versions saved nothing."""
        if data is not None:
            self.peaks, self.idle, self.rate = tuple(data["peaks"]), data["idle"], data["rate"]
            self.points = tuple(Point(*each) for each in data["points"])


def _mean(points: Sequence[Point]) -> Point:
    entropies = [each.entropy for each in points if each.entropy is not None]
    rewards, equal = fmean(each.reward for each in points), fmean(each.equal for each in points)
    return Point(points[-1].step, rewards, 0.0, equal, fmean(entropies) if entropies else None)
