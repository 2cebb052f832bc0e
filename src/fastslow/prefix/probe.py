"""Whether a model can be trained over a tree, and whether it can be sampled with shared prefixes.

The config rules some models out. All others are tried on a few random prompts and compared with plain forward passes, because
a model that ignores a mask or its positions raises no error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel
from transformers.integrations.fsdp import is_fsdp_managed_module

from fastslow.base.errors import ModelError
from fastslow.prefix import tree_attention
from fastslow.prefix.level_attention import implementation_of, without_adapter
from fastslow.prefix.sampling import SharedSampler
from fastslow.prefix.tree_attention import completion_logprobs, layer_windows
from fastslow.records import Sampling

TRAINED, GRADIENT, SAMPLED = (1e-4, 0.15), (1e-3, 0.3), (0.01, 0.2)
"""Largest accepted differences from the plain passes, in fp32 and in half precision: of log-probabilities on average, and of
a gradient relative to its norm. A model that attends to other branches of the tree differs by far more."""
ROUNDING = 2
"""A gradient may differ by this many times what rounding alone changes, which in bf16 is much in a deep trained model."""


def why_not_train(model: Any) -> str | None:
    """Why `completion_logprobs` does not support the model, as a clause to follow "because"; None if it does."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    base = without_adapter(getattr(model, "module", model))
    implementation = implementation_of(base.config.get_text_config(decoder=True))
    if not base.config.is_encoder_decoder and implementation != tree_attention.IMPLEMENTATION:
        return (
            f"{type(base).__name__} uses the attention implementation '{implementation}', and only "
            f"'{tree_attention.IMPLEMENTATION}' supports tree masks"
        )
    return _why_not(model, base, _training_difference)


def why_not_sample(model: PreTrainedModel) -> str | None:
    """Why `SharedSampler` does not support the model, as a clause to follow "because"; None if it does."""
    base = without_adapter(model)
    if is_fsdp_managed_module(model):
        return "the model's weights are sharded, so all processes would have to decode the same number of steps"
    if not base.config.is_encoder_decoder and not base._supports_attention_backend:
        return f"the attention of {type(base).__name__} cannot be replaced"
    return _why_not(base, base, _sampling_difference)


def _why_not(model: Any, base: PreTrainedModel, difference: Callable[[Any, int], str | None]) -> str | None:
    """What both questions share: the checks of the config, and the trial in evaluation mode with its errors."""
    name = type(base).__name__
    if base.config.is_encoder_decoder:
        return f"{name} is an encoder-decoder model"
    training = model.training
    model.eval()
    try:
        layer_windows(base.config)
        found = difference(model, base.config.get_text_config(decoder=True).vocab_size)
    except ModelError as error:  # of this package
        return str(error)
    except Exception as error:  # of the model's own code, or of a compiler
        lines = str(error).strip().splitlines()
        return f"{name} fails with shared prefixes ({': '.join([type(error).__name__, *lines[:1]])})"
    finally:
        model.train(training)
    return f"{name} computes different {found}" if found else None


def _training_difference(model: Any, vocabulary: int) -> str | None:
    """Scores a few short rows, together longer than one block, over a tree and one by one."""
    context, first, second, *answers = _random_texts(vocabulary, 140, 5, 3, 4, 6, 1)
    prompts = [context + first, context + first, context + second, context + first + answers[0] + second, second]
    completions = [answers[0], answers[1], answers[1], answers[2], answers[0]]
    trained = _first_trained(model)
    with torch.set_grad_enabled(trained is not None):
        logprobs = completion_logprobs(model, prompts, completions)[0]
        shared = torch.cat([row[: len(completion)] for row, completion in zip(logprobs, completions, strict=True)])
        plain = _plain(model, prompts, completions, fused=True)
        if found := _logprob_difference(model, shared, plain, TRAINED):
            return found
        if trained is None:
            return None

        def gradient(values: Tensor) -> Tensor:
            # All of one sign: what the tokens' gradients have in common then remains, and rounding is smaller beside it.
            weights = torch.linspace(0.5, 1.5, len(values), device=values.device)
            return torch.autograd.grad((values * weights).sum(), trained)[0]

        expected = gradient(plain)

        def gap(found: Tensor) -> float:
            return ((gradient(found) - expected).norm() / expected.norm().clamp(min=1e-6)).item()

        difference = gap(shared)
        if difference <= _tolerance(model, GRADIENT):
            return None
        # Tokens after the completions change nothing but the shapes of the matrices, and with them the rounding.
        rounding = gap(_plain(model, prompts, completions, fused=True, after=context[:29]))
    if difference <= ROUNDING * rounding:
        return None
    return f"gradients with shared prefixes (relative difference {difference:.2g}, by rounding {rounding:.2g})"


@torch.no_grad()
def _sampling_difference(model: PreTrainedModel, vocabulary: int) -> str | None:
    """Samples a few tokens and compares their recorded log-probabilities with those of plain passes over the same tokens."""
    context, first, second = _random_texts(vocabulary, 9, 4, 4)
    prompts = [context + first, context + second] * 2
    drawn = SharedSampler(model, (), Sampling(1.0, 1.0, 4)).sample(prompts, 0, len(prompts))
    plain = _plain(model, prompts, [completion.ids for completion in drawn], fused=False).cpu()
    shared = torch.tensor([logprob for completion in drawn for logprob in completion.logprobs])
    return _logprob_difference(model, shared, plain, SAMPLED)


def _random_texts(vocabulary: int, *lengths: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randint(vocabulary, (length,), generator=draw).tolist() for length in lengths]


def _plain(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    fused: bool,
    after: Sequence[int] = (),
) -> Tensor:
    """Log-probabilities of all completion tokens, from one pass per row without a mask.

    `fused` takes them from TRL's head, which applies the trainer's temperature. `after` are tokens that follow each row.
    """
    found = []
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = torch.tensor([[*prompt, *completion, *after]], device=next(model.parameters()).device)
        if fused:
            labels = ids.clone()
            labels[:, : len(prompt)] = -100
            logprobs = model(input_ids=ids, labels=labels, fused_lm_head=True).log_probs[0]
            found.append(logprobs[len(prompt) - 1 : len(prompt) - 1 + len(completion)])
        else:
            logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
            found.append(logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0])
    return torch.cat(found)


def _logprob_difference(model: Any, shared: Tensor, plain: Tensor, tolerance: tuple[float, float]) -> str | None:
    gap = (shared - plain).abs().mean().item()
    if not gap <= _tolerance(model, tolerance):  # NaN is a difference too
        return f"log-probabilities with shared prefixes (mean difference {gap:.2g})"
    return None


def _tolerance(model: Any, tolerance: tuple[float, float]) -> float:
    fp32, half = tolerance
    weight = next(model.parameters())
    return half if torch.is_autocast_enabled(weight.device.type) or weight.dtype != torch.float32 else fp32


def _first_trained(model: Any) -> torch.nn.Parameter | None:
    """A parameter whose gradient passes through every layer; None where weights are sharded over processes."""
    if hasattr(model, "module") or any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return None
    embedding = model.get_input_embeddings().weight
    return next((p for p in model.parameters() if p.requires_grad and p is not embedding), None)
