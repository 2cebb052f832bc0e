"""Training over a token tree: log-probabilities of completions, with every shared beginning computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastslow.base.errors import ModelError
from fastslow.prefix import tree_attention
from fastslow.prefix.tree import Ids, TokenTree, token_tree
from fastslow.prefix.tree_attention import KERNEL_BLOCK, TreeMask


def completion_logprobs(model: Any, prompts: Sequence[Ids], completions: Sequence[Ids]) -> tuple[Tensor, Tensor | None]:
    """Log-probability and entropy of each completion token, rows × longest completion, with 0 after a completion's end.

    The result and its gradients equal those of scoring each row alone, while beginnings that rows share (a system prompt, a
    problem, earlier turns) pass through the model once. The model is a transformers decoder, bare or wrapped (PEFT, DDP), on
    which TRL's `add_fused_lm_head` was called, as TRL's trainers do: it sets the temperature, computes the logits in tiles,
    and omits the entropy (`None`) unless it was requested. `why_not_train` tells beforehand whether a model is supported.
    """
    device = next(model.parameters()).device
    tree, inputs = tree_inputs(model, prompts, completions, device)
    labels = torch.from_numpy(tree.labels).to(device)[None]
    outputs = model(**inputs, shift_labels=labels, fused_lm_head=True)
    width = max((len(places) for places in tree.places), default=0)
    columns = torch.arange(width, device=device)
    present = columns < torch.tensor([len(places) for places in tree.places], device=device)[:, None]
    places = torch.cat([torch.from_numpy(places) for places in tree.places]).to(device)

    def by_row(values: Tensor) -> Tensor:
        return values.new_zeros(present.shape).masked_scatter(present, values[0, places])

    return by_row(outputs.log_probs), None if outputs.entropy is None else by_row(outputs.entropy)


def tree_inputs(
    model: Any, prompts: Sequence[Ids], completions: Sequence[Ids], device: torch.device
) -> tuple[TokenTree, dict[str, Any]]:
    """The rows as one tree, and the arguments to call the model with so that it runs over the tree."""
    tree_attention.enable()
    tree = token_tree(prompts, completions, multiple=2 * KERNEL_BLOCK if device.type == "cuda" else 1)
    windows = layer_windows(getattr(model, "module", model).config)
    masks = {kind: TreeMask.build(tree, device, window) for kind, window in windows.items()}
    return tree, {
        "input_ids": torch.from_numpy(tree.tokens).to(device)[None],
        "position_ids": torch.from_numpy(tree.positions).to(device)[None],
        # Models with several kinds of layers take a dict of masks by kind, others a single mask.
        "attention_mask": masks if len(masks) > 1 else next(iter(masks.values())),
    }


def layer_windows(config: Any) -> dict[str, int | None]:
    """The kinds of attention layers of a model, and the sliding window of each."""
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = getattr(config, "layer_types", None) or ["full_attention" if window is None else "sliding_attention"]
    known = {"full_attention": None, "sliding_attention": window}
    if unknown := sorted(set(kinds) - set(known)):
        raise ModelError(f"layers of kind {', '.join(unknown)} cannot share prefixes")
    return {kind: known[kind] for kind in sorted(set(kinds))}
