"""Rotary positions of queries and keys as one Triton kernel. Importing this module needs Triton.

The first half of a head's features is turned against the second; the backward pass turns back by the same angles.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def rotated(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys (batch, heads, tokens, features) turned by angles whose cosines and sines are (batch or 1, tokens,
    features), equal in both halves. Computed in fp32 and rounded once; dtypes stay."""
    return _Rotation.apply(query, key, cos, sin)


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        return _turn(query, key, cos, sin, 1.0)

    @staticmethod
    def backward(ctx: Any, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return *_turn(query, key, cos, sin, -1.0), None, None


def _turn(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, sign: float) -> tuple[Tensor, Tensor]:
    query, key, cos, sin = (each if each.stride(-1) == 1 else each.contiguous() for each in (query, key, cos, sin))
    batch, heads, tokens, features = query.shape
    key_heads = key.shape[1]
    # In the layout of the projections: attention then gets what it would have got.
    turned = [each.new_empty((batch, tokens, each.shape[1], features)).transpose(1, 2) for each in (query, key)]
    cos, sin = cos.expand(batch, -1, -1), sin.expand(batch, -1, -1)
    _turn_heads[(batch * tokens,)](
        query, *query.stride()[:3], turned[0], *turned[0].stride()[:3],
        key, *key.stride()[:3], turned[1], *turned[1].stride()[:3],
        cos, *cos.stride()[:2], sin, *sin.stride()[:2], tokens, sign,
        heads, triton.next_power_of_2(heads), key_heads, triton.next_power_of_2(key_heads),
        features // 2, triton.next_power_of_2(features // 2), num_warps=4,
    )  # fmt: skip
    return turned[0], turned[1]


@triton.jit(do_not_specialize=["tokens", "sign"])
def _turn_heads(
    query, query_batch, query_head, query_token, new_query, new_query_batch, new_query_head, new_query_token,
    key, key_batch, key_head, key_token, new_key, new_key_batch, new_key_head, new_key_token,
    cos, cos_batch, cos_token, sin, sin_batch, sin_token, tokens, sign,
    HEADS: tl.constexpr, PADDED_HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, PADDED_KEY_HEADS: tl.constexpr,
    HALF: tl.constexpr, PADDED_HALF: tl.constexpr,
):  # fmt: skip
    """One program for all heads of a token."""
    program = tl.program_id(0).to(tl.int64)
    row, token = program // tokens, program % tokens
    feature = tl.arange(0, PADDED_HALF)
    inside = feature < HALF
    cosine = tl.load(cos + row * cos_batch + token * cos_token + feature, mask=inside, other=0.0).to(tl.float32)
    sine = tl.load(sin + row * sin_batch + token * sin_token + feature, mask=inside, other=0.0).to(tl.float32) * sign
    _turn_some(
        query + row * query_batch + token * query_token, query_head,
        new_query + row * new_query_batch + token * new_query_token, new_query_head,
        cosine, sine, HEADS, PADDED_HEADS, HALF, PADDED_HALF,
    )  # fmt: skip
    _turn_some(
        key + row * key_batch + token * key_token, key_head,
        new_key + row * new_key_batch + token * new_key_token, new_key_head,
        cosine, sine, KEY_HEADS, PADDED_KEY_HEADS, HALF, PADDED_HALF,
    )  # fmt: skip


@triton.jit
def _turn_some(
    states, state_head, turned, turned_head, cosine, sine,
    HEADS: tl.constexpr, PADDED_HEADS: tl.constexpr, HALF: tl.constexpr, PADDED_HALF: tl.constexpr,
):  # fmt: skip
    head, feature = tl.arange(0, PADDED_HEADS)[:, None], tl.arange(0, PADDED_HALF)[None, :]
    inside = (head < HEADS) & (feature < HALF)
    states += head * state_head + feature
    turned += head * turned_head + feature
    first = tl.load(states, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(states + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(turned, (first * cosine[None, :] - second * sine[None, :]).to(turned.dtype.element_ty), mask=inside)
    tl.store(turned + HALF, (second * cosine[None, :] + first * sine[None, :]).to(turned.dtype.element_ty), mask=inside)
