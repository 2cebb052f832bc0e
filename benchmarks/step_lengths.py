"""Answers that end at random: each one's length is drawn before the step, from a seed, and is the same in every system.

fastslow, own sampler    the row's uniform number at its last place is 2, which draws the end token there and nowhere else
vLLM, in both            `max_tokens` of each prompt, end tokens ignored
TRL, transformers        a logits processor that leaves nothing but the end token at the last place, and never before
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from fastslow.prefix import sampling as own_sampler
from fastslow.prefix.sampling import draw, uniforms
from fastslow.records import Sampling

FORCED = 2.0


def draw_lengths(count: int, mean: int | None, limit: int, seed: int) -> list[int]:
    """Geometric lengths, cut at the limit, whose mean is then `mean`; without one, all have the limit."""
    if mean is None or mean >= limit:
        return [limit] * count
    low, high = 1e-9, 1.0
    for _ in range(100):  # the mean of the cut lengths, (1 − (1 − p)^limit) / p, falls with p
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - (1 - middle) ** limit) / middle > mean else (low, middle)
    return np.minimum(np.random.default_rng(seed).geometric(low, count), limit).tolist()


def force_own(lengths: Sequence[Sequence[int]] | Mapping[int, Sequence[int]], end: int) -> None:
    """In fastslow's own sampler, whose seed is the number of the step."""

    def forced_uniforms(seed: int, rows: Sequence[int], count: int) -> Tensor:
        numbers = uniforms(seed, rows, count)
        for place, row in enumerate(rows):
            if lengths[seed][row] < count:
                numbers[place, lengths[seed][row] - 1] = FORCED
        return numbers

    def forced_draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
        token, logprob = draw(logits, sampling, uniform.clamp(max=1 - 1e-9))
        drawn = torch.where(token == end, token - 1, token)
        return torch.where(uniform == FORCED, end, drawn), logprob

    own_sampler.uniforms, own_sampler.draw = forced_uniforms, forced_draw


def release_own() -> None:
    own_sampler.uniforms, own_sampler.draw = uniforms, draw


def force_vllm(engine: Any, lengths: Sequence[Sequence[int]]) -> None:
    """In vLLM, called once a step through TRL."""
    own, steps = engine.generate, iter(lengths)

    def generate(prompts: Sequence[Any], sampling_params: Any, **named: Any) -> Any:
        each = []
        for length in next(steps):
            each.append(sampling_params.clone())
            each[-1].max_tokens, each[-1].ignore_eos = length, True
        return own(prompts, sampling_params=each, **named)

    engine.generate = generate


class _Ends(LogitsProcessor):
    def __init__(self, lengths: Sequence[int], end: int) -> None:
        self.lengths, self.end, self.drawn = torch.tensor(lengths), end, 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.drawn += 1
        last = (self.lengths == self.drawn).to(scores.device)
        scores = scores.clone()
        scores[:, self.end] = -torch.inf
        scores[last] = -torch.inf
        scores[last, self.end] = 0.0
        return scores


def force_transformers(model: Any, lengths: Sequence[Sequence[int]], end: int) -> None:
    """In transformers' `generate`, called once a step through TRL."""
    own, steps = model.generate, iter(lengths)

    def generate(*arguments: Any, **named: Any) -> Any:
        return own(*arguments, **named, logits_processor=LogitsProcessorList([_Ends(next(steps), end)]))

    model.generate = generate
