"""How often the intervals of `fastslow compare` hold the truth, on made-up runs.

    python benchmarks/compare_coverage.py [--studies 400]

A run rises from 0.1 to its own limit, 0.6 with a deviation of 0.03 between seeds, at its own pace, with a deviation of 20%
between seeds, as 1 - exp(-C) or as a Hill curve; each evaluation is of 100 problems. The true ratio of the costs is 1, where
both arms are alike, or 3. `wrong` is how often the rewards at the end of arms that are alike differ "beyond noise".
"""

from __future__ import annotations

import argparse
import math
from statistics import fmean

import numpy as np

from fastslow.recipe.model import Method
from fastslow.study.arms import Arm
from fastslow.study.curves import Curve
from fastslow.study.measures import Comparison

START, LIMIT, PACE, LAST, PROBLEMS = 0.1, 0.6, 400.0, 1600.0, 100
SHAPES = {"exponential": lambda cost: 1 - np.exp(-cost), "hill": lambda cost: cost**2 / (1 + cost**2)}


def made_up(draw: np.random.Generator, shape: str, evaluations: int, faster: float) -> Curve:
    costs = np.linspace(0, LAST, evaluations + 1)
    pace = faster * math.exp(draw.normal(0, 0.2)) / PACE
    rewards = START + (LIMIT + draw.normal(0, 0.03) - START) * SHAPES[shape](costs * pace)
    measured = draw.binomial(PROBLEMS, rewards) / PROBLEMS
    half = 1.96 * np.sqrt(np.maximum(measured * (1 - measured), 1 / PROBLEMS) / PROBLEMS)
    spent, nothing = tuple(costs), (math.nan,) * len(costs)
    bounds = tuple(measured - half), tuple(measured + half)
    return Curve(spent, spent, spent, spent, tuple(measured), *bounds, nothing, nothing)


def study(draw: np.random.Generator, shape: str, evaluations: int, seeds: int, ratio: float) -> Comparison:
    def arm(label: str, method: Method, faster: float) -> Arm:
        return Arm(label, method, {seed: made_up(draw, shape, evaluations, faster) for seed in range(seeds)})

    return Comparison.of([arm("FST", "fst", ratio), arm("RL only", "rl", 1.0)])


def measure(shape: str, evaluations: int, seeds: int, ratio: float, studies: int) -> dict[str, float]:
    """The share of intervals that hold the ratio, the geometric mean of the ratios, the share of studies that have one, and
    how often the rewards at the end are said to differ."""
    draw = np.random.default_rng([seeds, evaluations, int(ratio)])
    found = [study(draw, shape, evaluations, seeds, ratio) for _ in range(studies)]
    saved = [each.saving(each.others[0], "rollouts") for each in found]
    known = [each for each in saved if each.has_interval]
    return {
        "holds": fmean(each.low <= ratio <= each.high for each in known) if known else math.nan,
        "mean": math.exp(fmean(math.log(each.mean) for each in saved if each.mean > 0)),
        "known": len(known) / studies,
        "wrong": fmean(each.is_apart(each.others[0]) for each in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=400)
    studies = parser.parse_args().studies
    print(
        "| curves | evaluations | seeds | true ratio | interval holds it | mean ratio | studies with an interval | wrong |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        for evaluations in (8, 16):
            for seeds in (1, 2, 3, 5, 10):
                for ratio in (1.0, 3.0):
                    got = measure(shape, evaluations, seeds, ratio, studies)
                    wrong = f"{got['wrong']:.0%}" if ratio == 1 else ""
                    shown = "" if math.isnan(got["holds"]) else f"{got['holds']:.2f}"
                    cells = (
                        shape,
                        evaluations,
                        seeds,
                        f"{ratio:.0f}",
                        shown,
                        f"{got['mean']:.2f}",
                        f"{got['known']:.0%}",
                    )
                    print(f"| {' | '.join(map(str, cells))} | {wrong} |", flush=True)


if __name__ == "__main__":
    main()
