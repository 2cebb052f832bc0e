"""Training over a token tree, with every shared beginning computed once: log-probabilities of completions, and the attention,
in which a token attends to those that precede it in its own sequences.

transformers' models look their attention up by name. `tree_inputs` registers `attend` under the usual name, `sdpa`: given a
`TreeMask` it attends over the tree, given any other mask it calls transformers' own function. The kernel is FlexAttention on
an NVIDIA GPU and ordinary attention over gathered keys elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from fastslow.base.errors import ModelError
from fastslow.prefix.tree import Ids, TokenTree, token_tree

IMPLEMENTATION = "sdpa"
KERNEL_BLOCK = 128
"""Tokens per block of FlexAttention. Trees for it are padded to a multiple of two blocks: a single block would be compiled
separately."""
QUERY_BLOCK = 128
"""Neighbouring tokens that attend together where FlexAttention is not used."""


def completion_logprobs(model: Any, prompts: Sequence[Ids], completions: Sequence[Ids]) -> tuple[Tensor, Tensor | None]:
    """Log-probability and entropy of each completion token, rows × longest completion, with 0 after a completion's end.

    The result and its gradients equal those of scoring each row alone, while beginnings that rows share (a system prompt, a
    problem, earlier turns) pass through the model once. The model is a transformers decoder, bare or wrapped (PEFT, DDP), on
    which TRL's `add_fused_lm_head` was called, as TRL's trainers do: it sets the temperature, computes the logits in tiles,
    and omits the entropy (`None`) unless it was requested. `why_not_train` tells beforehand whether a model is supported.
    """
    device = next(model.parameters()).device
    tree, inputs = tree_inputs(model, prompts, completions, device)
    labels = torch.from_numpy(tree.labels).to(device)[None]
    outputs = model(**inputs, shift_labels=labels, fused_lm_head=True)
    width = max((len(places) for places in tree.places), default=0)
    columns = torch.arange(width, device=device)
    present = columns < torch.tensor([len(places) for places in tree.places], device=device)[:, None]
    places = torch.cat([torch.from_numpy(places) for places in tree.places]).to(device)

    def by_row(values: Tensor) -> Tensor:
        return values.new_zeros(present.shape).masked_scatter(present, values[0, places])

    return by_row(outputs.log_probs), None if outputs.entropy is None else by_row(outputs.entropy)


def tree_inputs(
    model: Any, prompts: Sequence[Ids], completions: Sequence[Ids], device: torch.device
) -> tuple[TokenTree, dict[str, Any]]:
    """The rows as one tree, and the arguments to call the model with so that it runs over the tree."""
    AttentionInterface.register(IMPLEMENTATION, attend)
    tree = token_tree(prompts, completions, multiple=2 * KERNEL_BLOCK if device.type == "cuda" else 1)
    windows = layer_windows(getattr(model, "module", model).config)
    masks = {kind: TreeMask.build(tree, device, window) for kind, window in windows.items()}
    return tree, {
        "input_ids": torch.from_numpy(tree.tokens).to(device)[None],
        "position_ids": torch.from_numpy(tree.positions).to(device)[None],
        # Models with several kinds of layers take a dict of masks by kind, others a single mask.
        "attention_mask": masks if len(masks) > 1 else next(iter(masks.values())),
    }


def layer_windows(config: Any) -> dict[str, int | None]:
    """The kinds of attention layers of a model, and the sliding window of each."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = getattr(config, "layer_types", None) or ["full_attention" if window is None else "sliding_attention"]
    known = {"full_attention": None, "sliding_attention": window}
    if unknown := sorted(set(kinds) - set(known)):
        raise ModelError(f"layers of kind {', '.join(unknown)} cannot share prefixes")
    return {kind: known[kind] for kind in sorted(set(kinds))}


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """An attention function of transformers; states are batch × heads × tokens × head size."""
    if not isinstance(attention_mask, TreeMask):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    for name in ("softcap", "position_bias", "s_aux"):
        if options.get(name) is not None:
            raise ModelError(f"attention with {name} is not supported over a tree")
    if torch.is_autocast_enabled(query.device.type):  # scaled_dot_product_attention does this by itself
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    scale, dropout = options.get("scaling"), options.get("dropout", 0.0)
    if query.device.type == "cuda" and not dropout:
        return _attend_blocks(query, key, value, attention_mask, scale), None
    return _attend_gathered(query, key, value, attention_mask, scale, dropout), None


