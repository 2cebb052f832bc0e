"""Whether a model can run over a tree: by what its config says, then by trying it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from fastslow.prefix import attention
from fastslow.prefix.logprobs import completion_logprobs, layer_windows

EXACT, ROUNDED = (1e-4, 1e-3), (0.15, 0.3)
"""Largest differences in fp32 and in half precision: of log-probabilities on average, and of a gradient relative to its size.
A model that reads the other branches too is off by far more."""


def unsupported(model: Any) -> str | None:
    """Why `completion_logprobs` cannot score with this model, in words that follow its name; nothing where it can."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
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
    except Exception as error:  # whatever a model's own code, or a compiler, makes of a mask it does not know
        reason = str(error).strip().splitlines()
        return f"does not take a tree mask ({reason[0] if reason else type(error).__name__})"
    finally:
        model.train(training)


def _difference(model: Any, vocabulary: int) -> str | None:
    """Score a few short rows, of more than one block together, as a tree and one by one."""
    draw = torch.Generator().manual_seed(0)
    context, first, second, *answers = (
        torch.randint(vocabulary, (length,), generator=draw).tolist() for length in (140, 5, 3, 4, 6, 1)
    )
    prompts = [context + first, context + first, context + second, context + first + answers[0] + second, second]
    completions = [answers[0], answers[1], answers[1], answers[2], answers[0]]
    trained = _first_trained(model)
    with torch.set_grad_enabled(trained is not None):
        logprobs = completion_logprobs(model, prompts, completions)[0]
        together = torch.cat([row[: len(completion)] for row, completion in zip(logprobs, completions, strict=True)])
        alone = torch.cat([_alone(model, *row) for row in zip(prompts, completions, strict=True)])
        weights = torch.linspace(-1, 1, len(alone), device=alone.device)
        found = [
            torch.autograd.grad((values * weights).sum(), trained)[0]
            for values in (together, alone)
            if trained is not None
        ]
    half = torch.is_autocast_enabled(alone.device.type) or next(model.parameters()).dtype != torch.float32
    most, most_of_gradient = ROUNDED if half else EXACT
    off = (together - alone).abs().mean().item()
    if not off <= most:
        return f"gives other log-probabilities over a tree, by {off:.2g} on average"
    if trained is not None:
        off = ((found[0] - found[1]).norm() / found[1].norm().clamp(min=1e-6)).item()
        if not off <= most_of_gradient:
            return f"gives other gradients over a tree, by {off:.2g} of their size"
    return None


def _alone(model: Any, prompt: list[int], completion: list[int]) -> Tensor:
    """Log-probabilities of one completion, without a mask."""
    ids = torch.tensor([[*prompt, *completion]], device=next(model.parameters()).device)
    labels = ids.clone()
    labels[:, : len(prompt)] = -100
    return model(input_ids=ids, labels=labels, fused_lm_head=True).log_probs[0, len(prompt) - 1 :]


def _first_trained(model: Any) -> torch.nn.Parameter | None:
    """A weight whose gradient has come through every layer; nothing where weights are spread over processes."""
    if hasattr(model, "module") or any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return None
    embedding = model.get_input_embeddings().weight
    return next((p for p in model.parameters() if p.requires_grad and p is not embedding), None)
