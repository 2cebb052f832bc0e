"""A causal language model in two halves: what it thinks at each token, and the head that turns that into logits.

Logits of many tokens over a large vocabulary fill a GPU; with the halves apart they are made for a few tokens at a time.
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

from fastslow.errors import ModelError
from fastslow.prefix.logprobs import tree_inputs
from fastslow.prefix.tree import Ids

Head = Callable[[torch.Tensor], torch.Tensor]
"""Hidden states (…, width) to logits (…, vocabulary)."""

CHUNK_NUMBERS = 2**26
"""Numbers in one chunk of logits: 256 MiB of float32."""


def chunk_tokens(vocabulary: int) -> int:
    """How many tokens' logits are made at a time."""
    return max(1, CHUNK_NUMBERS // vocabulary)


def causal_model(model: Any) -> Any:
    """The model itself, without an adapter's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def hidden_states(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collects the last hidden states of every call that is made of the model in this block.

    They are caught on their way, so that the call itself may go through the wrapper that shares gradients between
    processes.
    """
    caught: list[torch.Tensor] = []
    handle = causal_model(model).base_model.register_forward_hook(
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
    """The hidden states from which each written token is predicted, row after row, without any logits being made.

    `shared`: what rows begin with together goes through the model once. `frozen` are other weights in place of its own;
    `wrapper` is called in the model's place.
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
    """Rows side by side, filled up behind their ends, and where in them is what was written."""
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
    """The head of a model with what its architecture does to the logits after it; `frozen` are other weights."""
    inner = causal_model(model)
    layer = inner.get_output_embeddings()
    config = inner.config.get_text_config()
    scale, cap = _scale(config) / temperature, getattr(config, "final_logit_softcapping", None)
    other = {name: frozen[parameter] for name, parameter in layer.named_parameters() if frozen and parameter in frozen}

    def head(hidden: torch.Tensor) -> torch.Tensor:
        logits = (functional_call(layer, other, hidden) if other else layer(hidden)).float()
        if cap is not None:
            # The cap bends the logits after the architecture's own scale and before the temperature.
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
    """Refuse a model whose halves do not make its own logits: an architecture with a head of a kind not known here.

    To be called under the precision that the model computes in.
    """
    ids = torch.arange(4, device=next(model.parameters()).device)[None]
    training = model.training
    model.eval()
    with hidden_states(model) as caught:
        whole = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
    model.train(training)
    if not torch.allclose(output_head(model)(caught[0]), whole, atol=5e-2, rtol=5e-2):
        name = type(causal_model(model)).__name__
        raise ModelError(
            f"the logits of a {name} are not its output layer applied to its last hidden states, so the KL over the whole "
            "vocabulary cannot be taken in chunks; use another model, method=fst, or evaluation.divergence=false"
        )
