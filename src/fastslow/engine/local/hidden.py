"""A causal language model split into hidden states and output head.

Logits of many tokens over a large vocabulary need much GPU memory; split, they are computed for a few tokens at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from fastslow.base.errors import ModelError
from fastslow.engine.local.sampler import evaluating
from fastslow.prefix.level_attention import without_adapter
from fastslow.prefix.tree import Ids
from fastslow.prefix.tree_attention import tree_inputs

Head = Callable[[torch.Tensor], torch.Tensor]
"""Hidden states (…, width) to logits (…, vocabulary)."""

CHUNK_NUMBERS = 2**26
"""Logits in one chunk: 256 MiB of float32."""


def chunk_tokens(vocabulary: int) -> int:
    """Number of tokens whose logits are computed at a time."""
    return max(1, CHUNK_NUMBERS // vocabulary)


@contextmanager
def hidden_states(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collects the last hidden states of every forward pass of the model in this block.

    A forward hook collects them, so that the call itself may use the DDP wrapper, which synchronizes gradients.
    """
    caught: list[torch.Tensor] = []
    handle = without_adapter(model).base_model.register_forward_hook(
        lambda module, arguments, output: caught.append(output[0])
    )
    try:
        yield caught
    finally:
        handle.remove()


def written_states(
    model: Any,
    prompts: Sequence[Ids],
    completions: Sequence[Ids],
    *,
    shared: bool,
    frozen: Mapping[str, torch.Tensor] | None = None,
    wrapper: Any = None,
) -> torch.Tensor:
    """The hidden states that predict each completion token, row after row, without computing logits.

    `shared`: shared prefixes go through the model once. `frozen`: weights to use instead of the model's. `wrapper`: called
    instead of the model.
    """
    device = next(model.parameters()).device
    if shared:
        tree, inputs = tree_inputs(model, prompts, completions, device)
        places = torch.from_numpy(np.concatenate(tree.places)).to(device)
    else:
        inputs, written = _padded(prompts, completions, device)
    inputs |= {"logits_to_keep": 1, "use_cache": False}
    with hidden_states(model) as caught:
        if frozen is None:
            (wrapper or model)(**inputs)
        else:
            functional_call(model, dict(frozen), args=(), kwargs=inputs)
    return caught[0][0, places] if shared else caught[0][:, :-1][written[:, 1:]]


def _padded(
    prompts: Sequence[Ids], completions: Sequence[Ids], device: torch.device
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Rows padded on the right, and a mask of their completion tokens."""
    rows = [torch.tensor([*prompt, *completion]) for prompt, completion in zip(prompts, completions, strict=True)]
    marks = [torch.arange(len(row)) >= len(prompt) for row, prompt in zip(rows, prompts, strict=True)]
    ids, mask, written = (
        pad_sequence(values, batch_first=True).to(device)
        for values in (rows, [torch.ones_like(row) for row in rows], marks)
    )
    positions = torch.arange(ids.shape[1], device=device).expand_as(ids)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}, written


def output_head(
    model: Any, frozen: Mapping[nn.Parameter, torch.Tensor] | None = None, temperature: float = 1.0
) -> Head:
    """The output head of a model with its logit scale and soft cap; `frozen`: weights to use instead of the model's."""
    inner = without_adapter(model)
    layer = inner.get_output_embeddings()
    config = inner.config.get_text_config()
    scale, cap = _scale(config) / temperature, getattr(config, "final_logit_softcapping", None)
    other = {name: frozen[parameter] for name, parameter in layer.named_parameters() if frozen and parameter in frozen}

    def head(hidden: torch.Tensor) -> torch.Tensor:
        logits = (functional_call(layer, other, hidden) if other else layer(hidden)).float()
        if cap is not None:
            # The cap applies after the architecture's logit scale and before the temperature.
            return torch.tanh(logits * (scale * temperature) / cap) * cap / temperature
        return logits * scale

    return head


def _scale(config: Any) -> float:
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        if getattr(config, name, None) is not None:
            return float(getattr(config, name))
    scaling = getattr(config, "logits_scaling", None)
    if scaling is None:
        return 1.0
    return float(scaling) if config.model_type == "hyperclovax" else 1.0 / float(scaling)


@torch.no_grad()
def check_halves(model: Any) -> None:
    """Raise if hidden states and output head do not reproduce the model's logits, as with an unsupported kind of head.

    Call it under the same autocast as training.
    """
    ids = torch.arange(4, device=next(model.parameters()).device)[None]
    with evaluating(model), hidden_states(model) as caught:
        whole = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
    if not torch.allclose(output_head(model)(caught[0]), whole, atol=5e-2, rtol=5e-2):
        name = type(without_adapter(model)).__name__
        raise ModelError(
            f"the logits of a {name} are not its output layer applied to its last hidden states, so the KL over the whole "
            "vocabulary cannot be computed in chunks; use another model, method=fst, or evaluation.divergence=false"
        )
