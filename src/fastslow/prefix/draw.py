"""Drawing a token: from one number between 0 and 1 for each, so that what a row draws depends on no other row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fastslow.records import Sampling


def uniforms(seed: int, rows: Sequence[int], count: int) -> torch.Tensor:
    """For each row as many numbers as it may draw tokens; they follow from the seed and the row's own number alone."""
    return torch.from_numpy(
        np.stack([np.random.Generator(np.random.Philox(key=[seed, row])).random(count) for row in rows])
    )


def draw(logits: torch.Tensor, sampling: Sampling, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For every row a token and its log-probability, with the temperature and without the nucleus: as the trainer sees it."""
    logprobs = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    probabilities = logprobs.exp()
    if sampling.top_p < 1:
        probabilities = _nucleus(probabilities, sampling.top_p)
    # The first token at which the running sum passes the uniform number; in double, since a vocabulary is large.
    sums = probabilities.double().cumsum(-1)
    token = torch.searchsorted(sums, (uniform * sums[:, -1])[:, None], right=True).clamp_(max=logits.shape[-1] - 1)
    return token[:, 0], logprobs.gather(1, token)[:, 0]


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The fewest likeliest tokens that make up `top_p`, as transformers chooses them; the others get 0."""
    rising, order = probabilities.sort(dim=-1)
    dropped = rising.cumsum(-1) <= 1 - top_p
    dropped[:, -1] = False
    return probabilities.masked_fill(torch.zeros_like(dropped).scatter_(1, order, dropped), 0.0)
