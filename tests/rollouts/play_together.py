"""Run by test_world.py under a launcher: two processes play together and report what each of them saw."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rollout_helpers import SAMPLING, PlanAndDo, ScriptedEngine, contexts, problems

from fastslow.base.world import Stopped, World, derive_seed
from fastslow.records import Completion, Ready, Rollout, Sampling
from fastslow.rollouts.play import Player

PLANS = {
    "uneven": [3, 0, 1, 5, 2, 0, 1],
    "one": [2],
    "none": [],
    "one side only": [4, 0, 3, 0, 2, 0],
    "nothing asked": [0, 0, 0],
}


@dataclass
class CollectiveEngine(ScriptedEngine):
    """Meets the other processes in every call, as sampling from a sharded model does: a call too few would hang here."""

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, *, ready: Ready | None = None, **_: Any
    ) -> list[Completion]:
        sizes, seeds = zip(*self.world.gather((len(prompts), seed)), strict=True)
        assert len(set(sizes)) == 1, f"processes sample {sizes} prompts together"
        assert len(set(seeds)) == len(seeds), "processes must not draw the same tokens"
        return await super().sample(prompts, sampling, seed)


def summary(rollout: Rollout) -> list[object]:
    return [
        rollout.example.id,
        rollout.context.id,
        rollout.score,
        rollout.feedback.text,
        [[turn.component, turn.question, turn.answer, list(turn.prompt_ids)] for turn in rollout.turns],
    ]


def stopped(player: Player) -> list[object]:
    """A signal reaches the second process in the middle of a batch: what is raised there, and what by both after it."""
    world, pairs = player.world, [(example, contexts(1)[0]) for example in problems([1, 1])]
    with world.stops.listening(together=True):
        try:
            with world.stops.whole():
                if world.rank == 1:
                    os.kill(os.getpid(), signal.SIGTERM)
            player.play(pairs, SAMPLING, policy_step=0, seed=9)
        except Stopped as error:
            return [str(error), world.rank]
    return []


def main(out: Path) -> None:
    atexit.register(lambda: (out / f"open-{world.rank}").write_text(str(torch.distributed.is_initialized())))
    world = World.launched(cpu=True)  # what it leaves to the end comes before the line above
    report: dict[str, object] = {"rank": world.rank, "size": world.size, "main": world.main}
    report["gathered"] = world.gather(f"from {world.rank}")
    report["largest"] = [world.largest(3 - world.rank), world.largest(world.rank)]
    made: list[int] = []
    report["from_main"] = world.from_main(lambda: (made.append(world.rank), f"made by {world.rank}")[1])
    report["made"] = made
    report["plays"] = plays = {}
    for name, turns in PLANS.items():
        sampler = CollectiveEngine(world=world)
        player = Player(PlanAndDo(), sampler, sampler.chat)
        texts = contexts(3)
        pairs = [(example, texts[index % 3]) for index, example in enumerate(problems(turns))]
        rollouts, _ = player.play(pairs, SAMPLING, policy_step=0, seed=9)
        plays[name] = {
            "rollouts": [summary(rollout) for rollout in rollouts],
            "calls": [len(prompts) for prompts, _, _ in sampler.calls],
            "seeds": [seed for _, _, seed in sampler.calls]
            == [derive_seed(9, t, world.rank) for t in range(len(sampler.calls))],
        }
    report["stopped"] = stopped(player)
    (out / f"rank-{world.rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
