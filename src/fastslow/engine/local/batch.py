"""The rows of an update as padded tensors: one process's share, and its micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fastslow.base.world import World
from fastslow.engine.base import Row, Update
from fastslow.prefix.tree import Integers, lexicographic

Tensors = dict[str, Tensor]


def share_of(update: Update, world: World, passes: int, *, sorted_by: str | None) -> list[Row | None]:
    """The rows of this process, filled up with None to a multiple of its passes.

    Sorted by `prompt`, or with the completion by `row` so that a later turn follows the turns that it begins with, rows with
    the same prefix are in the same process and micro-batch. Without an order, rows are dealt out one by one.
    """
    share = passes * world.size
    fillers = -len(update.rows) % share or (0 if update.rows else share)
    if sorted_by is None:
        return [*update.rows, *[None] * fillers][world.rank :: world.size]
    if sorted_by == "row":
        order = lexicographic([[*row.turn.prompt_ids, *row.turn.completion.ids] for row in update.rows])
        ordered = [update.rows[index] for index in order]
    else:
        ordered = sorted(update.rows, key=lambda row: (tuple(row.turn.prompt_ids), tuple(row.teacher_prompt)))
    size = (len(ordered) + fillers) // world.size
    return [*ordered, *[None] * fillers][world.rank * size : (world.rank + 1) * size]


def tensors(rows: Sequence[Row | None], step: int, pad_id: int, device: torch.device, *, teacher: bool) -> Tensors:
    """Prompts padded on the left and completions on the right; a filler is one token without a completion."""

    def padded(values: Sequence[Any], fill: int, side: str, kind: torch.dtype) -> Tensor:
        arrays = [torch.as_tensor(value, dtype=kind) for value in values]
        return pad_sequence(arrays, batch_first=True, padding_value=fill, padding_side=side).to(device)

    def with_mask(name: str, values: Sequence[Sequence[int]], side: str, kept: Sequence[bool]) -> Tensors:
        masks = [torch.full((len(ids),), keep) for ids, keep in zip(values, kept, strict=True)]
        ids, mask = padded(values, pad_id, side, torch.long), padded(masks, 0, side, torch.long)
        return {f"{name}_ids": ids, f"{name}_mask": mask}

    every, present = [True] * len(rows), [row is not None for row in rows]
    completions = [row.turn.completion.ids if row else [pad_id] for row in rows]
    logprobs = [row.turn.completion.logprobs if row else [0.0] for row in rows]
    fresh = [row is not None and not row.helped and row.policy_step == step - 1 for row in rows]
    batch = {
        **with_mask("prompt", [row.turn.prompt_ids if row else [pad_id] for row in rows], "left", every),
        **with_mask("completion", completions, "right", present),
        "advantages": torch.tensor([row.advantage if row else 0.0 for row in rows], device=device),
        "balanced": torch.tensor([row.advantage * row.scale if row else 0.0 for row in rows], device=device),
        "sampled": padded(logprobs, 0, "right", torch.float32),
        "fresh": torch.tensor(fresh, device=device),
    }
    if teacher:
        batch |= with_mask("teacher", [row.teacher_prompt if row else [pad_id] for row in rows], "left", every)
    return batch


def unpadded(batch: Tensors, *parts: str) -> list[list[Integers]]:
    arrays = [(batch[f"{part}_ids"].cpu().numpy(), batch[f"{part}_mask"].bool().cpu().numpy()) for part in parts]
    return [[row[kept] for row, kept in zip(ids, mask, strict=True)] for ids, mask in arrays]


def some(batch: Tensors, which: slice | Tensor) -> Tensors:
    return {key: value[which] for key, value in batch.items()}


def nothing(batch: Tensors) -> Tensors:
    """A micro-batch without a gradient, for a process that has none left while others have: one row without a completion."""
    first = some(batch, slice(1))
    return {**first, "completion_mask": torch.zeros_like(first["completion_mask"])}
