"""Who attends to whom in a tree: a token to those before it on its own path, within a sliding window if a layer has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask

from fastslow.prefix.tree import Tree

KERNEL_BLOCK = 128
"""Tokens a block of FlexAttention; trees for it are a multiple of two blocks: a single one would be compiled apart."""
QUERY_BLOCK = 64
"""Neighbouring tokens that attend together where there is no FlexAttention."""
KEY_BUCKET = 128
"""Blocks whose numbers of keys lie this close are padded to the largest of them."""


class TreeMask(BlockMask):
    """A block mask for FlexAttention that also knows the tree, for attention without it.

    Being a 4-dimensional mask, transformers' models pass it on to their attention as it is.
    """

    tree: Tree
    window: int | None
    ndim = 4  # some models ask for it

    @classmethod
    def build(cls, tree: Tree, device: torch.device, window: int | None = None) -> TreeMask:
        """The mask of a layer, which attends at most `window` tokens back, itself included."""
        ends = torch.from_numpy(tree.ends).to(device, torch.int32)
        positions = torch.from_numpy(tree.positions).to(device, torch.int32)

        def attends(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
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
    def gathered(self) -> Gathered:
        """The tree as batches of blocks of neighbours."""
        return gather(self.tree, self.window, self.kv_indices.device)


def _blocks(tree: Tree, window: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Of each block of queries and block of keys: may any attend, and do all."""
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


def _listed(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix of blocks as FlexAttention reads it: how many in each row, and which, those first."""
    order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True)
    return blocks.sum(dim=-1, dtype=torch.int32), order.int().contiguous()


@dataclass(frozen=True)
class Batch:
    """Some blocks of neighbouring tokens with all they attend to, padded to one shape."""

    queries: torch.Tensor
    """Places, blocks × queries."""
    keys: torch.Tensor
    """Places, blocks × keys."""
    mask: torch.Tensor
    """blocks × 1 × queries × keys."""


@dataclass(frozen=True)
class Gathered:
    """Every token in a block of one of the batches."""

    batches: Sequence[Batch]
    order: torch.Tensor
    """Where among the queries of all batches each token is."""


def gather(tree: Tree, window: int | None, device: torch.device) -> Gathered:
    """Blocks of neighbours with all that any of them attends to.

    What lies before a block and is attended to from anywhere in it is on the path to its first token, by depth-first order:
    the keys of a block are that path and the block itself.
    """
    buckets: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for start in range(0, len(tree), QUERY_BLOCK):
        queries = np.arange(start, min(start + QUERY_BLOCK, len(tree)))
        path = np.flatnonzero(tree.ends[:start] > start)
        if window is not None:
            path = path[tree.positions[path] > tree.positions[queries].min() - window]
        keys = np.concatenate([path, queries])
        buckets.setdefault(-(-len(keys) // KEY_BUCKET), []).append((queries, keys))
    padded = [_pad(tree, window, buckets[size]) for size in sorted(buckets)]
    order = np.zeros(len(tree), dtype=np.int64)
    places = np.concatenate([queries.flatten() for queries, _, _ in padded])
    order[places] = np.arange(len(places))
    batches = [Batch(*(torch.from_numpy(values).to(device) for values in batch)) for batch in padded]
    return Gathered(batches, torch.from_numpy(order).to(device))


def _pad(
    tree: Tree, window: int | None, blocks: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    height, width = (max(len(block[side]) for block in blocks) for side in (0, 1))
    # A missing query is a second of the block's last one; a missing key is masked.
    queries = np.stack([np.pad(block[0], (0, height - len(block[0])), mode="edge") for block in blocks])
    keys = np.stack([np.pad(block[1], (0, width - len(block[1]))) for block in blocks])
    present = np.arange(width) < np.array([len(block[1]) for block in blocks])[:, None]
    query, key = queries[:, :, None], keys[:, None, :]
    mask = present[:, None, :] & (key <= query) & (query < tree.ends[key])
    if window is not None:
        mask &= tree.positions[query] - tree.positions[key] < window
    return queries, keys, mask[:, None]
