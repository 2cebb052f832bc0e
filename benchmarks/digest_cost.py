"""What `digest` costs as a run grows: CPU seconds and bytes of evidence a cycle, on a simulated policy.

    python -m benchmarks.digest_cost [--rollouts 100000] [--cycle 500] [--setting thirty-wrong]

Every cycle looks at new problems. The seconds are those of the optimizer; the simulated policy's own are left out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.fast_loop import READS_ON, RECIPE, SETTINGS, Simulated, evaluator_of, open_world
from benchmarks.simulated_policy import COMPONENT
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons
from fastslow.recipe import FastRecipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Context, Example, Rollout, Sampling
from fastslow.rollouts.play import Timing

SHOWN = (1_000, 2_000, 4_000, 8_000, 10_000, 30_000, 100_000)


class Timed(Simulated):
    """A simulated policy that keeps its own seconds apart."""

    seconds = 0.0

    def play(
        self, pairs: Sequence[tuple[Example, Context]], sampling: Sampling, *, policy_step: int, seed: int
    ) -> tuple[list[Rollout], Timing]:
        started = time.process_time()
        played = super().play(pairs, sampling, policy_step=policy_step, seed=seed)
        self.seconds += time.process_time() - started
        return played


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--cycle", type=int, default=500, help="rollouts of a cycle")
    parser.add_argument("--setting", choices=SETTINGS, default="thirty-wrong")
    options = parser.parse_args()
    world, policy = open_world(SETTINGS[options.setting].dials, 1000)
    player = Timed(policy)
    settings: dict[str, Any] = {**RECIPE, **READS_ON["digest"], "optimizer": {"name": "digest"}}
    fast, pool = FastRecipe(**settings), Pool.from_texts({COMPONENT: world.seed_text})
    print("rollouts  CPU seconds in all  of this cycle  kilobytes of evidence", flush=True)
    total, cycle = 0.0, 0
    while policy.rollouts < options.rollouts:
        anchors = [world.problem("train", cycle * fast.anchors + index) for index in range(fast.anchors)]
        evaluator = evaluator_of(fast, player, anchors, cycle, 1000, options.cycle)
        started, played = time.process_time(), player.seconds
        pool = OPTIMIZER.registry.find("digest")(fast).evolve(evaluator, Lessons(), pool).pool
        seconds = time.process_time() - started - (player.seconds - played)
        total, before, cycle = total + seconds, policy.rollouts - evaluator.spent, cycle + 1
        if any(before < mark <= policy.rollouts for mark in SHOWN):
            stored = len(json.dumps([dict(member.notes) for member in pool.members]))
            print(f"{policy.rollouts:8,}  {total:18.1f}  {seconds:13.2f}  {stored / 1000:21.0f}", flush=True)


if __name__ == "__main__":
    main()
