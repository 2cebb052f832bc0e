"""What the tests of the slow loop share: recipes for the tiny model, rollouts made by hand, weights after an update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from helpers import with_parts

from fastslow.base.world import World
from fastslow.engine.base import Update
from fastslow.engine.local.trainer import Trainer
from fastslow.models.load import load_policy
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Completion, Context, Rollout, Turn
from fastslow.slow.losses import objective
from fastslow.slow.update import build_distillation, build_update
from fastslow.tasks import Example, Feedback

PROBLEMS, GROUP = 4, 4


def make_recipe(
    folder: Path,
    *,
    lora: dict[str, Any] | None = None,
    temperature: float = 1.0,
    method: str = "rl",
    **slow: Any,
) -> Recipe:
    """One step of 4 problems by 4 rollouts, with a learning rate of 1 so that weights move by the gradient."""
    settings = {
        "steps": 1, "problems": PROBLEMS, "group": GROUP, "microbatch": 4, "learning_rate": 1.0, "warmup_steps": 0,
        "kl": 0.0, **slow,
    }  # fmt: skip
    return build_recipe(
        {
            "method": method,
            "model": {"name": str(folder), "lora": lora},
            "task": "star-graph",
            "slow": with_parts(settings),
            "fast": {"population": 2},
            "sampling": {"max_tokens": 12, "temperature": temperature},
        }
    )


def make_rollouts(
    rewards: Sequence[float],
    *,
    group: int = GROUP,
    contexts: int = 1,
    turns: Sequence[int] | int = 1,
    policy_step: int = 0,
    seed: int = 3,
) -> list[Rollout]:
    """Rollouts of uneven lengths with the given rewards; a problem's contexts come one after the other."""
    draw = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (), generator=draw))
        return tuple(torch.randint(3, 20, (length,), generator=draw).tolist())

    counts = [turns] * len(rewards) if isinstance(turns, int) else turns
    result = []
    prompt: tuple[int, ...] = ()
    for index, (reward, count) in enumerate(zip(rewards, counts, strict=True)):
        if index % group == 0:
            prompt = ids(3, 9)
        made = []
        for _ in range(count):
            completion = (*ids(1, 8), 2)
            logprobs = (-2.5 - torch.rand(len(completion), generator=draw)).tolist()
            made.append(Turn("system", "", prompt, Completion(completion, tuple(logprobs)), ""))
        context = Context({"system": f"context {index % group * contexts // group}"})
        example = Example(str(index // group), {})
        result.append(Rollout(example, context, policy_step, tuple(made), Feedback(reward)))
    return result


def make_trainer(recipe: Recipe, updates: Sequence[Update] = (), world: World | None = None) -> Trainer:
    """A trainer that does not clip gradients."""
    trainer = Trainer(load_policy(recipe.model), recipe, world or World(), objective(recipe.slow))
    trainer.max_grad_norm = 1e9
    trainer.pending = list(updates)  # type: ignore[attr-defined]
    return trainer


def make_updates(trainer: Trainer, updates: Iterable[Update]) -> list[dict[str, float | None]]:
    """Prepare the trainer and make the updates; what each of them measured."""
    trainer.prepare()
    return [trainer.step(update) for update in updates]


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def weights_after(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The weights after a trainer's own updates; what the last of them measured is `trainer.last_logs`."""
    trainer.make_optimizer = torch.optim.SGD  # type: ignore[method-assign]  # weights then differ by exactly the gradient
    trainer.last_logs = make_updates(trainer, trainer.pending)[-1]  # type: ignore[attr-defined]
    return weights(trainer)


REWARDS = [1, 0, 0, 0.5, 0.3, 0.3, 0.3, 0.3, 0, 1, 1, 1, 0.2, 0.1, 0, 1]
"""Of four problems; the second has no variance and is dropped."""

SETTINGS: dict[str, dict[str, Any]] = {
    "cispo": {"kl": 0.1},
    "grpo": {"loss": "grpo", "kl": 0.1},
    "dr_grpo": {"loss": "dr_grpo"},
    "distill": {"method": "distill", "learning_rate": 10.0},
    "feedback": {"feedback": "distil", "kl": 0.1},
}
"""What the number of microbatches and processes must not change."""


def make_update(recipe: Recipe, rollouts: Sequence[Rollout], step: int = 1) -> Update:
    """What the method makes of the rollouts. Teachers read other prompts, longer and shorter ones; one rollout has none."""
    if not recipe.teaches:
        return build_update(rollouts, recipe.slow, step)[0]
    prompts = [
        [(5 + index % 7, 6, *turn.prompt_ids[index % 3 :]) for turn in rollout.turns]
        for index, rollout in enumerate(rollouts)
    ]
    if recipe.method != "distill":
        some = [None if index in (4, 14) else prompt for index, prompt in enumerate(prompts)]
        return build_update(rollouts, recipe.slow, step, prompts=some)[0]
    return build_distillation(rollouts, [None, *prompts[1:]], recipe.slow, step)[0]


def one_update(model: Path, world: World, **slow: Any) -> dict[str, Any]:
    """One update from rollouts of one, two and three asks: the microbatches that reach the loss, the weights after it."""
    recipe = make_recipe(model, **slow)
    turns = [1 + index % 3 for index in range(len(REWARDS))]
    update = make_update(recipe, make_rollouts(REWARDS, turns=turns, contexts=2))
    trainer = make_trainer(recipe, [update], world)
    if trainer.teacher:
        trainer.teacher.freeze()
    microbatches: list[dict[str, torch.Tensor]] = []
    compute = trainer.loss

    def seen(inputs: dict[str, torch.Tensor], *more: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        microbatches.append(inputs)
        return compute(inputs, *more)

    trainer.loss = seen  # type: ignore[method-assign]
    after = weights_after(trainer)
    return {"microbatches": microbatches, "weights": after, "logs": trainer.last_logs}
