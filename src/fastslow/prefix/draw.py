"""Drawing tokens, each from one uniform number, so that what a row draws does not depend on the other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fastslow.records import Sampling


def uniforms(seed: int, rows: Sequence[int], count: int) -> Tensor:
    """`count` numbers in [0, 1) for each row, which depend only on the seed and the row's number."""
    return torch.from_numpy(
        np.stack([np.random.Generator(np.random.Philox(key=[seed, row])).random(count) for row in rows])
    )


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """A token for every row, and its log-probability as the trainer computes it: with the temperature, without top-p."""
    logits = logits.float()
    if sampling.temperature != 1:  # of rows × vocabulary, and most runs sample at 1
        logits = logits / sampling.temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    probabilities = logprobs.exp()
    if sampling.top_p < 1:
        probabilities = _nucleus(probabilities, sampling.top_p)
    # The first token at which the cumulative sum exceeds the uniform number; in fp64, because vocabularies are large.
    sums = probabilities.double().cumsum(-1)
    token = torch.searchsorted(sums, (uniform * sums[:, -1])[:, None], right=True).clamp_(max=logits.shape[-1] - 1)
    return token[:, 0], logprobs.gather(1, token)[:, 0]


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Sets tokens outside the nucleus to 0: the smallest set of likely tokens that reaches `top_p`, as in transformers."""
    rising, order = probabilities.sort(dim=-1)
    dropped = rising.cumsum(-1) <= 1 - top_p
    dropped[:, -1] = False
    return probabilities.masked_fill(torch.zeros_like(dropped).scatter_(1, order, dropped), 0.0)
