"""Sampling through transformers' `generate`, for models that cannot be sampled with shared prefixes: with the log-probability
each token had when it was drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from fastslow.records import Completion, Sampling


def generation_settings(sampling: Sampling, pad_id: int, eos_ids: Sequence[int]) -> dict[str, Any]:
    """Plain sampling; transformers' own defaults would cut at the 50 likeliest tokens."""
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "max_new_tokens": sampling.max_tokens,
        "pad_token_id": pad_id,
        "eos_token_id": list(eos_ids),
    }


class _Recorder(LogitsProcessor):
    """Remembers log-probabilities. A token is known only when the next one is asked for, so one step is held back."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.columns: list[torch.Tensor] = []
        self.held: torch.Tensor | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        self.settle(input_ids[:, -1])
        # Runs before the sampler's own temperature and nucleus; the trainer's probabilities have the first, not the second.
        self.held = torch.log_softmax(scores.float() / self.temperature, dim=-1)
        return scores

    def settle(self, tokens: torch.Tensor) -> None:
        if self.held is not None:
            self.columns.append(self.held.gather(1, tokens[:, None])[:, 0])
            self.held = None


@contextmanager
def _plain(model: PreTrainedModel) -> Iterator[None]:
    """Sets the model's own generation config aside: `generate` takes every setting from it that the caller left out."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    own, base.generation_config = base.generation_config, GenerationConfig()
    try:
        yield
    finally:
        base.generation_config = own


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    pad_id: int,
    eos_ids: Sequence[int],
    batch: int,
) -> list[Completion]:
    """One completion per prompt, in the prompts' order; long and short prompts are batched apart to save padding."""
    config = GenerationConfig(**generation_settings(sampling, pad_id, eos_ids), disable_compile=True)
    order = sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), index))
    completions: dict[int, Completion] = {}
    with _plain(model):
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            width = max(len(prompts[index]) for index in chosen)
            ids = torch.full((len(chosen), width), pad_id)
            mask = torch.zeros_like(ids)
            for row, index in enumerate(chosen):
                length = len(prompts[index])
                ids[row, width - length :] = torch.as_tensor(prompts[index])
                mask[row, width - length :] = 1
            recorder = _Recorder(sampling.temperature)
            sequences = model.generate(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                generation_config=config,
                logits_processor=LogitsProcessorList([recorder]),
            )
            recorder.settle(sequences[:, -1])
            drawn = sequences[:, width:].tolist()
            logprobs = torch.stack(recorder.columns, dim=1).tolist()
            for row, index in enumerate(chosen):
                completions[index] = _until_end(drawn[row], logprobs[row], eos_ids)
    return [completions[index] for index in range(len(prompts))]


def _until_end(ids: list[int], logprobs: list[float], eos_ids: Sequence[int]) -> Completion:
    end = next((position + 1 for position, token in enumerate(ids) if token in eos_ids), len(ids))
    return Completion(tuple(ids[:end]), tuple(logprobs[:end]))
