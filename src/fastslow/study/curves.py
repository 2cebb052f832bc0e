"""A run as a curve: its reward after so many steps, rollouts, tokens and seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, get_args

from fastslow.base.errors import RunError
from fastslow.recipe.model import Method
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import read_divergence

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

    @property
    def peak(self) -> float:
        return max(self.rewards)

    def cost(self, reward: float, of: Cost) -> float:
        """The cost at the first evaluation that reaches a reward; infinity where none does."""
        reached = zip(self.rewards, getattr(self, of), strict=True)
        return next((cost for found, cost in reached if found >= reward), math.inf)

    def kl_at(self, reward: float) -> float:
        """KL from the base model at the first evaluation that reaches a reward; NaN where none does."""
        return next((kl for found, kl in zip(self.rewards, self.kls, strict=True) if found >= reward), math.nan)

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
