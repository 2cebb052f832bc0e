"""What `slow.allocation: informative` can gain: the loop's own rules on a simulated policy, without a model.

    python -m benchmarks.allocation [--seeds 12] [--steps 20] [--spread 2 4 7]

A problem's chance of success is the logistic function of its own difficulty (normal, of standard deviation `--spread`: the
larger, the more problems are hard or solved), of the context it is played under, and of the step: the policy learns, and more
on problems that it trains on. The fast loop plays some of the coming problems before each cycle. For every way of choosing:

- share: rollouts in groups with different rewards,
- problems: those groups a step, and how many different problems they are over the run,
- information: the sum of right · wrong / rollouts over the groups of a step.

`known` chooses among the same problems by their true chances: what better predictions could gain. `growth` is how many times
its usual size a group with different rewards may reach (`slow.allocation.GROWTH`).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from functools import partial
from unittest.mock import patch

import numpy as np

from fastslow.fast.memory import RolloutCache
from fastslow.records import Context, Feedback, Rollout
from fastslow.rollouts.chances import Chances
from fastslow.slow import allocation
from fastslow.slow.allocation import Even, Informative, Plan
from fastslow.tasks.base import Example

PROBLEMS, GROUP, CYCLE, SEARCH = 16, 8, 4, 96
"""Problems of a step, rollouts of a group, steps of a cycle, and rollouts of the fast loop in a cycle."""
CONTEXTS = [Context({"system": str(number)}) for number in range(4)]
START, END, TRAINED, BY_CONTEXT = -2.0, 3.0, 1.5, 0.5
"""On the logistic scale: the policy at its start and end, what training adds to a problem, and what contexts differ by."""
CERTAIN = 1e4
"""Rollouts that a known chance counts for."""
WAYS = {"even": ("even", 1), "informative": ("informative", 1), "growth 2": ("informative", 2)}
WAYS |= {"growth 4": ("informative", 4), "known": ("known", 1), "known, growth 2": ("known", 2)}


class Policy:
    """Answers problems with chances that grow as it trains."""

    def __init__(self, problems: int, spread: float, seed: int) -> None:
        numbers = np.random.default_rng(seed)
        self.level = numbers.normal(0, spread, problems)
        self.by_context = numbers.normal(0, BY_CONTEXT, (problems, len(CONTEXTS)))
        self.draw, self.skill, self.step = random.Random(seed), START, 0

    def chance(self, problem: int, context: int) -> float:
        return float(1 / (1 + np.exp(-self.skill - self.level[problem] - self.by_context[problem, context])))

    def play(self, pairs: Sequence[tuple[Example, Context]]) -> list[Rollout]:
        return [
            Rollout(
                example,
                context,
                self.step,
                (),
                Feedback(float(self.draw.random() < self.chance(int(example.id), int(context.texts["system"]))), ""),
            )
            for example, context in pairs
        ]


def run(way: str, spread: float, seed: int, steps: int) -> list[float]:
    """Share, informative problems a step, different ones over the run, and information a step."""
    kind, growth = WAYS[way]
    examples = [Example(str(number), {}) for number in range(PROBLEMS * (steps + 4 * CYCLE))]
    policy, chances = Policy(len(examples), spread, seed), Chances()
    shares, counts, information = [], [], []
    different: set[str] = set()
    for step in range(steps):
        policy.step, policy.skill = step, START + (END - START) * step / steps
        if step % CYCLE == 0:
            coming = examples[step * PROBLEMS : (step + CYCLE) * PROBLEMS]
            pairs = [(policy.draw.choice(coming), policy.draw.choice(CONTEXTS)) for _ in range(SEARCH)]
            chances.observe(policy.play(pairs))
        plan = _plan(kind, examples[step * PROBLEMS : (step + 4 * CYCLE) * PROBLEMS], policy, chances)
        with patch.object(allocation, "GROWTH", growth):
            for pending in plan.rounds():
                rollouts = policy.play([(each.example, each.context) for each in pending])
                for each, rollout in zip(pending, rollouts, strict=True):
                    each.rollout = rollout
        groups = plan.groups
        chances.observe([rollout for group in groups for rollout in group.rollouts])
        chances.train([group.example.id for group in groups], step)
        teaching = [group for group in groups if group.informative]
        shares.append(sum(len(group.rollouts) for group in teaching) / sum(len(group.rollouts) for group in groups))
        counts.append(len(teaching))
        different |= {group.example.id for group in teaching}
        right = [sum(rollout.score for rollout in group.rollouts) for group in teaching]
        information.append(
            sum(each * (1 - each / len(group.rollouts)) for each, group in zip(right, teaching, strict=True))
        )
        policy.level[[int(group.example.id) for group in teaching]] += TRAINED
    return [float(np.mean(shares)), float(np.mean(counts)), len(different), float(np.mean(information))]


def _plan(kind: str, coming: list[Example], policy: Policy, chances: Chances) -> Plan:
    begin = partial(RolloutCache().begin, step=policy.step)
    if kind == "even":
        return Even(coming[:PROBLEMS], CONTEXTS, GROUP, begin)
    candidates = chances.least_trained(coming, 2 * CYCLE * PROBLEMS)
    expected = chances.expect([each.id for each in candidates], [each.id for each in CONTEXTS], policy.step)
    if kind == "known":
        for each in candidates:
            chance = np.mean([policy.chance(int(each.id), number) for number in range(len(CONTEXTS))])
            expected[each.id] = float(CERTAIN * chance), float(CERTAIN * (1 - chance))
    return Informative(candidates, CONTEXTS, GROUP, expected, PROBLEMS // 8, PROBLEMS * GROUP, begin)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--spread", type=float, nargs="+", default=[2.0, 4.0, 7.0])
    options = parser.parse_args(arguments)
    print("| spread | | share | problems a step | different ones | information |\n|---|---|---|---|---|---|")
    for spread in options.spread:
        for way in WAYS:
            found = np.mean([run(way, spread, seed, options.steps) for seed in range(options.seeds)], axis=0)
            print(
                f"| {spread:g} | {way} | {found[0]:.2f} | {found[1]:.1f} | {found[2]:.0f} | {found[3]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
