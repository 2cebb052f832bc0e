"""An adapter inside the weights it adapts, for as long as it is sampled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer


@contextmanager
def merged(model: torch.nn.Module) -> Iterator[None]:
    """Adds a model's adapter to its weights, which come back bit for bit; costs a second copy of them meanwhile. Beside
    them it is several small kernels more for every layer and token.

    Not done where the embedding's weights are adapted for another layer: the embedding itself must stay as it is."""
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
