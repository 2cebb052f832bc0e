"""Measuring a run on held-out problems as it goes; what that takes is not counted as training."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fastslow.evaluation.divergence import divergence
from fastslow.evaluation.reward import evaluate_task
from fastslow.records import Context
from fastslow.seeds import derive_seed

if TYPE_CHECKING:
    from fastslow.loop import Loop


def evaluate_now(loop: Loop) -> None:
    """Held-out problems under the seed and under the context that is best on training problems."""
    recipe, started = loop.recipe.evaluation, time.perf_counter()
    if not recipe.every:
        return
    contexts = {"seed": loop.seed_context}
    if loop.pool.best.context.id != loop.seed_context.id:
        contexts["best context"] = loop.pool.best.context
    scores, rollouts, seconds = evaluate_task(
        loop.parts.player,
        contexts,
        "validation",
        recipe.problems,
        k=recipe.k,
        sampling=recipe.sampling(loop.recipe.sampling.max_tokens),
        policy_step=loop.step,
        seed=derive_seed(loop.recipe.seed, "evaluation"),
    )
    loop.ledger.book_rollouts("evaluation", rollouts, seconds)
    loop.seconds["evaluation"] = seconds
    results = {label: score.to_dict() for label, score in scores.items()}
    if recipe.divergence:
        for label, context in contexts.items():
            results[label]["kl"] = _divergence(loop, context)
    if loop.run:
        row = {
            "step": loop.step,
            **loop.stage_row(),
            "results": results,
            "seconds": started - loop.began,
            "tokens": loop.ledger.training_tokens,
            **loop.spent_row(),
        }
        loop.run.append("evals", row)
    loop.trainer.report({f"evaluation/{label}": result["mean"] for label, result in results.items()})
    loop.view.evaluation(loop.step, results)
    loop.began += time.perf_counter() - started  # measuring is not training


def _divergence(loop: Loop, context: Context) -> float:
    """How far the policy has moved from the base model, both under one context."""
    if not loop.learns:
        return 0.0
    task = loop.stages.behind(loop.step).task if loop.stages else loop.parts.task
    problems = task.examples("validation")[: loop.recipe.evaluation.problems]
    rollouts, timing = loop.parts.player.play(
        [(example, context) for example in problems],
        loop.recipe.sampling.training(),
        policy_step=loop.step,
        seed=derive_seed(loop.recipe.seed, "divergence"),
    )
    loop.ledger.book_rollouts("evaluation", rollouts, timing.total)
    return divergence(loop.trainer, rollouts).kl
