"""How far a run had moved from the base model at each of its checkpoints, under the evolved context and under the seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from fastslow.assembly import assemble, find_world
from fastslow.errors import RunError
from fastslow.evaluation.divergence import divergence
from fastslow.recipe import Recipe
from fastslow.records import Context
from fastslow.runs.folder import RunFolder
from fastslow.runs.snapshot import open_snapshot
from fastslow.runs.tables import DIVERGENCE, write_csv
from fastslow.seeds import derive_seed
from fastslow.tasks.base import Split, Task
from fastslow.tasks.stages import Stages


@dataclass(frozen=True)
class Row:
    """KL(policy ‖ base) of one checkpoint, both reading the same context: nats a token, a 95% interval over problems."""

    step: int
    context: str
    """`seed`, or `best context`: the one that was best on training problems then."""
    id: str
    kl: float
    low: float
    high: float
    reward: float
    problems: int
    tokens: int


def measure_divergence(
    folder: str | Path,
    *,
    split: Split = "validation",
    problems: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
    task: Task | None = None,
) -> list[Row]:
    """Measure every checkpoint of a run, and leave the table in its folder as divergence.csv.

    One rollout a problem, drawn as in training: what `evaluation.divergence=true` would have measured at that step.
    """
    run = RunFolder.open(folder)
    recipe, steps = run.recipe, run.checkpoints.steps()
    if recipe.method == "gepa":
        raise RunError(f"'{folder}' left the weights alone (method=gepa): its divergence from the base model is 0")
    if not steps:
        raise RunError(f"'{folder}' has no checkpoint yet; the first comes at step {recipe.output.checkpoint_every}")
    parts = assemble(_with_base(recipe), run.path, find_world(recipe), task=task)
    rows: list[Row] = []
    for place, step in enumerate(steps, 1):
        snapshot = open_snapshot(folder, step)
        parts.trainer._load_from_checkpoint(str(snapshot.path))
        staged = parts.task.behind(step).task if isinstance(parts.task, Stages) else parts.task
        chosen = staged.examples(split)[: problems or recipe.evaluation.problems]
        contexts = {"seed": Context(dict(parts.seed_texts)), "best context": snapshot.pool.best.context}
        if contexts["seed"].id == contexts["best context"].id:
            del contexts["best context"]
        for label, context in contexts.items():
            progress(f"checkpoint {place} of {len(steps)}, step {step}: {label}")
            rollouts, _ = parts.player.play(
                [(example, context) for example in chosen],
                recipe.sampling.training(),
                policy_step=step,
                seed=derive_seed(recipe.seed, "divergence"),
            )
            found = divergence(parts.trainer, rollouts)
            reward = sum(rollout.score for rollout in rollouts) / len(rollouts)
            rows.append(
                Row(step, label, context.id, found.kl, found.low, found.high, reward, len(chosen), found.tokens)
            )
    if parts.world.main:
        write_csv(run.path / DIVERGENCE, [asdict(row) for row in rows])
    return rows


def _with_base(recipe: Recipe) -> Recipe:
    """The recipe, such that a base model is at hand: loaded beside the policy, unless that has an adapter."""
    return recipe.model_copy(
        update={
            "slow": recipe.slow.model_copy(update={"kl": recipe.slow.kl or 1e-3}),
            "evaluation": recipe.evaluation.model_copy(update={"divergence": True}),
        }
    )
