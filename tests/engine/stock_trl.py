"""Stock TRL as the oracle of an update: its own trainer, with a recipe in its words."""

from __future__ import annotations

from pathlib import Path

import torch
from datasets import Dataset
from slow_helpers import PROBLEMS, weights
from trl import GRPOConfig, GRPOTrainer

from fastslow.engine.local.trainer import BETAS, WEIGHT_DECAY
from fastslow.models.load import load_policy
from fastslow.recipe import Recipe
from fastslow.records import Rollout


def stock_config(recipe: Recipe, folder: Path) -> GRPOConfig:
    """One step of one process, whose weights move by the gradient."""
    slow, rows = recipe.slow, recipe.slow.microbatch
    assert isinstance(rows, int)
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=slow.problems * slow.group // rows,
        num_generations=slow.group,
        max_steps=slow.steps,
        learning_rate=slow.learning_rate,
        lr_scheduler_type="constant",
        optim="sgd",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=1e9,
        loss_type="grpo" if slow.loss.name == "gspo" else slow.loss.name,
        importance_sampling_level="sequence" if slow.loss.name == "gspo" else "token",
        epsilon=slow.loss.options.get("clip", 0.2),
        epsilon_high=slow.loss.options.get("ratio_cap") or slow.loss.clip,
        beta=slow.kl,
        use_bias_correction_kl=True,
        temperature=recipe.sampling.temperature,
        max_completion_length=recipe.sampling.max_tokens,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        seed=recipe.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def stock_weights(recipe: Recipe, rollouts: list[Rollout], folder: Path) -> dict[str, torch.Tensor]:
    """The weights after one update of stock TRL."""
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
        args=stock_config(recipe, folder),
        train_dataset=Dataset.from_dict({"prompt": ["-"] * PROBLEMS}),
        processing_class=policy.tokenizer,
        rollout_func=rollout_func,
    )
    trainer.train()
    return weights(trainer)
