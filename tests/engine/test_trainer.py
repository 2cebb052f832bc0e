"""The update itself, against stock TRL."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from slow_helpers import PROBLEMS, make_recipe, make_rollouts, make_trainer, weights_after
from trl import GRPOTrainer

from fastslow.base.world import World
from fastslow.engine.local.trainer import trainer_config
from fastslow.models.load import load_policy
from fastslow.recipe import Recipe
from fastslow.records import Rollout
from fastslow.slow.update import build_update


def ours(recipe: Recipe, rollouts: list[Rollout], tmp_path: Path) -> dict[str, torch.Tensor]:
    return weights_after(make_trainer(recipe, tmp_path, [build_update(rollouts, recipe.slow, step=1)]))


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
    setting = make_recipe(tiny_folder, loss=loss, kl=kl, aggregation="token")
    rollouts = make_rollouts([1, 0, 0, 0.5, 0, 1, 1, 1, 0.2, 0.1, 0, 1, 1, 0, 1, 0])
    mine, theirs = ours(setting, rollouts, tmp_path), stock(setting, rollouts, tmp_path)
    before = dict(load_policy(setting.model).model.named_parameters())
    moved = max((theirs[name] - before[name]).abs().max() for name in theirs)
    assert moved > 1e-3  # the update is not nothing
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name], value, atol=1e-6, rtol=1e-6)
