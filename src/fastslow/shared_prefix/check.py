"""Whether a model can run over a tree: by what its config says, then by trying it."""

from __future__ import annotations

from typing import Any

import torch

from fastslow.shared_prefix import attention
from fastslow.shared_prefix.logprobs import completion_logprobs, layer_windows

EXACT, ROUNDED = 1e-4, 0.15
"""Largest mean difference of log-probabilities in fp32 and in half precision, where those of a model that reads the other
branches too are off by far more."""


@torch.no_grad()
def unsupported(model: Any) -> str | None:
    """Why `completion_logprobs` cannot score with this model, in words that follow its name; nothing where it can."""
    config = getattr(model, "module", model).config
    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder-decoder"
    implementation = config.get_text_config(decoder=True)._attn_implementation
    if implementation != attention.IMPLEMENTATION:
        return f"attends by '{implementation}', and only '{attention.IMPLEMENTATION}' takes a tree"
    training = model.training
    model.eval()
    try:
        layer_windows(config)
        return _difference(model, config.get_text_config(decoder=True).vocab_size)
    except Exception as error:  # whatever a model's own code makes of a mask it does not know
        reason = str(error).strip().splitlines()
        return f"does not take a tree mask ({reason[0] if reason else type(error).__name__})"
    finally:
        model.train(training)


def _difference(model: Any, vocabulary: int) -> str | None:
    """Score a few short rows as a tree and one by one."""
    device = next(model.parameters()).device
    draw = torch.Generator().manual_seed(0)
    context, first, second, *answers = (
        torch.randint(vocabulary, (length,), generator=draw).tolist() for length in (12, 5, 3, 4, 6, 1)
    )
    prompts = [context + first, context + first, context + second, context + first + answers[0] + second, second]
    completions = [answers[0], answers[1], answers[1], answers[2], answers[0]]
    together = completion_logprobs(model, prompts, completions)[0]
    total, count = 0.0, 0
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        ids = torch.tensor([[*prompt, *completion]], device=device)
        labels = ids.clone()
        labels[:, : len(prompt)] = -100
        alone = model(input_ids=ids, labels=labels, fused_lm_head=True).log_probs[0, len(prompt) - 1 :]
        total += (alone - together[row, : len(completion)]).abs().sum().item()
        count += len(completion)
    half = torch.is_autocast_enabled(device.type) or next(model.parameters()).dtype != torch.float32
    if not total / count <= (ROUNDED if half else EXACT):
        return f"gives other log-probabilities over a tree, by {total / count:.2g} on average"
    return None
