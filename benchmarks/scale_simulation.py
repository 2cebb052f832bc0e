"""How long the steps of a large run take on a service: calculated, not measured.

    python -m benchmarks.scale_simulation [--rollouts 256 1024 4096] [--slots 1024] [--out benchmarks/results/scale]

A step sends all its rollouts at once. The sampler computes `slots` of them together, each token takes `token_seconds`, and
the others wait. Lengths are log-normal, truncated at `longest`; a share of the rollouts are stragglers that take several
times as long, because of a tool, or because a request was lost and sent again. The trainer then takes the tokens of all
rollouts, and publishing the new weights takes `sync_seconds`. `in turn` is what fastslow does: sample, then train.
`overlapping` samples a step while the trainer makes the one before, so that rollouts are one step old. The numbers are
assumptions (`Cluster`), round ones for an 8B model on some eight cards: give your own measured ones. Prints a table and
writes OUT.json, OUT.png and OUT.svg.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.study.figures import dress, new_figure, save, titled


@dataclass(frozen=True)
class Cluster:
    """What is assumed of the sampler, the trainer and the rollouts."""

    slots: int = 1024
    token_seconds: float = 0.03
    median_tokens: float = 400.0
    spread: float = 0.8
    longest: int = 4096
    prompt_tokens: int = 600
    stragglers: float = 0.01
    straggler_factor: float = 5.0
    trained_tokens_per_second: float = 20_000.0
    sync_seconds: float = 10.0


@dataclass(frozen=True)
class Step:
    """Mean seconds of a step, and the share of them in which the sampler and the trainer were busy."""

    rollouts: int
    stragglers: bool
    sampling: float
    training: float
    in_turn: float
    overlapping: float
    sampler_busy: float
    trainer_busy: float


def sampling_seconds(durations: Sequence[float], slots: int) -> float:
    """Until the last rollout is done, if each takes the next free slot in turn."""
    free = [0.0] * min(slots, len(durations))
    heapq.heapify(free)
    for duration in durations:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def simulate(cluster: Cluster, rollouts: int, *, stragglers: bool, steps: int = 20, seed: int = 0) -> Step:
    draw = np.random.default_rng([seed, rollouts])
    sampling, training, work = [], [], []
    for _ in range(steps):
        tokens = np.minimum(draw.lognormal(np.log(cluster.median_tokens), cluster.spread, rollouts), cluster.longest)
        slow = draw.random(rollouts) < cluster.stragglers
        durations = cluster.token_seconds * tokens * np.where(slow & stragglers, cluster.straggler_factor, 1.0)
        sampling.append(sampling_seconds(durations.tolist(), cluster.slots))
        training.append((tokens.sum() + cluster.prompt_tokens * rollouts) / cluster.trained_tokens_per_second)
        work.append(durations.sum() / cluster.slots)
    sampled, trained = float(np.mean(sampling)), float(np.mean(training))
    in_turn = sampled + trained + cluster.sync_seconds
    overlapping = float(np.mean(np.maximum(sampling, training))) + cluster.sync_seconds
    busy = float(np.mean(work)) / in_turn, trained / in_turn
    return Step(rollouts, stragglers, sampled, trained, in_turn, overlapping, *busy)


def draw_figure(steps: Sequence[Step], cluster: Cluster) -> Any:
    figure = new_figure((9.0, 4.4))
    axes = figure.subplots(1, 2)
    for panel, with_stragglers in zip(axes, (False, True), strict=True):
        chosen = [step for step in steps if step.stragglers == with_stragglers]
        x = [step.rollouts for step in chosen]
        panel.plot(x, [step.in_turn for step in chosen], "o-", label="in turn (fastslow)")
        panel.plot(x, [step.overlapping for step in chosen], "s--", label="overlapping, one step old")
        panel.plot(x, [step.sampling for step in chosen], "^:", label="sampling alone")
        panel.plot(x, [step.training for step in chosen], "v:", label="training alone")
        dress(panel, "rollouts a step, all in flight", "seconds a step")
        panel.set_ylim(0, max(step.in_turn for step in steps) * 1.1)
        share = f"{cluster.stragglers:.0%} stragglers of {cluster.straggler_factor:g} times the time"
        panel.set_title(share if with_stragglers else "no stragglers", fontsize=10)
    axes[0].legend(frameon=False, fontsize=9)
    return titled(
        figure,
        "Small steps wait for their longest rollout, large ones for the trainer (simulated)",
        f"Assumed: {cluster.slots:,} sequences sampled at once at {1 / cluster.token_seconds:.0f} tokens a second each, "
        f"{cluster.trained_tokens_per_second:,.0f} trained tokens a second, {cluster.sync_seconds:g} s to publish weights",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Calculate the seconds of a step on a service.")
    parser.add_argument("--rollouts", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--slots", type=int, default=Cluster.slots)
    parser.add_argument("--token-seconds", type=float, default=Cluster.token_seconds)
    parser.add_argument("--trained-tokens-per-second", type=float, default=Cluster.trained_tokens_per_second)
    parser.add_argument("--sync-seconds", type=float, default=Cluster.sync_seconds)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/scale-simulation"))
    given = parser.parse_args()
    cluster = Cluster(
        slots=given.slots,
        token_seconds=given.token_seconds,
        trained_tokens_per_second=given.trained_tokens_per_second,
        sync_seconds=given.sync_seconds,
    )
    steps = [simulate(cluster, count, stragglers=slow) for slow in (False, True) for count in given.rollouts]
    print("rollouts  stragglers  sampling  training  in turn  overlapping  sampler busy  trainer busy")
    for step in steps:
        print(
            f"{step.rollouts:8,}  {'yes' if step.stragglers else 'no':>10}  {step.sampling:8.0f}  {step.training:8.0f}  "
            f"{step.in_turn:7.0f}  {step.overlapping:11.0f}  {step.sampler_busy:12.0%}  {step.trainer_busy:12.0%}"
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    data = {"assumed": asdict(cluster), "steps": [asdict(step) for step in steps]}
    given.out.with_suffix(".json").write_text(json.dumps(data, indent=1))
    save(draw_figure(steps, cluster), given.out.parent, given.out.name)


if __name__ == "__main__":
    main()
