"""What the slow loop relies on in trl 1.16. A new minor version is taken by making these pass, then the gradient tests."""

from __future__ import annotations

import dataclasses
import inspect
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from slow_helpers import GROUP, PROBLEMS, REWARDS, make_recipe, make_rollouts, make_trainer, make_updates
from transformers import Trainer
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import pad, use_adapter

from fastslow.base.world import World
from fastslow.engine.local.trainer import Trainer, trainer_config
from fastslow.models.load import load_policy
from fastslow.slow.update import build_update


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_version() -> None:
    assert version("trl").startswith("1.16.")


def test_signatures() -> None:
    assert parameters(GRPOTrainer._compute_loss) == ["self", "model", "inputs"]
    logps = parameters(GRPOTrainer._get_per_token_logps_and_entropies)
    assert logps[:6] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"]
    assert logps[6:8] == ["compute_entropy", "compute_aux_loss"]
    single = parameters(GRPOTrainer._generate_single_turn)
    assert single[:5] == ["self", "prompt_ids", "images", "multimodal_fields", "num_generations"]
    assert "num_generations" in parameters(VLLMGeneration.generate)
    assert {"temperature", "top_p", "max_completion_length", "logprobs"} <= set(parameters(VLLMGeneration.__init__))
    assert parameters(use_adapter) == ["model", "adapter_name"]
    assert parameters(pad)[:3] == ["tensors", "padding_value", "padding_side"]
    assert parameters(GRPOTrainer._save_checkpoint) == ["self", "model", "trial"]
    assert parameters(GRPOTrainer.training_step) == ["self", "model", "inputs", "num_items_in_batch"]


def test_what_transformers_does_around_its_loop() -> None:
    """`prepare` lets `train` set everything up and takes the place of its loop; `step` makes what the loop would."""
    assert parameters(Trainer._inner_training_loop)[:4] == ["self", "batch_size", "args", "resume_from_checkpoint"]
    state = ["max_steps", "num_update_steps_per_epoch", "num_train_epochs", "resume_from_checkpoint", "trial"]
    assert parameters(Trainer._init_training_state) == ["self", *state]
    preparing = ["self", "max_steps", "train_dataloader", "resume_from_checkpoint"]
    assert parameters(Trainer._prepare_for_training) == preparing
    assert parameters(Trainer._clip_grad_norm) == ["self", "model"]
    assert parameters(Trainer._get_grad_norm) == ["self", "model", "grad_norm"]


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("cispo", ("cispo", "token", 0.2, 4.0)),
        ("grpo", ("grpo", "token", 0.3, 0.3)),
        ("dr_grpo", ("dr_grpo", "token", 0.3, 0.3)),
        ("dapo", ("dapo", "token", 0.3, 0.3)),
        ("gspo", ("grpo", "sequence", 0.3, 0.3)),
    ],
)
def test_the_recipe_in_trls_words(loss: str, expected: tuple, tiny_folder: Path, tmp_path: Path) -> None:
    clip = 0.2 if loss == "cispo" else 0.3
    recipe = make_recipe(
        tiny_folder,
        loss=loss,
        clip=clip,
        ratio_cap=4.0,
        kl=0.01,
        betas=(0.8, 0.95),
        weight_decay=0.1,
        max_grad_norm=2.0,
    )
    config = trainer_config(recipe, load_policy(recipe.model), tmp_path, World(0, 2))
    assert (config.loss_type, config.importance_sampling_level, config.epsilon, config.epsilon_high) == expected
    assert config.gradient_accumulation_steps * config.per_device_train_batch_size * 2 == PROBLEMS * GROUP
    assert (config.adam_beta1, config.adam_beta2, config.weight_decay) == (0.8, 0.95, 0.1)
    assert (config.beta, config.max_grad_norm, config.num_generations) == (0.01, 2.0, GROUP)
    assert config.lr_scheduler_type == "constant_with_warmup"
    assert config.use_bias_correction_kl  # unset, TRL's default would decide the estimator


@pytest.fixture(scope="module")
def trainer(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """After three steps of four microbatches each."""
    recipe = make_recipe(tiny_folder, steps=3, learning_rate=1e-3, ratio_cap=4.0)
    trainer = make_trainer(recipe)
    make_updates(trainer, [build_update(make_rollouts(REWARDS, seed=step), recipe.slow, step)[0] for step in (1, 2, 3)])
    return trainer


def test_an_update_is_one_optimizer_step(trainer: Trainer) -> None:
    assert trainer.state.global_step == 3
    assert trainer.args.steps_per_generation == trainer.args.gradient_accumulation_steps == 4
    assert trainer.num_iterations == 1


def test_attributes(trainer: Trainer) -> None:
    assert trainer._tokenizer.pad_token_id == 0
    assert list(trainer.eos_token_ids) == [2]
    assert trainer.use_vllm is False
    assert trainer.reference is None  # without a KL penalty no second model is loaded
    assert trainer.beta == 0.0
    assert trainer.model_wrapped is not None
    assert callable(trainer._dist.summon_full_params)


def test_the_ratio_cap_is_epsilon_high_itself(trainer: Trainer) -> None:
    """Left unset it would be epsilon, 0.2, and every gradient a fifth of what it should be."""
    assert trainer.loss_type == "cispo"
    assert trainer.epsilon_high == 4.0
    defaults = {field.name: field.default for field in dataclasses.fields(GRPOConfig)}
    assert (defaults["epsilon_high"], defaults["epsilon"]) == (None, 0.2)
    inputs = {
        "prompt_ids": torch.tensor([[3, 4]]),
        "prompt_mask": torch.ones(1, 2, dtype=torch.long),
        "completion_ids": torch.tensor([[5]]),
        "completion_mask": torch.ones(1, 1, dtype=torch.long),
        "advantages": torch.ones(1),
        "num_items_in_batch": torch.tensor(1),
        "filled": torch.ones(()),
        "sampled": torch.zeros(1, 1),
        "fresh": torch.zeros(1, dtype=torch.bool),
    }
    trainer.model.train()
    logits = trainer.model(input_ids=torch.tensor([[3, 4]])).logits[0, -1]
    logp = torch.log_softmax(logits, -1)[5].item()
    for behind, ratio in ((0.5, torch.tensor(0.5).exp().item()), (5.0, 4.0)):  # exp(5) is beyond the cap
        loss = trainer._compute_loss(trainer.model, {**inputs, "behaviour": torch.tensor([[logp - behind]])})
        # One microbatch of four: the normalizer is for the whole step.
        assert loss.item() == pytest.approx(-ratio * logp, rel=1e-4)


@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_warm_up_begins_above_0_and_ends_at_the_whole_rate(warmup: int, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, steps=6, learning_rate=1e-3, warmup_steps=warmup)
    trainer = make_trainer(recipe)
    updates = [build_update(make_rollouts(REWARDS, seed=step), recipe.slow, step)[0] for step in range(1, 7)]
    rates = [logs["learning_rate"] for logs in make_updates(trainer, updates)]
    assert rates == pytest.approx([1e-3 * min(1, step / max(warmup, 1)) for step in range(1, 7)])
