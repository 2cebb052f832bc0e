"""Attention over keys and values that many rows share, for sampling: they are stored once, not copied to each row.

A row attends to some *levels* (its context, its problem), each stored once for all rows under it, and to tokens of its own.
The scores of each are computed separately, those of a level as one matrix product with the queries of all its rows, and one
softmax covers all scores. On a GPU decoding has Triton kernels of its own (`decode_attention`), and prompts are computed by
torch's fused attention, whose memory does not grow with the number of scores. Inside `shared_prefixes` a transformers model
calls this attention in place of its own and passes the current `Pass` on to it, so every model whose attention can be
replaced that way is supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from fastslow.base.errors import ModelError

IMPLEMENTATION = "fastslow_shared_prefix"
HIDDEN = -1e30
"""Added to the score of a key that a query must not attend to."""
NOWHERE = 2**40
"""The position of padding: later than every token."""
FUSED = -2
"""The number of the mask of a fused pass, beside those of the levels and that of the own columns, -1."""
MASKED = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The kernels of torch that take any mask and any shape; cuDNN's would be prepared anew for every shape of the prompts."""
SPARSE = 0.75
"""Unused rows of a level's store are dropped when no more than this share of its rows is in use."""


class Store:
    """Keys and values of every layer: (rows, heads, columns, features)."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def layer(self, number: int, key: Tensor, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, allocated at its first use."""
        if number not in self.layers:
            self.layers[number] = (
                key.new_zeros((self.rows, key.shape[1], self.columns, key.shape[3]), dtype=dtype),
                value.new_zeros((self.rows, value.shape[1], self.columns, value.shape[3]), dtype=dtype),
            )
        return self.layers[number]

    def select(self, rows: Tensor) -> None:
        self.rows = len(rows)
        for number, (keys, values) in self.layers.items():
            self.layers[number] = keys.index_select(0, rows), values.index_select(0, rows)

    def widen(self, columns: int) -> None:
        for number, pair in self.layers.items():
            first, second = (torch.nn.functional.pad(each, (0, 0, 0, columns - self.columns)) for each in pair)
            self.layers[number] = first, second
        self.columns = columns


class Level:
    """Tokens that rows of a batch have in common; each row of the store serves one or more rows of the batch."""

    def __init__(
        self, store: Store, lengths: Sequence[int], starts: Sequence[int], owners: Sequence[int], device: torch.device
    ) -> None:
        self.store = store
        self.lengths, self.starts, self.owners = list(lengths), list(starts), list(owners)
        """For each row of the store its number of tokens (padding is on the right) and the position of the first of them in
        the prompt; for each row of the batch the store's row that it attends to."""
        self.device = device
        self.even = all(length == store.columns for length in self.lengths)
        self.length_tensor = torch.tensor(self.lengths, device=device)
        self.start_tensor = torch.tensor(self.starts, device=device)
        self.owner_tensor = torch.tensor(self.owners, device=device)
        self.groups = Groups(self.owners, store.rows, device)
        self._tiles: dict[int, tuple[Tensor, Tensor]] = {}

    def tiles(self, size: int) -> tuple[Tensor, Tensor]:
        """The batch's rows in tiles of rows with the same owner: the owners (tiles), and the rows (tiles, size), filled up
        with -1."""
        if size not in self._tiles:
            members: dict[int, list[int]] = {}
            for row, owner in enumerate(self.owners):
                members.setdefault(owner, []).append(row)
            tiles = [(owner, rows[i : i + size]) for owner, rows in members.items() for i in range(0, len(rows), size)]
            filled = [rows + [-1] * (size - len(rows)) for _, rows in tiles]
            self._tiles[size] = (
                torch.tensor([owner for owner, _ in tiles], device=self.device),
                torch.tensor(filled, dtype=torch.int32, device=self.device),
            )
        return self._tiles[size]

    def part(self, owners: Sequence[int]) -> Level:
        """The level for another batch, whose rows attend to a range of the store; nothing is copied."""
        first, last = min(owners), max(owners) + 1
        store = Store(last - first, self.store.columns)
        store.layers = {n: (keys[first:last], values[first:last]) for n, (keys, values) in self.store.layers.items()}
        owners = [owner - first for owner in owners]
        return Level(store, self.lengths[first:last], self.starts[first:last], owners, self.device)

    def select(self, rows: Sequence[int]) -> Level:
        """The level for some of the batch's rows; unused rows of the store are dropped when there are many (`SPARSE`)."""
        owners = [self.owners[row] for row in rows]
        used = sorted(set(owners))
        if len(used) > SPARSE * self.store.rows:
            return Level(self.store, self.lengths, self.starts, owners, self.device)
        self.store.select(torch.tensor(used, device=self.device))
        place = {owner: index for index, owner in enumerate(used)}
        lengths, starts = [self.lengths[owner] for owner in used], [self.starts[owner] for owner in used]
        return Level(self.store, lengths, starts, [place[owner] for owner in owners], self.device)


