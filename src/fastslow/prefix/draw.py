"""Drawing tokens, each from one uniform number, so that what a row draws does not depend on the other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fastslow.records import Sampling

BLOCK = 512
"""Tokens of the vocabulary whose probabilities are added up first."""


def uniforms(seed: int, rows: Sequence[int], count: int) -> Tensor:
    """`count` numbers in [0, 1) for each row, which depend only on the seed and the row's number."""
    return torch.from_numpy(
        np.stack([np.random.Generator(np.random.Philox(key=[seed, row])).random(count) for row in rows])
    )


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """A token for every row, and its log-probability as the trainer computes it: with the temperature, without top-p."""
    if sampling.temperature != 1:  # of rows × vocabulary, and most runs sample at 1
        logits = logits.float() / sampling.temperature
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float32)
    kept = probabilities if sampling.top_p >= 1 else _nucleus(probabilities, sampling.top_p)
    token = _first_above(kept, uniform)
    return token, probabilities.gather(1, token[:, None])[:, 0].log()


def _first_above(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The first token at which the cumulative sum exceeds this share of the whole sum, for every row.

    Sums are in fp64, because vocabularies are large: first of blocks, then within one block, so that every probability is
    read once only.
    """
    size = probabilities.shape[1]
    if size <= BLOCK:
        sums = probabilities.double().cumsum_(1)
        return _search(sums, uniform * sums[:, -1])[:, 0]
    whole = size // BLOCK * BLOCK
    blocks = probabilities[:, :whole].unflatten(1, (-1, BLOCK)).sum(-1, dtype=torch.float64)
    rest = probabilities[:, whole:].sum(-1, keepdim=True, dtype=torch.float64)
    sums = torch.cat([blocks, rest], 1).cumsum_(1)
    target = uniform * sums[:, -1]
    block = _search(sums, target)
    target -= torch.nn.functional.pad(sums, (1, 0)).gather(1, block)[:, 0]
    place = block * BLOCK + torch.arange(BLOCK, device=block.device)
    inside = probabilities.gather(1, place.clamp(max=size - 1)).double().masked_fill_(place >= size, 0.0).cumsum_(1)
    return (block * BLOCK + _search(inside, target))[:, 0].clamp_(max=size - 1)


def _search(sums: Tensor, target: Tensor) -> Tensor:
    """The first place of a sum above the target, which rounding may have moved to the last sum."""
    below = torch.minimum(target, sums[:, -1] * (1 - 1e-15))
    return torch.searchsorted(sums, below[:, None], right=True).clamp_(max=sums.shape[1] - 1)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Sets tokens outside the nucleus to 0: the smallest set of likely tokens that reaches `top_p`, as in transformers."""
    rising, order = probabilities.sort(dim=-1)
    dropped = rising.cumsum(-1) <= 1 - top_p
    dropped[:, -1] = False
    return probabilities.masked_fill(torch.zeros_like(dropped).scatter_(1, order, dropped), 0.0)
