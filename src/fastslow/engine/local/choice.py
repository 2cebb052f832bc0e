"""Which sampler `sampling.backend=auto` takes, and why.

Measured on one H200 (docs/scale.md). With 8 billion weights our sampler is as fast as vLLM if it has kernels for the model,
and it needs neither a second copy of the weights nor the time to start vLLM. With kernels for attention alone a decoding step
takes 1.7 times vLLM's, without any 2.4 times. With 0.5 to 1.5 billion weights and answers of 64 to 256 tokens, ours was as
fast without kernels too. The limits below lie between the two.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from fastslow.recipe import ModelRecipe, SamplingRecipe

LARGE, LONG = 3 * 10**9, 512
"""vLLM pays from this many weights and this `sampling.max_tokens` on, where our sampler has no kernels for the model."""
FILLED = 0.8
"""The most of vLLM's share of the card that the weights, 2 bytes each, may take; the rest holds keys and values."""


@dataclass(frozen=True)
class Choice:
    backend: Literal["transformers", "vllm"]
    why: str


def vllm_installed() -> bool:
    return "vllm" in sys.modules or find_spec("vllm") is not None


def own_kernels(recipe: ModelRecipe, device: str, model: Any) -> bool:
    """Whether all of a decoding step of our sampler has kernels for this model, and one process has all weights."""
    from fastslow.models.kernels import why_no_kernels
    from fastslow.models.memory import Shape
    from fastslow.prefix.level_attention import kernels_for

    sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    if why_no_kernels(device, model) or recipe.precision == "fp32" or sharded:
        return False
    shape = Shape.of(model.config)
    return shape is not None and kernels_for(shape.head_size)


def choose(sampling: SamplingRecipe, weights: int | None, card: int | None, kernels: bool = False) -> Choice:
    """What `auto` takes for a number of weights (None: unknown) and the bytes of the CUDA GPU (None: there is none), with or
    without `own_kernels`."""
    if sampling.ahead:
        why = f"sampling.ahead={sampling.ahead:g} stops answers and continues them, which vLLM does not"
    elif not vllm_installed():
        why = "the package vllm is not installed"
    elif card is None:
        why = "no CUDA GPU is used"
    elif weights is None:
        why = "the size of the model is unknown"
    elif weights < LARGE:
        why = f"the model has {weights / 1e9:.1f} billion weights; vLLM pays from {LARGE / 1e9:g} billion on"
    elif sampling.max_tokens < LONG:
        why = f"sampling.max_tokens={sampling.max_tokens}; vLLM pays from {LONG} on"
    elif kernels:
        why = "as fast as vLLM for this model, and needs no second copy of the weights"
    elif 2 * weights > FILLED * (room := card / 2):  # the trainer has the weights too
        size = f"{2 * weights / 2**30:.0f} GiB"
        why = f"the weights, {size}, do not fit {room / 2**30:.0f} GiB of the card with keys and values"
    else:
        why = f"{weights / 1e9:.1f} billion weights and answers of up to {sampling.max_tokens} tokens"
        return Choice("vllm", why)
    return Choice("transformers", why)
