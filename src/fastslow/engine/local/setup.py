"""What a trainer is made from: processes, end tokens, groups of parameters."""

from __future__ import annotations

import os
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, DistributedType
from peft.tuners.lora import LoraLayer
from transformers.trainer_pt_utils import get_parameter_names

from fastslow.base.errors import RecipeError
from fastslow.base.world import World
from fastslow.engine.local.fit import by_tokens, rows_of
from fastslow.models.load import Policy
from fastslow.recipe import Recipe

NOT_MATRICES = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
"""Names of parameters that are no matrices."""


def cut(recipe: Recipe, policy: Policy, world: World) -> tuple[int, int]:
    """Rollouts of a micro-batch, and how many micro-batches a process makes of a step."""
    slow = recipe.slow
    rollouts = slow.problems * slow.group
    rows = rollouts // world.size if by_tokens(recipe, policy.device) else rows_of(recipe, world.size)
    if rollouts % (rows * world.size):
        raise RecipeError(
            f"{rollouts} rollouts per step (slow.problems={slow.problems} × slow.group={slow.group}) are not divisible by "
            f"{world.size} processes × {rows} rollouts of slow.microbatch={slow.microbatch}; lower slow.microbatch, or start "
            "fewer processes"
        )
    return rows, rollouts // (rows * world.size)


def make_accelerator(policy: Policy, recipe: Recipe) -> Accelerator:
    sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" or (sharded and os.environ.get("FSDP_VERSION") != "2"):
        raise RecipeError(
            "weights are sharded with FSDP2 only, not with DeepSpeed or an older FSDP; launch with "
            "`accelerate launch --use_fsdp --fsdp_version 2 …` (docs/scale.md)"
        )
    # Of an earlier run in this process, which may have had another precision or device.
    AcceleratorState._reset_state(reset_partial_state=True)
    state = PartialState(cpu=policy.device == "cpu")
    if sharded:
        # Checkpoints have one file with all weights, so that every other command can read them.
        os.environ["FSDP_STATE_DICT_TYPE"] = "FULL_STATE_DICT"
        if state.distributed_type == DistributedType.MULTI_CPU:
            # accelerate shards on accelerators only; on CPUs every process would silently hold all weights.
            state.distributed_type = DistributedType.MULTI_XPU
    # A prompt of a mixture leaves experts without a gradient; recomputed activations forbid looking for them.
    unused = policy.lora is not None or recipe.model.gradient_checkpointing is not True
    return Accelerator(
        mixed_precision="bf16" if policy.autocast else "no",
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=unused)],
    )


def refuse_sharded(recipe: Recipe) -> None:
    """Reject features that need all weights in one process."""
    if recipe.method == "distill":
        raise RecipeError(
            "method=distill copies the trained weights, which FSDP shards over processes; use one GPU or data parallelism "
            "without sharding"
        )
    if recipe.evaluation.divergence and recipe.method != "gepa":
        raise RecipeError(
            "evaluation.divergence needs all weights in one process, but FSDP shards them; set "
            "evaluation.divergence=false and measure after training: fastslow divergence RUN"
        )


def end_tokens(policy: Policy) -> list[int]:
    """Tokens that end a completion: all that the model names, and the tokenizer's."""
    named = policy.model.generation_config.eos_token_id
    ends = [] if named is None else [named] if isinstance(named, int) else list(named)
    own = policy.tokenizer.eos_token_id
    return ends if own in ends else [own, *ends]


def balance_factor(model: Any) -> float:
    """The factor of a mixture's loss for unevenly used experts; 0 for other models."""
    config = model.config.get_text_config()
    return float(getattr(config, "router_aux_loss_coef", 0.0)) if hasattr(config, "output_router_logits") else 0.0


def parameter_groups(model: Any) -> list[dict[str, Any]]:
    """Matrices and the rest, in the order in which checkpoints hold their state."""
    matrices = set(get_parameter_names(model, [torch.nn.LayerNorm], NOT_MATRICES))
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for name, parameter in trained if (name in matrices) is wanted]}
        for wanted in (True, False)
    ]


def leave_inputs_in_bf16(model: Any) -> None:
    """Adapters get their inputs as they are. PEFT would copy each to the adapter's fp32, and autocast each copy back to bf16:
    the same numbers, but two kernels and one stored copy for every adapted layer."""
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.cast_input_dtype_enabled = False
