"""Attention over keys and values that many rows share, without copying them to each row.

A row sees some *levels* (its context, its problem), each stored once for all rows under it, and tokens of its own. Scores
are computed for each apart, for a level with the queries of all its rows side by side in one matrix product; one softmax goes
over all of them. transformers' models call this in place of their own attention (`shared_prefixes`), with the pass under way
among their arguments, so that it serves every model whose attention can be replaced that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel

NAME = "fastslow_shared_prefix"
HIDDEN = -1e30
"""What is added to the score of a key that a query must not see."""
SPARSE = 0.75
"""A store is made smaller when no more than this share of its rows is in use."""


class NotShared(Exception):
    """This model's attention does something that is not done here."""


class Store:
    """Keys and values of every layer: (rows, heads, columns, features)."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def layer(
        self, number: int, key: torch.Tensor, value: torch.Tensor, kind: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if number not in self.layers:
            self.layers[number] = (
                key.new_zeros((self.rows, key.shape[1], self.columns, key.shape[3]), dtype=kind),
                value.new_zeros((self.rows, value.shape[1], self.columns, value.shape[3]), dtype=kind),
            )
        return self.layers[number]

    def select(self, rows: torch.Tensor) -> None:
        self.rows = len(rows)
        for number, (keys, values) in self.layers.items():
            self.layers[number] = keys.index_select(0, rows), values.index_select(0, rows)

    def widen(self, columns: int) -> None:
        """More columns, what is stored kept."""
        for number, pair in self.layers.items():
            first, second = (torch.nn.functional.pad(each, (0, 0, 0, columns - self.columns)) for each in pair)
            self.layers[number] = first, second
        self.columns = columns


class Level:
    """Tokens that rows have in common: each row of the store serves the rows of the batch that name it."""

    def __init__(
        self, store: Store, lengths: Sequence[int], starts: Sequence[int], owners: Sequence[int], device: torch.device
    ) -> None:
        self.store = store
        self.lengths, self.starts, self.owners = list(lengths), list(starts), list(owners)
        """How many tokens each of the store's rows has (padding stands right of them), where the first of them stands in
        its prompt, and for each row of the batch which of the store's rows is its."""
        self.device = device
        self.even = all(length == store.columns for length in self.lengths)
        self.length_tensor = torch.tensor(self.lengths, device=device)
        self.start_tensor = torch.tensor(self.starts, device=device)
        self.groups = Groups(self.owners, store.rows, device)

    def part(self, owners: Sequence[int]) -> Level:
        """The level as some other rows see it, which own a stretch of the store; nothing is copied."""
        first, last = min(owners), max(owners) + 1
        store = Store(last - first, self.store.columns)
        store.layers = {n: (keys[first:last], values[first:last]) for n, (keys, values) in self.store.layers.items()}
        owners = [owner - first for owner in owners]
        return Level(store, self.lengths[first:last], self.starts[first:last], owners, self.device)

    def select(self, rows: Sequence[int]) -> Level:
        """The level for some of the batch's rows; store rows that serve none of them are let go when they are many."""
        owners = [self.owners[row] for row in rows]
        used = sorted(set(owners))
        if len(used) > SPARSE * self.store.rows:
            return Level(self.store, self.lengths, self.starts, owners, self.device)
        self.store.select(torch.tensor(used, device=self.device))
        place = {owner: index for index, owner in enumerate(used)}
        lengths, starts = [self.lengths[owner] for owner in used], [self.starts[owner] for owner in used]
        return Level(self.store, lengths, starts, [place[owner] for owner in owners], self.device)


class Groups:
    """Which rows of a batch each of some groups has; held so that the groups are one tensor, padded where uneven."""

    def __init__(self, group_of_row: Sequence[int], count: int, device: torch.device) -> None:
        members: list[list[int]] = [[] for _ in range(count)]
        for row, group in enumerate(group_of_row):
            members[group].append(row)
        self.count, self.size = count, max(map(len, members))
        self.slots = self.places = None
        if [row for group in members for row in group] != list(range(count * self.size)):
            place = {row: group * self.size + i for group, rows in enumerate(members) for i, row in enumerate(rows)}
            self.slots = torch.tensor([row for rows in members for row in rows + [0] * (self.size - len(rows))]).to(
                device
            )
            self.places = torch.tensor([place[row] for row in range(len(group_of_row))]).to(device)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """(rows, …) → (groups, rows of a group, …)"""
        rows = rows if self.slots is None else rows.index_select(0, self.slots)
        return rows.unflatten(0, (self.count, self.size))

    def scatter(self, groups: torch.Tensor) -> torch.Tensor:
        """(groups, rows of a group, …) → (rows, …)"""
        rows = groups.flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)


