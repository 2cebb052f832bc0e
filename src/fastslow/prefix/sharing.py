"""Whether a model can be sampled with shared prefixes: looked up where it can be, and then tried, since a wrong answer shows
nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate.utils import is_deepspeed_available
from transformers import PreTrainedModel
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module

from fastslow.prefix.sampling import SharedSampler
from fastslow.records import Completion, Sampling

KNOWN_LAYERS = {"full_attention", "sliding_attention"}
TOLERANCE = {torch.float32: 0.01}
"""How far apart the mean log-probabilities may be: rounding in fp32, and below in all else."""
COARSE = 0.2
SHARED, APART = 9, 4
"""Tokens of the prompts tried: that many alike, and then that many of their own."""


def why_not(model: PreTrainedModel) -> str | None:
    """Why this model must be sampled the plain way, in words that go on from "because"; nothing when it need not."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = base.config.get_text_config()
    if is_fsdp_managed_module(model) or (is_deepspeed_available() and is_deepspeed_zero3_enabled()):
        return "its weights are spread over processes, which then must make every step together"
    if config.is_encoder_decoder or not base._supports_attention_backend:
        return f"{type(base).__name__}'s attention cannot be replaced"
    if other := sorted(set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS):
        return f"{type(base).__name__} has layers of the kind {', '.join(other)}"
    try:
        gap = _gap(base, _prompts(config.vocab_size))
    except Exception as error:  # whatever a model does otherwise shows here as whatever error
        return f"{type(base).__name__} fails with it ({type(error).__name__}: {error})"
    if not gap <= TOLERANCE.get(_precision(base), COARSE):
        return f"{type(base).__name__} then gives other probabilities (by {gap:.2g} on average)"
    return None


def _prompts(vocabulary: int) -> list[list[int]]:
    tokens = torch.randint(vocabulary, (SHARED + 2 * APART,), generator=torch.Generator().manual_seed(0)).tolist()
    return [tokens[:SHARED] + tokens[SHARED : SHARED + APART], tokens[:SHARED] + tokens[SHARED + APART :]] * 2


@torch.no_grad()
def _gap(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> float:
    """Mean difference between the log-probabilities of what was drawn and those of a plain pass over the same tokens."""
    drawn = SharedSampler(model, (), Sampling(1.0, 1.0, APART)).sample(prompts, 0, len(prompts))
    plain = [_plain(model, prompt, completion) for prompt, completion in zip(prompts, drawn, strict=True)]
    recorded = torch.tensor([completion.logprobs for completion in drawn])
    return float((torch.stack(plain).cpu() - recorded).abs().mean())


def _plain(model: PreTrainedModel, prompt: Sequence[int], completion: Completion) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *completion.ids]], device=model.device)
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]


def _precision(model: PreTrainedModel) -> torch.dtype:
    kind = model.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else model.dtype
