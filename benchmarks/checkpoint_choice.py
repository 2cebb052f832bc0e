"""How good is the checkpoint that a run chooses by its training rewards, and how soon is a fall noticed? A simulation.

    python -m benchmarks.checkpoint_choice [--seeds 100] [--steps 60 200]

A run has a true reward at every step and measures it with 8 problems of 8 rollouts that pay 0 or 1; problems are
equally hard, or of Beta-distributed difficulty. `peaked` rises and then loses 25 to 70% of its reward, `walk` is a
random walk, `rising` and `flat` do not fall. Shown are the true reward of the chosen checkpoint as a share of the
highest that the run had, the same for the last checkpoint and for the step with the highest smoothed reward (as if
every step had a checkpoint), how often an earlier checkpoint than the last is chosen, how many are saved beside the
schedule, and how often a fall is noticed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fastslow.slow.steady import Course, point, smooth

KINDS = ("peaked", "walk", "rising", "flat")
PROBLEMS, ROLLOUTS = 8, 8


@dataclass(frozen=True)
class Outcome:
    chosen: float
    """True reward of the chosen checkpoint, as a share of the highest."""
    last: float
    smoothed: float
    earlier: bool
    saved: int
    alarm: int | None
    """The step at which a fall was first noticed."""


def curve(kind: str, steps: int, random: np.random.Generator) -> NDArray[np.float64]:
    """The true reward after each step, and before the first."""
    at = np.arange(steps + 1)
    low, high = random.uniform(0, 0.3), random.uniform(0.4, 0.95)
    if kind == "flat":
        return np.full(steps + 1, high)
    if kind == "rising":
        return low + (high - low) * (1 - np.exp(-at * random.uniform(1.5, 6) / steps))
    if kind == "walk":
        walk = random.uniform(0.2, 0.7) + np.cumsum(random.normal(0, random.uniform(0.005, 0.02), steps + 1))
        return np.clip(0.95 - np.abs(0.9 - np.abs(walk - 0.05)), 0.02, 0.98)
    top = random.integers(steps // 6, steps * 4 // 5)
    begins, lasts = top + random.integers(0, steps // 6), random.integers(3, steps // 3)
    up = low + (high - low) / (1 + np.exp(-(at - top / 2) / (top / 12)))
    down = np.clip((at - begins) / lasts, 0, 1)
    return up * (1 - down) + high * random.uniform(0.3, 0.75) * down


def measured(reward: float, varied: bool, random: np.random.Generator) -> list[float]:
    """The mean reward of every problem of a step."""
    chances = random.beta(reward + 1e-3, 1 - reward + 1e-3, PROBLEMS) if varied else np.full(PROBLEMS, reward)
    return list(random.binomial(ROLLOUTS, chances) / ROLLOUTS)


def simulate(true: NDArray[np.float64], varied: bool, random: np.random.Generator) -> Outcome:
    """Follow a run whose falls are not answered."""
    course, saved, alarm, steps = Course(None), 0, None, len(true) - 1
    for step in range(1, steps + 1):
        course.add(point(step, measured(true[step - 1], varied, random)))
        if alarm is None and course.fall(step):
            alarm = step
        if step < steps and course.improved(step):
            course.keep(step)
            saved += 1
    chosen, top = course.chosen(steps), true.max()
    smoothed = int(np.argmax(smooth(course.points).means))
    shares = (float(true[place] / top) for place in (chosen, steps, smoothed))
    return Outcome(*shares, chosen != steps, saved, alarm)


def simulated(kind: str, steps: int, varied: bool, seeds: int) -> list[Outcome]:
    draws = (np.random.default_rng((seed, steps, KINDS.index(kind))) for seed in range(seeds))
    return [simulate(curve(kind, steps, draw), varied, draw) for draw in draws]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--steps", type=int, nargs="+", default=[60, 200])
    options = parser.parse_args()
    print("| curve | problems | steps | chosen | last | highest smoothed | earlier chosen | saved | fall noticed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        for varied in (False, True):
            for steps in options.steps:
                found = simulated(kind, steps, varied, options.seeds)
                shares = (fmean(getattr(each, name) for each in found) for name in ("chosen", "last", "smoothed"))
                shown = " | ".join(f"{share:.3f}" for share in shares)
                earlier, saved = fmean(each.earlier for each in found), fmean(each.saved for each in found)
                alarms = fmean(each.alarm is not None for each in found)
                print(
                    f"| {kind} | {'varied' if varied else 'alike'} | {steps} | {shown} | {earlier:.0%} | {saved:.1f} | "
                    f"{alarms:.0%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
