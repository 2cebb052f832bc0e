"""Attention over a tree, where transformers' models find it: under the name of their usual attention, `sdpa`.

A model that is handed a `TreeMask` attends by it; handed anything else it attends as before.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from fastslow.errors import ModelError
from fastslow.prefix.mask import KERNEL_BLOCK, TreeMask

IMPLEMENTATION = "sdpa"


def enable() -> None:
    """Let models in this process take tree masks."""
    AttentionInterface.register(IMPLEMENTATION, attend)


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """transformers' attention interface; states are batch × heads × tokens × head size."""
    if not isinstance(attention_mask, TreeMask):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    for name in ("softcap", "position_bias", "s_aux"):
        if options.get(name) is not None:
            raise ModelError(f"attention with {name} does not go over a tree")
    if torch.is_autocast_enabled(query.device.type):  # as scaled_dot_product_attention does on its own
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    scale, dropout = options.get("scaling"), options.get("dropout", 0.0)
    if query.device.type == "cuda" and not dropout:
        return _attend_blocks(query, key, value, attention_mask, scale), None
    return _attend_gathered(query, key, value, attention_mask, scale, dropout), None


def _attend_blocks(query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, scale: float | None) -> Tensor:
    """FlexAttention, compiled once for trees of all lengths."""
    groups = query.shape[1] // key.shape[1]
    # Its backward pass has one worker for each block of keys and head of keys, and all rollouts read the few blocks of a
    # context: with shared heads most of the card would wait for these.
    states = (query, repeat_kv(key, groups), repeat_kv(value, groups))
    if scale is not None and math.isclose(scale, query.shape[-1] ** -0.5):
        scale = None  # the same, known to the compiler
    out = _compiled()(*(state.unflatten(2, (-1, KERNEL_BLOCK)) for state in states), mask, scale)
    return out.transpose(1, 2).contiguous()


@cache
def _compiled() -> Any:
    return torch.compile(_flex, dynamic=True)


def _flex(query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, scale: float | None) -> Tensor:
    """Takes the tokens as whole blocks: so the compiler knows of every length that it is a multiple, and checks no bounds."""
    batch, heads, blocks, _, size = query.shape
    shape = (batch, heads, blocks * KERNEL_BLOCK, size)
    return flex_attention(
        query.reshape(shape), key.reshape(shape), value.reshape(*shape[:3], -1), block_mask=mask, scale=scale
    )


def _attend_gathered(
    query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, scale: float | None, dropout: float
) -> Tensor:
    """Blocks of neighbours with copies of their keys, as batches of ordinary attention."""
    query, key, value = (states.transpose(1, 2)[0] for states in (query, key, value))  # tokens × heads × head size
    groups = query.shape[1] // key.shape[1]
    parts = []
    for batch in mask.gathered.batches:
        attended = functional.scaled_dot_product_attention(
            _take(query, batch.queries),
            _take(key, batch.keys, groups),
            _take(value, batch.keys, groups),
            attn_mask=batch.mask,
            scale=scale,
            dropout_p=dropout,
        )
        parts.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts).index_select(0, mask.gathered.order)[None]


def _take(states: Tensor, places: Tensor, repeats: int = 1) -> Tensor:
    """blocks × heads × tokens × head size."""
    taken = states.flatten(1).index_select(0, places.flatten()).view(*places.shape, *states.shape[1:])
    return taken.repeat_interleave(repeats, dim=2).transpose(1, 2) if repeats > 1 else taken.transpose(1, 2)