@dataclass
class Pass:
    """One forward pass: the levels its rows see, and where their own tokens go.

    `column` is where in the rows' own store the new tokens go: a number, or a tensor where the pass is recorded as a CUDA
    graph, which then sees all columns of the store and hides those that are not written yet.
    """

    positions: torch.Tensor
    levels: Sequence[Level]
    own: Store
    column: int | torch.Tensor
    farthest: int
    """No position is beyond this one: a window that wide hides nothing."""
    rows: slice = field(default_factory=lambda: slice(None))
    """The rows of `own` that the pass is for."""
    masks: dict[tuple[int, int | None], torch.Tensor | None] = field(default_factory=dict)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kind: torch.dtype,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        """Attention of (rows, heads, new tokens, features); the keys and values are stored on the way."""
        keys, values = (each[self.rows] for each in self.own.layer(layer, key, value, kind))
        new = query.shape[2]
        if isinstance(self.column, int):
            keys, values = keys[:, :, : self.column + new], values[:, :, : self.column + new]
            keys[:, :, self.column :] = key
            values[:, :, self.column :] = value
        else:
            keys.index_copy_(2, self.column, key.to(kind))
            values.index_copy_(2, self.column, value.to(kind))
        window = None if window is None or window > self.farthest else window
        # (rows, key heads, query heads of one key head, new tokens, features)
        query_RHGTD = (query * scale).to(kind).unflatten(1, (keys.shape[1], -1))
        seen: list[tuple[Groups | None, torch.Tensor, torch.Tensor, torch.Tensor | None]]
        seen = [(None, keys, values, self._own_mask(window, new))]
        for number, level in enumerate(self.levels):
            seen.append((level.groups, *level.store.layers[layer], self._level_mask(number, window)))
        scores = [_scores(query_RHGTD, groups, keys, mask, softcap) for groups, keys, _, mask in seen]
        shares = torch.cat(scores, -1).softmax(-1).to(kind).split([part.shape[-1] for part in scores], -1)
        parts = [_sums(share, groups, values) for share, (groups, _, values, _) in zip(shares, seen, strict=True)]
        return sum(parts[1:], parts[0]).flatten(1, 2).to(query.dtype)

    def _own_mask(self, window: int | None, new: int) -> torch.Tensor | None:
        """Hides later tokens and those left of the window; added to scores (…, new tokens, columns)."""
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

    def _level_mask(self, number: int, window: int | None) -> torch.Tensor | None:
        """Hides padding and what is left of the window; added to scores (groups, 1, rows, 1, new tokens, columns)."""
        if (number, window) not in self.masks:
            level = self.levels[number]
            columns = torch.arange(level.store.columns, device=self.positions.device)
            seen = (columns < level.length_tensor[:, None])[:, None, None, None, None, :]
            if window is not None:
                stands = (level.start_tensor[:, None] + columns)[:, None, None, None, None, :]
                position = level.groups.gather(self.positions)[:, None, :, None, :, None]
                seen = seen & (position - stands < window)
            self.masks[number, window] = None if window is None and level.even else _hide(seen)
        return self.masks[number, window]


def _scores(
    query: torch.Tensor, groups: Groups | None, keys: torch.Tensor, mask: torch.Tensor | None, softcap: float | None
) -> torch.Tensor:
    """(rows, key heads, queries of a key head, tokens, features) against keys of each row, or of each group of rows, gives
    (rows, key heads, queries of a key head, tokens, columns). The queries of a group stand side by side in one product."""
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


def _sums(shares: torch.Tensor, groups: Groups | None, values: torch.Tensor) -> torch.Tensor:
    """Values weighted by shares, laid out as the queries are."""
    if groups is None:
        sums = _product(shares.flatten(2, 3).flatten(0, 1), values.flatten(0, 1))
        return sums.view(*shares.shape[:4], -1)
    shares = groups.gather(shares).transpose(1, 2)
    sums = _product(shares.flatten(2, 4).flatten(0, 1), values.flatten(0, 1))
    return groups.scatter(sums.view(*shares.shape[:5], -1).transpose(1, 2))


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Batched matrix product, summed and returned in fp32 whatever goes in: scores in bf16 would lose what softmax needs."""
    if one.dtype == torch.float32:
        return torch.bmm(one, other)
    return torch.bmm(one, other, out_dtype=torch.float32)


def _hide(seen: torch.Tensor) -> torch.Tensor:
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, HIDDEN)


def _kind(key: torch.Tensor) -> torch.dtype:
    """How keys and values are kept: as the model computes on a GPU, in fp32 elsewhere."""
    if key.device.type != "cuda":
        return torch.float32
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else key.dtype


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    shared: Pass,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **arguments: Any,
) -> tuple[torch.Tensor, None]:
    """The signature of transformers' attention functions."""
    for name in ("s_aux", "position_bias"):
        if arguments.get(name) is not None:
            raise NotShared(f"its attention takes {name}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    kind = _kind(key)
    with torch.autocast(query.device.type, enabled=False):
        out = shared.attend(module.layer_idx, query, key, value, kind, scale, sliding_window, softcap)  # type: ignore[arg-type]
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attention)


@contextmanager
def shared_prefixes(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model's attention is the one of this module, and `shared=Pass(…)` must be among its arguments."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    own = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config, _ in own:
            config._attn_implementation = NAME
        yield
    finally:
        for config, name in own:
            config._attn_implementation = name
