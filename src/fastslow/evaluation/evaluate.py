"""Evaluating a run from its folder, finished or not."""

from __future__ import annotations

from pathlib import Path

from fastslow.assembly import assemble, find_world
from fastslow.evaluation.reward import Score, evaluate_task
from fastslow.records import Context
from fastslow.runs.snapshot import open_snapshot
from fastslow.seeds import derive_seed
from fastslow.tasks.base import Split, Task


def evaluate_run(
    folder: str | Path,
    *,
    step: int | None = None,
    k: int = 8,
    split: Split = "validation",
    whole_pool: bool = False,
    task: Task | None = None,
) -> dict[str, Score]:
    """mean@k and best@k of a run's policy under its best context, under the seed, and where asked under the whole pool."""
    snapshot = open_snapshot(folder, step)
    recipe = snapshot.run.recipe
    changes = {
        "slow": recipe.slow.model_copy(update={"kl": 0.0}),  # no reference model needed
        "output": recipe.output.model_copy(update={"report_to": []}),
    }
    recipe = recipe.model_copy(update=changes)
    parts = assemble(recipe, Path(folder), find_world(recipe), snapshot.weights, task)
    seed_context = Context(dict(parts.seed_texts))
    contexts = {"seed": seed_context}
    if snapshot.pool.best.context.id != seed_context.id:
        contexts["best context"] = snapshot.pool.best.context
    if whole_pool:
        contexts |= {f"pool {member.context.id}": member.context for member in snapshot.pool.members}
    scores, _, _ = evaluate_task(
        parts.player,
        contexts,
        split,
        recipe.evaluation.problems,
        k=k,
        sampling=recipe.evaluation.sampling(recipe.sampling.max_tokens),
        policy_step=snapshot.step,
        seed=derive_seed(recipe.seed, "evaluation"),
    )
    return scores
