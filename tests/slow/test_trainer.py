"""The update itself, against stock TRL."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from trl import GRPOTrainer

from fastslow.models.load import load_policy
from fastslow.recipe import Recipe, build_recipe
from fastslow.rollouts.records import Completion, Context, Rollout, Turn
from fastslow.rollouts.world import World
from fastslow.slow.trainer import FastSlowTrainer, trainer_config
from fastslow.slow.update import build_update
from fastslow.tasks import Example, Feedback

PROBLEMS, GROUP = 4, 4


def recipe(folder: Path, **slow: object) -> Recipe:
    settings = {
        "steps": 1, "problems": PROBLEMS, "group": GROUP, "microbatch": 4, "aggregation": "token", "learning_rate": 1.0,
        "warmup_steps": 0, "max_grad_norm": 1e9, **slow,
    }  # fmt: skip
    return build_recipe(
        {"method": "rl", "model": str(folder), "task": "star-graph", "slow": settings, "sampling": {"max_tokens": 12}}
    )


def fixed_rollouts(rewards: list[float], contexts: int = 1, seed: int = 3) -> list[Rollout]:
    """Rollouts of uneven lengths with the given rewards; what is in them does not matter to the arithmetic."""
    draw = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (), generator=draw))
        return tuple(torch.randint(3, 20, (length,), generator=draw).tolist())

    result = []
    prompt: tuple[int, ...] = ()
    for index, reward in enumerate(rewards):
        if index % GROUP == 0:
            prompt = ids(3, 9)
        completion = (*ids(1, 8), 2)
        turn = Turn("system", "", prompt, Completion(completion, (0.0,) * len(completion)), "")
        context = Context({"system": f"context {index % contexts}"})
        result.append(Rollout(Example(str(index // GROUP), {}), context, 0, (turn,), Feedback(reward)))
    return result


def weights_after(trainer: GRPOTrainer) -> dict[str, torch.Tensor]:
    trainer.args.optim = "sgd"  # so that weights differ by exactly the gradient; Adam's first step is only its sign
    trainer.train()
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def ours(recipe: Recipe, rollouts: list[Rollout], tmp_path: Path) -> dict[str, torch.Tensor]:
    trainer = FastSlowTrainer(load_policy(recipe.model), recipe, tmp_path, World())
    trainer.updates = iter([build_update(rollouts, recipe.slow, step=1)])
    return weights_after(trainer)


def stock(recipe: Recipe, rollouts: list[Rollout], tmp_path: Path) -> dict[str, torch.Tensor]:
    policy = load_policy(recipe.model)

    def rollout_func(prompts: list, trainer: GRPOTrainer) -> dict:
        return {
            "prompt_ids": [list(r.turns[0].prompt_ids) for r in rollouts],
            "completion_ids": [list(r.turns[0].completion.ids) for r in rollouts],
            "logprobs": [list(r.turns[0].completion.logprobs) for r in rollouts],
        }

    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=lambda **_: [r.score for r in rollouts],
        args=trainer_config(recipe, policy, tmp_path, World()),
        train_dataset=Dataset.from_dict({"prompt": ["-"] * PROBLEMS}),
        processing_class=policy.tokenizer,
        rollout_func=rollout_func,
    )
    return weights_after(trainer)


@pytest.mark.parametrize("loss", ["cispo", "grpo", "dr_grpo", "dapo", "gspo"])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_one_update_equals_stock_trl(loss: str, kl: float, tiny_folder: Path, tmp_path: Path) -> None:
    setting = recipe(tiny_folder, loss=loss, kl=kl)
    rollouts = fixed_rollouts([1, 0, 0, 0.5, 0, 1, 1, 1, 0.2, 0.1, 0, 1, 1, 0, 1, 0])
    mine, theirs = ours(setting, rollouts, tmp_path), stock(setting, rollouts, tmp_path)
    before = dict(load_policy(setting.model).model.named_parameters())
    moved = max((theirs[name] - before[name]).abs().max() for name in theirs)
    assert moved > 1e-3  # the update is not nothing
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name], value, atol=1e-6, rtol=1e-6)
