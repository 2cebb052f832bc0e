"""Evaluate a run from its folder, finished or not: reward, and KL from the base model at every checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from fastslow.base.errors import RunError
from fastslow.base.world import derive_seed
from fastslow.evaluation.measure import Score, divergence, evaluate_task, measured_contexts
from fastslow.launch.assembly import AtStep, assemble, changed, find_world, open_policy, open_snapshot, without_servers
from fastslow.records import Context
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import DIVERGENCE, write_csv
from fastslow.runs.trust import require_trust
from fastslow.tasks.base import Split, Task
from fastslow.tasks.stages import Stages


@dataclass(frozen=True)
class Row:
    """KL(policy ‖ base) of one checkpoint under one context: nats per token, with a 95% interval over problems."""

    step: int
    context: str
    """`seed`, or `best context`: the best one on training problems at that step."""
    id: str
    kl: float
    low: float
    high: float
    reward: float
    problems: int
    tokens: int


def evaluate_run(
    folder: str | Path,
    *,
    step: AtStep = None,
    k: int = 8,
    split: Split = "validation",
    whole_pool: bool = False,
    task: Task | None = None,
    trust: bool = False,
) -> dict[str, Score]:
    """mean@k and best@k of a run's policy under its best context, its seed text, and with `whole_pool` every context.

    `trust` allows a folder that was made elsewhere to execute the code it names.
    """
    snapshot, parts = open_policy(folder, step, trust=trust, task=task)
    recipe = snapshot.run.recipe
    contexts = measured_contexts(Context(dict(parts.seed_texts)), snapshot.pool.best.context)
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
    parts.player.faulty.end_step()
    return scores


def measure_divergence(
    folder: str | Path,
    *,
    split: Split = "validation",
    problems: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
    task: Task | None = None,
    trust: bool = False,
) -> list[Row]:
    """Measure the KL of every checkpoint of a run, and write the table to divergence.csv in its folder.

    It samples one rollout per problem as in training, as `evaluation.divergence=true` does during a run.
    """
    run = RunFolder.open(folder)
    recipe, steps = require_trust(run.path, run.recipe, trust), run.checkpoints.steps()
    if recipe.method == "gepa":
        raise RunError(f"'{folder}' kept its weights frozen (method=gepa): its divergence from the base model is 0")
    if not steps:
        raise RunError(
            f"'{folder}' has no checkpoint yet; the first is saved at step {recipe.output.checkpoint_every}, or when "
            "the run is stopped"
        )
    # This loads the base model too, unless the policy has an adapter.
    loaded = changed(without_servers(recipe), evaluation={"divergence": True}, output={"report_to": []})
    parts = assemble(loaded, run.path, find_world(recipe), task=task)
    rows: list[Row] = []
    for place, step in enumerate(steps, 1):
        snapshot = open_snapshot(folder, step)
        parts.engine.load(snapshot.path)
        current = parts.task.behind(step).task if isinstance(parts.task, Stages) else parts.task
        chosen = current.examples(split)[: problems or recipe.evaluation.problems]
        for label, context in measured_contexts(Context(dict(parts.seed_texts)), snapshot.pool.best.context).items():
            progress(f"checkpoint {place} of {len(steps)}, step {step}: {label}")
            rollouts, _ = parts.player.play(
                [(example, context) for example in chosen],
                recipe.sampling.training(),
                policy_step=step,
                seed=derive_seed(recipe.seed, "divergence"),
            )
            found = divergence(parts.engine, rollouts)
            reward = sum(rollout.score for rollout in rollouts) / len(rollouts)
            rows.append(
                Row(step, label, context.id, found.kl, found.low, found.high, reward, len(chosen), found.tokens)
            )
    parts.player.faulty.end_step()
    if parts.engine.world.main:
        write_csv(run.path / DIVERGENCE, [asdict(row) for row in rows])
    return rows
