"""Log-probabilities of completions with every distinct beginning computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastslow.errors import ModelError
from fastslow.prefix import attention
from fastslow.prefix.mask import KERNEL_BLOCK, TreeMask
from fastslow.prefix.tree import Ids, Tree, plant


def completion_logprobs(model: Any, prompts: Sequence[Ids], completions: Sequence[Ids]) -> tuple[Tensor, Tensor | None]:
    """Log-probability and entropy of each completion token, rows × longest completion, 0 behind a completion's end.

    Equal to scoring each row on its own, gradients included, while what rows begin with together (a system text, a problem,
    the turns before) goes through the model once. The model is a decoder of transformers, bare or wrapped (PEFT, DDP), that
    TRL's `add_fused_lm_head` was called on, as its trainers do: that sets the temperature, computes the logits in tiles, and
    leaves the entropy out (`None`) unless it was asked for. `unsupported` says beforehand whether a model can do this.
    """
    device = next(model.parameters()).device
    tree, inputs = tree_inputs(model, prompts, completions, device)
    labels = torch.from_numpy(tree.labels).to(device)[None]
    outputs = model(**inputs, shift_labels=labels, fused_lm_head=True)
    width = max((len(places) for places in tree.places), default=0)
    columns = torch.arange(width, device=device)
    present = columns < torch.tensor([len(places) for places in tree.places], device=device)[:, None]
    places = torch.cat([torch.from_numpy(places) for places in tree.places]).to(device)

    def by_row(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        return values.new_zeros(present.shape).masked_scatter(present, values[0, places])

    logprobs = by_row(outputs.log_probs)
    assert logprobs is not None
    return logprobs, by_row(outputs.entropy)


def tree_inputs(
    model: Any, prompts: Sequence[Ids], completions: Sequence[Ids], device: torch.device
) -> tuple[Tree, dict[str, Any]]:
    """The rows as one tree, and what a model is called with to run over it."""
    attention.enable()
    tree = plant(prompts, completions, multiple=2 * KERNEL_BLOCK if device.type == "cuda" else 1)
    windows = layer_windows(getattr(model, "module", model).config)
    masks = {kind: TreeMask.build(tree, device, window) for kind, window in windows.items()}
    return tree, {
        "input_ids": torch.from_numpy(tree.tokens).to(device)[None],
        "position_ids": torch.from_numpy(tree.positions).to(device)[None],
        # Models with several kinds of layers take a mask for each by name, the others just the mask.
        "attention_mask": masks if len(masks) > 1 else next(iter(masks.values())),
    }


def layer_windows(config: Any) -> dict[str, int | None]:
    """The kinds of attention layers of a model, and how far each looks back."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = getattr(config, "layer_types", None) or ["full_attention" if window is None else "sliding_attention"]
    known = {"full_attention": None, "sliding_attention": window}
    if unknown := sorted(set(kinds) - set(known)):
        raise ModelError(f"layers of kind {unknown[0]} do not go over a tree")
    return {kind: known[kind] for kind in sorted(set(kinds))}
