"""Sampling with transformers' `generate`, for models without support for shared prefixes; it returns the log-probability of
every sampled token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from fastslow.base.errors import Diverged
from fastslow.prefix.level_attention import without_adapter
from fastslow.prefix.sampling import NO_PROBABILITIES
from fastslow.records import Completion, Enough, Sampling


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
    base = without_adapter(model)
    own, base.generation_config = base.generation_config, GenerationConfig()
    try:
        yield
    finally:
        base.generation_config = own


class _Limits(StoppingCriteria):
    """Ends rows at limits of their own, and all rows when `enough` says so."""

    def __init__(
        self,
        rows: Sequence[int],
        limits: Sequence[int],
        eos_ids: Sequence[int],
        enough: Enough | None,
        later: Sequence[int],
    ) -> None:
        """`later` are rows of later batches."""
        self.rows, self.limits, self.eos_ids = rows, limits, list(eos_ids)
        self.enough, self.later = enough, later
        self.drawn, self.open = 0, list(rows)
        self.stopped = False

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **_: Any) -> Any:
        self.drawn += 1
        ends = torch.isin(input_ids[:, -self.drawn :], torch.tensor(self.eos_ids, device=input_ids.device)).any(1)
        ended = ends | (torch.tensor(self.limits, device=input_ids.device) <= self.drawn)
        left = [row for row, end in zip(self.rows, ended.tolist(), strict=True) if not end]
        if self.enough and len(left) < len(self.open):
            self.stopped = self.enough([*left, *self.later])
        self.open = left
        return torch.ones_like(ended) if self.stopped else ended


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    pad_id: int,
    eos_ids: Sequence[int],
    *,
    batch: int,
    limits: Sequence[int] | None = None,
    enough: Enough | None = None,
) -> list[Completion]:
    """One completion per prompt, in order. It stops as soon as `enough` says so, and batches then keep the given order;
    otherwise prompts are batched by length to save padding."""
    order = list(range(len(prompts)))
    if enough is None:
        order.sort(key=lambda index: len(prompts[index]))
    completions = [Completion((), (), ended=False)] * len(prompts)
    with _plain(model):
        for start in range(0, len(order), batch):
            chosen, later = order[start : start + batch], order[start + batch :]
            most = [limits[index] if limits else sampling.max_tokens for index in chosen]
            until = _Limits(chosen, most, eos_ids, enough, later) if limits or enough else None
            rows = [prompts[index] for index in chosen]
            drawn = _generated(model, rows, sampling, pad_id, eos_ids, [until] if until else [])
            for index, limit, (ids, logprobs) in zip(chosen, most, drawn, strict=True):
                end = next((place + 1 for place, token in enumerate(ids[:limit]) if token in eos_ids), limit)
                ended = until is None or index not in until.open
                completions[index] = Completion(tuple(ids[:end]), tuple(logprobs[:end]), ended=ended)
            if until and until.stopped:
                break
    return completions


def _generated(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    pad_id: int,
    eos_ids: Sequence[int],
    criteria: Sequence[StoppingCriteria],
) -> list[tuple[list[int], list[float]]]:
    """The tokens of one batch and their log-probabilities, with what follows an end token."""
    config = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=0,  # the default of transformers is 50
        max_new_tokens=sampling.max_tokens,
        pad_token_id=pad_id,
        eos_token_id=list(eos_ids),
        disable_compile=True,
    )
    rows = [torch.as_tensor(prompt) for prompt in prompts]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad_id, padding_side="left")
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side="left")
    recorder = _Recorder(sampling.temperature)
    sequences = model.generate(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        generation_config=config,
        logits_processor=LogitsProcessorList([recorder]),
        stopping_criteria=StoppingCriteriaList(criteria),
    )
    recorder.record(sequences[:, -1])
    return list(zip(sequences[:, ids.shape[1] :].tolist(), torch.stack(recorder.columns, dim=1).tolist(), strict=True))
