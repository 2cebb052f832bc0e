"""Attention of one new token per row over shared levels and the row's own columns, as two Triton kernels.

The first has one program for each piece of work: a key head, a range of columns, and the rows that share them. For a level
these are up to `TILE` queries of rows under the same text, so its keys and values are read once for all of them; for the own
columns it is one row. A program computes an online softmax in fp32 and leaves its sum and the logarithm of its weights, which
the second kernel merges. Only columns that exist are read, and none for rows that have ended: the number of own columns and
which rows have ended are tensors, so that a recorded CUDA graph stays right as they change. The new key and value are taken
from the arguments and also written to the store.

Importing this module needs Triton.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from fastslow.prefix.level_attention import Level

TILE = 64
"""Queries of rows under the same text that one program computes."""
READ = 64 * 128
"""Keys, and as many values, that a program reads at a time; those of all stages and the queries must fit 99 KiB."""
FEWEST, MOST = 128, 16
"""A range of columns is divided into ranges: the fewest columns of each, and the most ranges."""
MERGED = 32
"""Parts that one program of the second kernel merges, of as many queries as that makes."""
UNBOUNDED = 2**30
HIDDEN = tl.constexpr(-1e30)
LOG2E = tl.constexpr(1.4426950408889634)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own: tuple[Tensor, Tensor],
    levels: Sequence[tuple[Level, Tensor, Tensor]],
    positions: Tensor,
    column: Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    ended: Tensor | None = None,
    busy: int | None = None,
) -> Tensor:
    """Attention of queries (rows, heads, 1, features); also writes the new keys and values to `column` of the own store.
    The result of rows that have `ended` is of no use.

    `levels` are at most two, each with its keys and values. `busy` is the number of programs that keep the device busy:
    ranges of columns are divided until there are as many. It depends on nothing that changes while a graph is replayed.
    """
    rows, heads, _, features = query.shape
    key_heads, columns = own[0].shape[1:3]
    group = triton.next_power_of_2(heads // key_heads)
    busy = busy or _busy(query.device)
    block = min(64, READ // features)
    splits, programs = [_splits(rows * key_heads, columns, busy)], [rows * key_heads]
    shared: list[Any] = []
    for level, keys, values in levels:
        owners, members = level.tiles(max(TILE // group, 1))
        shared += [keys, values, keys.shape[2], owners, members, level.length_tensor, level.start_tensor]
        programs.append(len(owners) * key_heads)
        splits.append(_splits(programs[-1], keys.shape[2], busy))
    for _ in range(2 - len(levels)):
        shared += [*own, columns, *[column] * 4]
        programs.append(0)
        splits.append(0)
    parts = sum(splits)
    sums = query.new_empty((rows, heads, parts, features), dtype=torch.float32)
    peaks = query.new_empty((rows, heads, parts), dtype=torch.float32)
    out = torch.empty((rows, heads, 1, features), dtype=query.dtype, device=query.device)
    _attend_parts[(sum(each * split for each, split in zip(programs, splits, strict=True)),)](
        query, *query.stride()[:2], key, *key.stride()[:2], value, *value.stride()[:2],
        sums, peaks, *own, columns, column, positions, column if ended is None else ended, *shared, *programs[1:], *splits,
        scale, softcap or 1.0, window or UNBOUNDED, key_heads,
        heads // key_heads, group, max(16, group), max(TILE, group), features, block, len(levels), softcap is not None,
        ended is not None,
        num_warps=4, num_stages=3 if features <= 128 else 2,
    )  # fmt: skip
    # Few sizes, so that the second kernel is compiled few times.
    padded = max(4, triton.next_power_of_2(parts))
    together = max(1, MERGED // padded)
    _merge_parts[(triton.cdiv(rows * heads, together),)](
        sums, peaks, out, rows * heads, parts, together, padded, features, num_warps=4
    )
    return out


def _busy(device: torch.device) -> int:
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count


def _splits(programs: int, columns: int, busy: int) -> int:
    """Into how many ranges the columns are divided."""
    return max(1, min(triton.cdiv(busy, programs), columns // FEWEST, MOST))


@triton.jit(do_not_specialize=[
    "own_columns", "columns_1", "columns_2", "programs_1", "programs_2", "own_splits", "splits_1", "splits_2", "window",
])  # fmt: skip
def _attend_parts(
    query, query_row, query_head, key, key_row, key_head, value, value_row, value_head,
    sums, peaks, own_keys, own_values, own_columns, column, positions, ended,
    keys_1, values_1, columns_1, owners_1, members_1, lengths_1, starts_1,
    keys_2, values_2, columns_2, owners_2, members_2, lengths_2, starts_2,
    programs_1, programs_2, own_splits, splits_1, splits_2,
    scale, softcap, window, key_heads,
    GROUP: tl.constexpr, PADDED_GROUP: tl.constexpr, OWN_TILE: tl.constexpr, TILE: tl.constexpr, FEATURES: tl.constexpr,
    BLOCK: tl.constexpr, LEVELS: tl.constexpr, CAPPED: tl.constexpr, SKIPPING: tl.constexpr,
):  # fmt: skip
    """Programs of the levels first, which take longest, then those of the own columns."""
    program = tl.program_id(0)
    parts = own_splits + splits_1 + splits_2
    first = programs_1 * splits_1
    second = first + programs_2 * splits_2
    if program >= second:
        _attend_own(
            query, query_row, query_head, key, key_row, key_head, value, value_row, value_head,
            sums, peaks, own_keys, own_values, own_columns, column, ended,
            (program - second) // own_splits, (program - second) % own_splits, own_splits, parts,
            scale, softcap, window, key_heads,
            GROUP, OWN_TILE, FEATURES, BLOCK, CAPPED, SKIPPING,
        )  # fmt: skip
    else:
        if LEVELS > 0:  # noqa: SIM102 - decided when compiling
            if program < first:
                _attend_level(
                    query, query_row, query_head, sums, peaks, positions, ended,
                    keys_1, values_1, columns_1, owners_1, members_1, lengths_1, starts_1,
                    program // splits_1, program % splits_1, splits_1, own_splits, parts,
                    scale, softcap, window, key_heads, GROUP, PADDED_GROUP, TILE, FEATURES, BLOCK, CAPPED, SKIPPING,
                )  # fmt: skip
        if LEVELS > 1:  # noqa: SIM102
            if program >= first:
                _attend_level(
                    query, query_row, query_head, sums, peaks, positions, ended,
                    keys_2, values_2, columns_2, owners_2, members_2, lengths_2, starts_2,
                    (program - first) // splits_2, (program - first) % splits_2, splits_2, own_splits + splits_1, parts,
                    scale, softcap, window, key_heads, GROUP, PADDED_GROUP, TILE, FEATURES, BLOCK, CAPPED, SKIPPING,
                )  # fmt: skip


@triton.jit
def _attend_own(
    query, query_row, query_head, key, key_row, key_head, value, value_row, value_head,
    sums, peaks, keys, values, columns, column, ended,
    work, split, splits, parts, scale, softcap, window, key_heads,
    GROUP: tl.constexpr, TILE: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr, CAPPED: tl.constexpr,
    SKIPPING: tl.constexpr,
):  # fmt: skip
    """A range of a row's own columns; the first range has the new token too, and writes it to the store."""
    row, head = (work // key_heads).to(tl.int64), work % key_heads
    member = tl.arange(0, TILE)
    present = member < GROUP
    features = tl.arange(0, FEATURES)
    width = tl.load(column).to(tl.int32)
    base = work.to(tl.int64) * columns * FEATURES
    heads = head * GROUP + member
    queries = _queries(query, row * query_row + heads * query_head, present, features, keys.dtype.element_ty)
    new_key = tl.load(key + row * key_row + head * key_head + features).to(keys.dtype.element_ty)
    new_value = tl.load(value + row * value_row + head * value_head + features).to(values.dtype.element_ty)
    if split == 0:
        tl.store(keys + base + width.to(tl.int64) * FEATURES + features, new_key)
        tl.store(values + base + width.to(tl.int64) * FEATURES + features, new_value)
    score = tl.sum(queries.to(tl.float32) * new_key.to(tl.float32)[None, :], 1)
    peak = tl.where(split == 0, _scaled(score, scale, softcap, CAPPED), HIDDEN)
    total = tl.where(split == 0, tl.full((TILE,), 1.0, tl.float32), 0.0)
    weighted = tl.where(split == 0, tl.zeros((TILE, FEATURES), tl.float32) + new_value.to(tl.float32)[None, :], 0.0)
    oldest = tl.maximum(width + 1 - window, 0)
    last = width
    if SKIPPING:
        last = tl.where(tl.load(ended + row), 0, width)
    begin, end = _range(oldest, last, split, splits, BLOCK)
    weighted, peak, total = _attend_columns(
        queries, keys + base, values + base, begin, end, tl.zeros((TILE,), tl.int32) + oldest, weighted, peak, total,
        scale, softcap, FEATURES, BLOCK, CAPPED,
    )  # fmt: skip
    place = (row * key_heads * GROUP + heads) * parts + split
    _keep_part(sums, peaks, place, present, features, weighted, peak, total, FEATURES)


@triton.jit
def _attend_level(
    query, query_row, query_head, sums, peaks, positions, ended,
    keys, values, columns, owners, members, lengths, starts,
    work, split, splits, part, parts, scale, softcap, window, key_heads,
    GROUP: tl.constexpr, PADDED_GROUP: tl.constexpr, TILE: tl.constexpr, FEATURES: tl.constexpr,
    BLOCK: tl.constexpr, CAPPED: tl.constexpr, SKIPPING: tl.constexpr,
):  # fmt: skip
    """A range of a text's columns, for some of the rows under it."""
    tile, head = work // key_heads, work % key_heads
    place = tl.arange(0, TILE)
    rows = tl.load(members + tile * (TILE // PADDED_GROUP) + place // PADDED_GROUP)
    present = (rows >= 0) & (place % PADDED_GROUP < GROUP)
    rows = tl.maximum(rows, 0)
    heads = head * GROUP + place % PADDED_GROUP
    features = tl.arange(0, FEATURES)
    owner = tl.load(owners + tile)
    base = (owner * key_heads + head) * columns * FEATURES
    queries = _queries(query, rows * query_row + heads * query_head, present, features, keys.dtype.element_ty)
    # The first column within the window, for each query.
    position = tl.load(positions + rows, mask=present, other=0)
    oldest = (position - tl.load(starts + owner)).to(tl.int32) + 1 - window
    earliest = tl.maximum(tl.min(tl.where(present, oldest, 2**30)), 0)
    last = tl.load(lengths + owner).to(tl.int32)
    if SKIPPING:
        active = present & (tl.load(ended + rows) == 0)
        last = tl.where(tl.max(active.to(tl.int32), 0) > 0, last, 0)
    begin, end = _range(earliest, last, split, splits, BLOCK)
    weighted, peak, total = _attend_columns(
        queries, keys + base, values + base, begin, end, oldest,
        tl.zeros((TILE, FEATURES), tl.float32), tl.full((TILE,), HIDDEN, tl.float32), tl.zeros((TILE,), tl.float32),
        scale, softcap, FEATURES, BLOCK, CAPPED,
    )  # fmt: skip
    kept = (rows * key_heads * GROUP + heads) * parts + part + split
    _keep_part(sums, peaks, kept, present, features, weighted, peak, total, FEATURES)


@triton.jit
def _queries(query, offsets, present, features, dtype: tl.constexpr):
    return tl.load(query + offsets[:, None] + features[None, :], mask=present[:, None], other=0.0).to(dtype)


@triton.jit
def _range(first, last, split, splits, BLOCK: tl.constexpr):
    """The columns of one of several ranges: whole blocks, as many in each."""
    size = tl.cdiv(tl.cdiv(tl.maximum(last - first, 0), splits), BLOCK) * BLOCK
    begin = first + split * size
    return begin, tl.minimum(begin + size, last)


@triton.jit
def _scaled(scores, scale, softcap, CAPPED: tl.constexpr):
    """Scores as exponents of two."""
    scores = scores * scale
    if CAPPED:
        scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
    return scores * LOG2E


@triton.jit
def _attend_columns(
    queries, keys, values, begin, end, oldest, weighted, peak, total, scale, softcap,
    FEATURES: tl.constexpr, BLOCK: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """Continues an online softmax. A block that a query does not see adds weights relative to a peak of `HIDDEN`; the first
    score that it does see, here or in another part, makes them zero."""
    columns, features = tl.arange(0, BLOCK), tl.arange(0, FEATURES)
    for start in range(begin, end, BLOCK):
        place = start + columns
        inside = place < end
        offsets = place[:, None] * FEATURES + features[None, :]
        block = tl.load(keys + offsets, mask=inside[:, None], other=0.0)
        scores = _scaled(tl.dot(queries, tl.trans(block)), scale, softcap, CAPPED)
        scores = tl.where(inside[None, :] & (place[None, :] >= oldest[:, None]), scores, HIDDEN)
        top = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - top[:, None])
        faded = tl.exp2(peak - top)
        block = tl.load(values + offsets, mask=inside[:, None], other=0.0)
        weighted = tl.dot(weights.to(block.dtype), block, weighted * faded[:, None])
        total = total * faded + tl.sum(weights, 1)
        peak = top
    return weighted, peak, total


@triton.jit
def _keep_part(sums, peaks, place, present, features, weighted, peak, total, FEATURES: tl.constexpr):
    """Stores the mean of the values and the logarithm of the weights' sum; a part without columns has none."""
    some = tl.where(total > 0, total, 1.0)
    tl.store(peaks + place, tl.where(total > 0, peak + tl.log2(some), HIDDEN), mask=present)
    offsets = place.to(tl.int64)[:, None] * FEATURES + features[None, :]
    tl.store(sums + offsets, weighted / some[:, None], mask=present[:, None])


@triton.jit(do_not_specialize=["queries", "parts"])
def _merge_parts(
    sums, peaks, out, queries, parts, TOGETHER: tl.constexpr, PADDED: tl.constexpr, FEATURES: tl.constexpr
):
    """Some queries of all rows and heads; the parts come first, so that one thread has those of a query and a feature."""
    query = tl.program_id(0).to(tl.int64) * TOGETHER + tl.arange(0, TOGETHER)
    part, features = tl.arange(0, PADDED), tl.arange(0, FEATURES)
    place = query[None, :] * parts + part[:, None]
    inside = (query < queries)[None, :] & (part < parts)[:, None]
    peak = tl.load(peaks + place, mask=inside, other=HIDDEN)
    weights = tl.exp2(peak - tl.max(peak, 0)[None, :])
    offsets = place[:, :, None] * FEATURES + features[None, None, :]
    means = tl.load(sums + offsets, mask=inside[:, :, None], other=0.0)
    merged = tl.sum(means * weights[:, :, None], 0) / tl.sum(weights, 0)[:, None]
    kept = query[:, None] * FEATURES + features[None, :]
    tl.store(out + kept, merged.to(out.dtype.element_ty), mask=(query < queries)[:, None])