class Groups:
    """The rows of a batch by group, as one tensor that is padded where groups differ in size."""

    def __init__(self, group_of_row: Sequence[int], count: int, device: torch.device) -> None:
        members: list[list[int]] = [[] for _ in range(count)]
        for row, group in enumerate(group_of_row):
            members[group].append(row)
        self.count, self.size = count, max(map(len, members))
        self.slots = self.places = None
        if [row for group in members for row in group] != list(range(count * self.size)):
            place = {row: group * self.size + i for group, rows in enumerate(members) for i, row in enumerate(rows)}
            slots = [row for rows in members for row in rows + [0] * (self.size - len(rows))]
            self.slots = torch.tensor(slots).to(device)
            self.places = torch.tensor([place[row] for row in range(len(group_of_row))]).to(device)

    def gather(self, rows: Tensor) -> Tensor:
        """(rows, …) → (groups, rows of a group, …)"""
        rows = rows if self.slots is None else rows.index_select(0, self.slots)
        return rows.unflatten(0, (self.count, self.size))

    def scatter(self, groups: Tensor) -> Tensor:
        """(groups, rows of a group, …) → (rows, …)"""
        rows = groups.flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)


@dataclass
class Pass:
    """One forward pass: the levels that its rows attend to, and where the new tokens are stored.

    `column` is the first column of `own` that the new tokens are written to. It is a tensor where the pass is recorded as a
    CUDA graph; attention then covers all columns of the store and masks those that are not written yet.
    """

    positions: Tensor
    levels: Sequence[Level]
    own: Store
    column: int | Tensor
    farthest: int
    """An upper bound of the positions: a window at least that wide masks nothing."""
    rows: slice = field(default_factory=lambda: slice(None))
    """The rows of `own` that the pass computes."""
    fused: bool = False
    """Whether torch's fused attention computes the pass: faster for many new tokens on a GPU. It knows no soft cap."""
    ended: Tensor | None = None
    """Which rows need no result, because they are complete; the kernels of a decoding step read nothing for them."""
    reads_unwritten: bool = False
    """Set by layers that read all columns of `own`, written or not."""
    masks: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dtype: torch.dtype,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """Attention of (rows, heads, new tokens, features); also stores the new keys and values."""
        keys, values = (each[self.rows] for each in self.own.layer(layer, key, value, dtype))
        new = query.shape[2]
        window = None if window is None or window > self.farthest else window
        if isinstance(self.column, Tensor) and has_kernel(query, key, value, dtype):
            levels = [(level, *level.store.layers[layer]) for level in self.levels]
            rest = self.positions, self.column, scale, window, softcap, self.ended
            return _kernels().attend(query, key, value, (keys, values), levels, *rest)  # type: ignore[union-attr]
        if isinstance(self.column, int):
            keys, values = keys[:, :, : self.column + new], values[:, :, : self.column + new]
            keys[:, :, self.column :] = key
            values[:, :, self.column :] = value
        else:
            self.reads_unwritten = True
            keys.index_copy_(2, self.column, key.to(dtype))
            values.index_copy_(2, self.column, value.to(dtype))
        if self.fused and softcap is None:
            return self._attend_fused(layer, query, keys, values, scale, window)
        # (rows, key heads, query heads of one key head, new tokens, features)
        query_RHGTD = (query * scale).to(dtype).unflatten(1, (keys.shape[1], -1))
        seen: list[tuple[Groups | None, Tensor, Tensor, Tensor | None]]
        seen = [(None, keys, values, self._own_mask(window, new))]
        for number, level in enumerate(self.levels):
            seen.append((level.groups, *level.store.layers[layer], self._level_mask(number, window)))
        scores = [_scores(query_RHGTD, groups, keys, mask, softcap) for groups, keys, _, mask in seen]
        weights = torch.cat(scores, -1).softmax(-1).to(dtype).split([part.shape[-1] for part in scores], -1)
        parts = [_sums(weight, groups, values) for weight, (groups, _, values, _) in zip(weights, seen, strict=True)]
        return sum(parts[1:], parts[0]).flatten(1, 2).to(query.dtype)

    def _attend_fused(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Keys and values are the rows' own; those of their levels are put before them."""
        if (FUSED, window) not in self.masks:
            self.masks[FUSED, window] = self._fused_mask(window, keys.shape[2]).to(keys.dtype)
        shared = [(level.store.layers[layer], level.owner_tensor) for level in self.levels]
        keys = torch.cat([*(stored[0][owners] for stored, owners in shared), keys], 2)
        values = torch.cat([*(stored[1][owners] for stored, owners in shared), values], 2)
        heads, mask = query.shape[1] // keys.shape[1], self.masks[FUSED, window]
        keys, values = keys.repeat_interleave(heads, 1), values.repeat_interleave(heads, 1)
        with sdpa_kernel(MASKED):
            return scaled_dot_product_attention(query.to(keys.dtype), keys, values, mask, scale=scale).to(query.dtype)

    def _fused_mask(self, window: int | None, width: int) -> Tensor:
        """Masks padding, later tokens and those before the window; added to scores (rows, 1, new tokens, columns)."""
        device, parts = self.positions.device, []
        for level in self.levels:
            columns = torch.arange(level.store.columns, device=device)
            owners = level.owner_tensor
            inside = columns < level.length_tensor[owners][:, None]
            parts.append(torch.where(inside, level.start_tensor[owners][:, None] + columns, NOWHERE))
        parts.append(self.positions[:, :1] - self.column + torch.arange(width, device=device))
        distance = self.positions[:, None, :, None] - torch.cat(parts, 1)[:, None, None, :]
        seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
        return torch.zeros(seen.shape, device=device).masked_fill_(~seen, -torch.inf)

    def _own_mask(self, window: int | None, new: int) -> Tensor | None:
        """Masks later tokens and those before the window; added to scores (…, new tokens, columns)."""
        if (-1, window) not in self.masks:
            column = self.column
            width = column + new if isinstance(column, int) else self.own.columns
            if new == 1 and isinstance(column, int) and (window is None or window >= width):
                self.masks[-1, window] = None
            else:
                device = self.positions.device
                distance = (torch.arange(new, device=device) + column)[:, None] - torch.arange(width, device=device)
                self.masks[-1, window] = _hide((distance >= 0) & (distance < (window or width + 1)))
        return self.masks[-1, window]

    def _level_mask(self, number: int, window: int | None) -> Tensor | None:
        """Masks padding and tokens before the window; added to scores (groups, 1, rows, 1, new tokens, columns)."""
        if (number, window) not in self.masks:
            level = self.levels[number]
            columns = torch.arange(level.store.columns, device=self.positions.device)
            seen = (columns < level.length_tensor[:, None])[:, None, None, None, None, :]
            if window is not None:
                key_position = (level.start_tensor[:, None] + columns)[:, None, None, None, None, :]
                position = level.groups.gather(self.positions)[:, None, :, None, :, None]
                seen = seen & (position - key_position < window)
            self.masks[number, window] = None if window is None and level.even else _hide(seen)
        return self.masks[number, window]


def has_kernel(query: Tensor, key: Tensor, value: Tensor, dtype: torch.dtype) -> bool:
    """Whether `decode_attention` computes this: one new token per row, on a GPU."""
    features = query.shape[3]
    return (
        query.is_cuda
        and query.shape[2] == 1
        and dtype in (torch.bfloat16, torch.float16)
        and features == value.shape[3]
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
        and kernels_for(features)
    )


def kernels_for(features: int) -> bool:
    """Whether there are kernels for heads of this size on this machine's GPU."""
    return features in (16, 32, 64, 128, 256) and _kernels() is not None


@cache
def _kernels() -> ModuleType | None:
    """The module `decode_attention`, where Triton is installed and the GPU has room for its blocks (NVIDIA's since 2020)."""
    if not torch.version.cuda or torch.cuda.get_device_capability() < (8, 0):
        return None
    try:
        from fastslow.prefix import decode_attention
    except ImportError:
        return None
    return decode_attention


def _scores(query: Tensor, groups: Groups | None, keys: Tensor, mask: Tensor | None, softcap: float | None) -> Tensor:
    """Scores (rows, key heads, queries of a key head, tokens, columns) of queries (…, features).

    The keys belong to single rows, or to groups of rows, whose queries are then concatenated for one matrix product.
    """
    if groups is None:
        scores = _product(query.flatten(2, 3).flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
        scores = scores.view(*query.shape[:4], -1)
    else:
        query = groups.gather(query).transpose(1, 2)
        scores = _product(query.flatten(2, 4).flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
        scores = scores.view(*query.shape[:5], -1)
    if softcap is not None:
        scores.div_(softcap).tanh_().mul_(softcap)
    if mask is not None:
        scores.add_(mask)
    return scores if groups is None else groups.scatter(scores.transpose(1, 2))


def _sums(weights: Tensor, groups: Groups | None, values: Tensor) -> Tensor:
    """Weighted sums of the values, in the layout of the queries."""
    if groups is None:
        sums = _product(weights.flatten(2, 3).flatten(0, 1), values.flatten(0, 1))
        return sums.view(*weights.shape[:4], -1)
    weights = groups.gather(weights).transpose(1, 2)
    sums = _product(weights.flatten(2, 4).flatten(0, 1), values.flatten(0, 1))
    return groups.scatter(sums.view(*weights.shape[:5], -1).transpose(1, 2))


def _product(one: Tensor, other: Tensor) -> Tensor:
    """Batched matrix product in fp32, whatever the inputs are: bf16 scores would be too coarse for the softmax."""
    if one.dtype == torch.float32:
        return torch.bmm(one, other)
    return torch.bmm(one, other, out_dtype=torch.float32)


def _hide(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, HIDDEN)


def _stored_dtype(key: Tensor) -> torch.dtype:
    """The dtype of stored keys and values: the model's compute dtype on a GPU, fp32 elsewhere."""
    if key.device.type != "cuda":
        return torch.float32
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else key.dtype


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    shared: Pass,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    for name in ("s_aux", "position_bias"):
        if options.get(name) is not None:
            raise ModelError(f"attention with {name} is not supported with shared prefixes")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    dtype = _stored_dtype(key)
    with torch.autocast(query.device.type, enabled=False):
        out = shared.attend(module.layer_idx, query, key, value, dtype, scale, sliding_window, softcap)  # type: ignore[arg-type]
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(IMPLEMENTATION, _attend)


def without_adapter(model: Any) -> Any:
    """The model itself, without PEFT's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def implementation_of(config: Any) -> str:
    """The name by which a model looks its attention up."""
    return str(config._attn_implementation)


@contextmanager
def shared_prefixes(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model attends with this module's attention, and every call of it needs the argument `shared=Pass(…)`."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    own = [(config, implementation_of(config)) for config in configs.values()]
    try:
        for config, _ in own:
            config._attn_implementation = IMPLEMENTATION
        yield
    finally:
        for config, name in own:
            config._attn_implementation = name
