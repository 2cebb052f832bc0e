"""Sampling with transformers' `generate`, for models without support for shared prefixes; it returns the log-probability of
every sampled token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from fastslow.errors import Diverged
from fastslow.prefix.sampling import NO_PROBABILITIES
from fastslow.records import Completion, Sampling


def generation_settings(sampling: Sampling, pad_id: int, eos_ids: Sequence[int]) -> dict[str, Any]:
    """Sampling without top-k; the default of transformers is top_k=50."""
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
    """Records log-probabilities. A token is known only at the next step, so one step is pending."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.columns: list[torch.Tensor] = []
        self.pending: torch.Tensor | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        self.record(input_ids[:, -1])
        if scores.isnan().any():
            raise Diverged(NO_PROBABILITIES)
        # Runs before temperature and top_p; the trainer's log-probabilities include temperature but not top_p.
        self.pending = torch.log_softmax(scores.float() / self.temperature, dim=-1)
        return scores

    def record(self, tokens: torch.Tensor) -> None:
        if self.pending is not None:
            self.columns.append(self.pending.gather(1, tokens[:, None])[:, 0])
            self.pending = None


@contextmanager
def _plain(model: PreTrainedModel) -> Iterator[None]:
    """Replaces the model's generation config in this block: `generate` takes settings from it that the caller leaves out."""
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
    """One completion per prompt, in order; prompts are batched by length to save padding."""
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
            recorder.record(sequences[:, -1])
            drawn = sequences[:, width:].tolist()
            logprobs = torch.stack(recorder.columns, dim=1).tolist()
            for row, index in enumerate(chosen):
                completions[index] = _until_end(drawn[row], logprobs[row], eos_ids)
    return [completions[index] for index in range(len(prompts))]


def _until_end(ids: list[int], logprobs: list[float], eos_ids: Sequence[int]) -> Completion:
    end = next((position + 1 for position, token in enumerate(ids) if token in eos_ids), len(ids))
    return Completion(tuple(ids[:end]), tuple(logprobs[:end]))
