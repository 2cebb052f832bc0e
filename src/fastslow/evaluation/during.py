"""Evaluation of a run on held-out problems while it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.base.world import derive_seed
from fastslow.evaluation.divergence import divergence
from fastslow.evaluation.reward import evaluate_task, measured_contexts
from fastslow.recipe import Recipe
from fastslow.records import Context, Rollout
from fastslow.rollouts.play import Player
from fastslow.tasks.stages import Stages


@dataclass(frozen=True)
class Measured:
    """One evaluation: results by label, with rollouts and seconds."""

    results: dict[str, dict[str, Any]]
    rollouts: Sequence[Rollout]
    seconds: float
    """Time for `rollouts`."""
    divergence_rollouts: Sequence[Rollout]
    divergence_seconds: float


class Evaluation:
    """The evaluations of one run."""

    def __init__(self, recipe: Recipe, player: Player, seed_context: Context) -> None:
        self.recipe, self.player, self.seed_context = recipe, player, seed_context
        self.stages = player.task if isinstance(player.task, Stages) else None

    def measure(self, step: int, best: Context) -> Measured:
        """Evaluate the policy under the seed text and under the context that is best on training problems."""
        recipe = self.recipe.evaluation
        contexts = measured_contexts(self.seed_context, best)
        scores, rollouts, seconds = evaluate_task(
            self.player,
            contexts,
            "validation",
            recipe.problems,
            k=recipe.k,
            sampling=recipe.sampling(self.recipe.sampling.max_tokens),
            policy_step=step,
            seed=derive_seed(self.recipe.seed, "evaluation"),
        )
        results = {label: score.to_dict() for label, score in scores.items()}
        played: list[Rollout] = []
        took = 0.0
        if recipe.divergence:
            for label, context in contexts.items():
                results[label]["kl"], drawn, more = self._divergence(step, context)
                played += drawn
                took += more
        return Measured(results, rollouts, seconds, played, took)

    def _divergence(self, step: int, context: Context) -> tuple[float, list[Rollout], float]:
        """KL of the policy from the base model, both under the same context."""
        if self.recipe.method == "gepa":
            return 0.0, [], 0.0
        task = self.stages.behind(step).task if self.stages else self.player.task
        problems = task.examples("validation")[: self.recipe.evaluation.problems]
        rollouts, timing = self.player.play(
            [(example, context) for example in problems],
            self.recipe.sampling.training(),
            policy_step=step,
            seed=derive_seed(self.recipe.seed, "divergence"),
        )
        return divergence(self.player.engine, rollouts).kl, rollouts, timing.total
