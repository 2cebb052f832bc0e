"""What a trainer is made from, and how it fits processes and the memory of its GPU: tokens of a micro-batch, checkpointing,
and vLLM's share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, DistributedType, is_peft_model
from peft.tuners.lora import LoraLayer
from transformers.trainer_pt_utils import get_parameter_names

from fastslow.base.errors import RecipeError, warn
from fastslow.base.world import World
from fastslow.models.load import Policy
from fastslow.models.memory import Footprint, Shape
from fastslow.prefix.tree import Ids, cut_by_tokens
from fastslow.recipe import Recipe

ROWS = 8
"""Rollouts of a micro-batch where memory is not measured."""
NOT_MATRICES = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
"""Names of parameters that are no matrices."""
LEAST_TOKENS = 256
"""Smaller micro-batches are not tried."""


def free_memory(device: torch.device | str) -> int | None:
    """Bytes that can still be allocated on a GPU, with those that torch holds unused; None on other devices."""
    device = torch.device(device)
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def by_tokens(recipe: Recipe, device: str) -> bool:
    return recipe.slow.microbatch == "auto" and free_memory(device) is not None


def rows_of(recipe: Recipe, processes: int) -> int:
    """Rollouts of a micro-batch: as the recipe says, otherwise the most that divide a step, up to `ROWS`."""
    if recipe.slow.microbatch != "auto":
        return recipe.slow.microbatch
    share = recipe.slow.problems * recipe.slow.group // processes
    return max(size for size in range(1, ROWS + 1) if size == 1 or share % size == 0)


def footprint(model: Any, recipe: Recipe, *, bf16: bool, trained: int | None = None) -> Footprint | None:
    """The memory of a recipe's run with this model; None for a model of unusual shape."""
    shape = Shape.of(model.config)
    if shape is None:
        return None
    counts = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    if trained is None:
        trained = sum(count for count, trains in counts if trains)
    weights = sum(count for count, _ in counts) - (trained if is_peft_model(model) else 0)
    return Footprint.of(recipe, shape, weights, trained, bf16=bf16)


def vllm_share(recipe: Recipe, policy: Policy) -> float:
    sampling, slow, lora = recipe.sampling, recipe.slow, recipe.model.lora
    shape = Shape.of(policy.model.config)
    trained = shape.adapter_weights(lora.rank) if shape and lora else None
    needed = footprint(policy.model, recipe, bf16=policy.autocast, trained=trained)
    if needed is None or policy.device != "cuda":
        return 0.3
    rollouts, (free, card) = slow.problems * slow.group, torch.cuda.mem_get_info()
    room = free + torch.cuda.memory_reserved()  # without what other processes hold
    return needed.vllm_share(card, room, rollouts, sampling.max_tokens)


class Fit:
    """How many tokens pass through the model at a time in an update, and whether activations are recomputed.

    Both follow from the free memory at the first update. After running out of memory micro-batches are halved, and once they
    cannot be, activations are recomputed.
    """

    def __init__(self, model: Any, recipe: Recipe, world: World, *, bf16: bool, sharded: bool) -> None:
        self.model, self.world, self.shards = model, world, world.size if sharded else 1
        self.needed = footprint(model, recipe, bf16=bf16)
        self.wish = None if recipe.model.gradient_checkpointing == "auto" else recipe.model.gradient_checkpointing
        self.checkpointing = bool(self.wish)
        self.tokens: int | None = None
        self.longest = 0

    def choose(self, longest: int, optimizer: Any) -> None:
        """Choose both at the first update; at a later one, recompute if its longest row no longer fits otherwise."""
        self.longest = longest
        if self.tokens is not None:
            self._recompute(self.wish is None and longest > self.tokens)
            return
        free = free_memory(next(self.model.parameters()).device)
        if self.needed is None or free is None:  # nothing is known of the model: found by halving
            self.tokens = 2**14
            return
        free -= (self.needed.gradients + (0 if optimizer.state else self.needed.moments)) // self.shards
        found = self.world.gather(self.needed.microbatch(free, longest, self.wish))
        self.tokens = min(tokens for tokens, _ in found)
        self._recompute(any(checkpointing for _, checkpointing in found))

    def cut(self, rows: Sequence[Ids], width: int | None) -> list[slice]:
        """Rows that pass through the model together: neighbours of a tree, or padded rows if they have a `width`."""
        assert self.tokens is not None, "chosen at the first update"
        if width is None:
            return cut_by_tokens(rows, self.tokens)
        size = max(1, self.tokens // width)
        return [slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]

    def shrink(self) -> bool:
        """Need less after running out of memory; whether that is possible."""
        assert self.tokens is not None, "chosen at the first update"
        before, least = self.tokens, max(self.longest, LEAST_TOKENS)
        if before > least:
            self.tokens = max(before // 2, least)
            found = f"continuing with {self.tokens:,}"
        elif self.wish is None and not self.checkpointing:
            self._recompute(True)
            found = "continuing with gradient checkpointing"
        else:
            return False
        warn(
            f"out of GPU memory with micro-batches of {before:,} tokens; {found}, which changes the speed, not the result"
        )
        return True

    def _recompute(self, wanted: bool) -> None:
        if wanted and not self.checkpointing:
            self.model.gradient_checkpointing_enable()
        self.checkpointing = self.checkpointing or wanted


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
    if recipe.teaches:
        named = "method=distill" if recipe.method == "distill" else "slow.feedback=distil"
        raise RecipeError(
            f"{named} copies the trained weights, which FSDP shards over processes; use one GPU or data parallelism "
            "without sharding"
        )
    if recipe.evaluation.divergence and recipe.method != "gepa":
        raise RecipeError(
            "evaluation.divergence needs all weights in one process, but FSDP shards them; set "
            "evaluation.divergence=false and measure after training: fastslow divergence RUN"
        )


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
