"""Merge an adapter into the base weights while sampling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer


@contextmanager
def merged(model: torch.nn.Module) -> Iterator[None]:
    """Merges a model's adapter in this block and then restores the weights bit for bit; needs memory for a copy of them.
    An unmerged adapter costs several extra small kernels per layer and token.

    Does nothing if an adapted layer shares its weights with the embedding, which must stay unchanged."""
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    weights = [layer.get_base_layer().weight.data for layer in layers]
    if not isinstance(model, PeftModel) or any(weight.data_ptr() == _embedding(model) for weight in weights):
        yield
        return
    kept = [weight.clone() for weight in weights]
    try:
        model.merge_adapter()
        yield
    finally:
        for layer, weight, before in zip(layers, weights, kept, strict=True):
            weight.copy_(before)
            layer.merged_adapters.clear()


def _embedding(model: PeftModel) -> int:
    return model.get_base_model().get_input_embeddings().weight.data_ptr()
