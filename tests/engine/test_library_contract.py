"""What the slow loop relies on in the libraries below it, and what the oracle is in stock TRL."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from functools import cache
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import save_fsdp_model
from slow_helpers import REWARDS, make_recipe, make_rollouts, make_trainer, make_updates
from transformers import AutoModelForCausalLM
from trl import GRPOConfig
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer import add_fused_lm_head

import fastslow
from fastslow.engine.local.sampler import Vllm
from fastslow.engine.local.trainer import BETAS, EPSILON, MAX_GRAD_NORM, WEIGHT_DECAY, Trainer
from fastslow.prefix.level_attention import shared_prefixes
from fastslow.slow.update import build_update


def parameters(function: object) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_signatures() -> None:
    assert {"prompts", "images", "num_generations"} <= parameters(VLLMGeneration.generate)
    assert {"gpu_memory_utilization", "max_model_length", "max_num_seqs"} <= parameters(VLLMGeneration.__init__)
    assert {"temperature", "top_p", "max_completion_length"} <= parameters(VLLMGeneration.__init__)
    assert parameters(VLLMGeneration.sync_weights) == {"self"}
    assert parameters(Vllm.sync) == {"self"}
    assert {"model", "temperature", "outputs"} <= parameters(add_fused_lm_head)
    assert "adapter_only" in parameters(save_fsdp_model)


PRIVATE = {
    "_reset_state": "engine/local/fit.py",
    "_attn_implementation": "prefix/level_attention.py",
    "_supports_attention_backend": "prefix/probe.py",
}
"""Names of libraries with a leading underscore, and the one file that uses each."""
LIBRARIES = "accelerate", "peft", "transformers", "trl", "vllm"


def test_three_private_names_are_used_each_in_one_place() -> None:
    ours = {
        node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else node.attr
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }
    found: dict[str, set[str]] = {}
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and node.attr not in ours and not torch_operator(node):
                names = [node.attr]
            else:
                continue
            for name in names:
                if name.startswith("_") and not name.startswith("__"):
                    found.setdefault(name, set()).add(file)
    rooms = ("engine/", "models/", "prefix/", "slow/")
    assert {name: files for name, files in found.items() if any(file.startswith(rooms) for file in files)} == {
        name: {file} for name, file in PRIVATE.items()
    }


@cache
def trees() -> dict[str, ast.Module]:
    root = Path(fastslow.__file__).parent
    return {str(file.relative_to(root)): ast.parse(file.read_text()) for file in sorted(root.rglob("*.py"))}


def torch_operator(node: ast.Attribute) -> bool:
    return ast.unparse(node.value).startswith("torch.ops.")


def test_a_model_looks_its_attention_up_at_every_call(tiny_folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    assert model._supports_attention_backend is True
    assert model.config._attn_implementation == "sdpa"
    with (
        shared_prefixes(model),
        pytest.raises(TypeError, match="shared"),
    ):  # our attention was asked, without its argument
        model(torch.tensor([[3, 4]]))
    assert model.config._attn_implementation == "sdpa"
    assert model(torch.tensor([[3, 4]])).logits.isfinite().all()


def test_a_second_run_in_a_process_may_have_another_precision() -> None:
    """The private name that this needs: accelerate otherwise refuses another precision, without a public way to reset."""
    for precision in ("no", "bf16"):
        AcceleratorState._reset_state(reset_partial_state=True)
        assert Accelerator(cpu=True, mixed_precision=precision).mixed_precision == precision
    AcceleratorState._reset_state(reset_partial_state=True)


def test_the_constants_are_those_of_stock_trl(tmp_path: Path) -> None:
    config = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    assert (config.adam_beta1, config.adam_beta2) == BETAS
    assert (config.adam_epsilon, config.weight_decay) == (EPSILON, WEIGHT_DECAY)
    assert config.max_grad_norm == MAX_GRAD_NORM
    assert config.optim == "adamw_torch_fused"


def test_the_ratio_cap_is_epsilon_high_itself() -> None:
    """Left unset it would be epsilon, 0.2, and every gradient a fifth of what it should be: the oracle sets it."""
    defaults = {field.name: field.default for field in dataclasses.fields(GRPOConfig)}
    assert (defaults["epsilon_high"], defaults["epsilon"]) == (None, 0.2)


@pytest.fixture(scope="module")
def trainer(tiny_folder: Path) -> Trainer:
    """After three steps of four microbatches each."""
    recipe = make_recipe(tiny_folder, steps=3, learning_rate=1e-3)
    trainer = make_trainer(recipe)
    make_updates(trainer, [build_update(make_rollouts(REWARDS, seed=step), recipe.slow, step)[0] for step in (1, 2, 3)])
    return trainer


def test_an_update_is_one_optimizer_step(trainer: Trainer) -> None:
    assert trainer.version == trainer.scheduler.last_epoch == 3
    assert (trainer.passes, trainer.rows) == (4, 4)
    assert {int(state["step"]) for state in trainer.optimizer.state.values()} == {3}


def test_the_optimizer_is_fused_adamw(trainer: Trainer) -> None:
    inner = trainer.optimizer.optimizer
    assert isinstance(inner, torch.optim.AdamW)
    assert inner.defaults["fused"]


def test_tokens_and_models(trainer: Trainer) -> None:
    assert trainer.pad_id == 0
    assert list(trainer.eos_token_ids) == [2]
    assert trainer.reference is None  # without a KL penalty no second model is loaded


@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_warm_up_begins_above_0_and_ends_at_the_whole_rate(warmup: int, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, steps=6, learning_rate=1e-3, warmup_steps=warmup)
    trainer = make_trainer(recipe)
    updates = [build_update(make_rollouts(REWARDS, seed=step), recipe.slow, step)[0] for step in range(1, 7)]
    rates = [logs["learning_rate"] for logs in make_updates(trainer, updates)]
    assert rates == pytest.approx([1e-3 * min(1, step / max(warmup, 1)) for step in range(1, 7)])