class TreeMask(BlockMask):
    """A block mask for FlexAttention that also holds the tree, for attention without FlexAttention.

    transformers' models pass a 4-dimensional mask to their attention unchanged.
    """

    tree: TokenTree
    window: int | None
    ndim = 4  # read by some models

    @classmethod
    def build(cls, tree: TokenTree, device: torch.device, window: int | None = None) -> TreeMask:
        """The mask of a layer that attends to at most `window` tokens, the token itself included."""
        ends = torch.from_numpy(tree.ends).to(device, torch.int32)
        positions = torch.from_numpy(tree.positions).to(device, torch.int32)

        def attends(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            past = (key <= query) & (query < ends[key])
            return past if window is None else past & (positions[query] - positions[key] < window)

        some, every = (torch.from_numpy(blocks).to(device)[None, None] for blocks in _blocks(tree, window))
        mask = cls.from_kv_blocks(
            *_listed(some & ~every),
            *_listed(every),
            BLOCK_SIZE=KERNEL_BLOCK,
            mask_mod=attends,
            seq_lengths=(len(tree), len(tree)),
        )
        mask.tree, mask.window = tree, window
        return mask

    @cached_property
    def blocks(self) -> list[Block]:
        return gather(self.tree, self.window, self.kv_indices.device)


# With FlexAttention --------------------------------------------------------------------------------------------------


def _attend_blocks(query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, scale: float | None) -> Tensor:
    """FlexAttention, compiled once for trees of all lengths."""
    groups = query.shape[1] // key.shape[1]
    # The backward kernel has one worker per block of keys and key head, and all rollouts read the few blocks of a context:
    # with grouped key heads most of the GPU would wait for the workers of these blocks.
    states = (query, repeat_kv(key, groups), repeat_kv(value, groups))
    if scale is not None and math.isclose(scale, query.shape[-1] ** -0.5):
        scale = None  # the default, which the compiler knows
    out = _compiled()(*(state.unflatten(2, (-1, KERNEL_BLOCK)) for state in states), mask, scale)
    return out.transpose(1, 2).contiguous()


@cache
def _compiled() -> Any:
    return torch.compile(_flex, dynamic=True)


def _flex(query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, scale: float | None) -> Tensor:
    """Takes the tokens as whole blocks: the compiler then knows that every length is a multiple, and omits bounds checks."""
    batch, heads, blocks, _, size = query.shape
    shape = (batch, heads, blocks * KERNEL_BLOCK, size)
    return flex_attention(
        query.reshape(shape), key.reshape(shape), value.reshape(*shape[:3], -1), block_mask=mask, scale=scale
    )


def _blocks(tree: TokenTree, window: int | None) -> tuple[np.ndarray, np.ndarray]:
    """For each block of queries and block of keys: whether any pair may attend, and whether all pairs do."""
    count = -(-len(tree) // KERNEL_BLOCK)
    starts = np.arange(count) * KERNEL_BLOCK
    lasts = np.minimum(starts + KERNEL_BLOCK, len(tree)) - 1
    before = starts[:, None] > starts[None, :]
    some = before & (np.maximum.reduceat(tree.ends, starts)[None, :] > starts[:, None])
    every = before & (np.minimum.reduceat(tree.ends, starts)[None, :] > lasts[:, None])
    if window is not None:
        lowest, highest = np.minimum.reduceat(tree.positions, starts), np.maximum.reduceat(tree.positions, starts)
        some &= lowest[:, None] - highest[None, :] < window
        every &= highest[:, None] - lowest[None, :] < window
    return some | np.eye(count, dtype=bool), every


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix of blocks in FlexAttention's format: how many are set in each row, and all indices with the set ones first."""
    order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True)
    return blocks.sum(dim=-1, dtype=torch.int32), order.int().contiguous()


# Without FlexAttention -----------------------------------------------------------------------------------------------


def _attend_gathered(
    query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, scale: float | None, dropout: float
) -> Tensor:
    """Ordinary attention of each block of neighbours over copies of their keys."""
    groups, places = query.shape[1] // key.shape[1], [block.keys for block in mask.blocks]
    keys, values = (
        repeat_kv(states.index_select(2, torch.cat(places)), groups).split(list(map(len, places)), 2)
        for states in (key, value)
    )
    attended = [
        functional.scaled_dot_product_attention(q, k, v, block.mask, dropout, scale=scale)
        for q, k, v, block in zip(query.split(QUERY_BLOCK, 2), keys, values, mask.blocks, strict=True)
    ]
    return torch.cat(attended, 2).transpose(1, 2).contiguous()


@dataclass(frozen=True)
class Block:
    """What some neighbouring tokens attend to."""

    keys: Tensor
    """Places in the tree."""
    mask: Tensor
    """Tokens × keys."""


def gather(tree: TokenTree, window: int | None, device: torch.device) -> list[Block]:
    """The tokens of a tree in blocks of `QUERY_BLOCK`.

    In depth-first order, whatever precedes a block and is attended to from within it is on the path to its first token. The
    keys of a block are therefore that path and the block itself.
    """
    blocks = []
    for start in range(0, len(tree), QUERY_BLOCK):
        queries = np.arange(start, min(start + QUERY_BLOCK, len(tree)))
        path = np.flatnonzero(tree.ends[:start] > start)
        if window is not None:
            path = path[tree.positions[path] > tree.positions[queries].min() - window]
        keys = np.concatenate([path, queries])
        seen = (keys <= queries[:, None]) & (queries[:, None] < tree.ends[keys])
        if window is not None:
            seen &= tree.positions[queries][:, None] - tree.positions[keys] < window
        blocks.append(Block(torch.from_numpy(keys).to(device), torch.from_numpy(seen).to(device)))
    return blocks
