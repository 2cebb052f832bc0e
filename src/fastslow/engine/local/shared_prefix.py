"""TRL's GRPO trainer with shared prompt prefixes computed once per microbatch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from fastslow.base.errors import FastSlowWarning
from fastslow.prefix import completion_logprobs, why_not_train
from fastslow.prefix.tree import Integers


class SharedPrefixTrainer(GRPOTrainer):
    """The gradient is the same as TRL's: log-probabilities are computed in another way but have the same values.

    Each microbatch is one prefix tree, so rows with the same prefix should be in the same microbatch: rows are not shuffled,
    and the caller must sort them.
    """

    shared_prefix: bool
    scored: Tensor
    """Log-probabilities of the last microbatch."""

    def __init__(self, *arguments: Any, shared_prefix: bool = True, **named: Any) -> None:
        self.shared_prefix = shared_prefix
        self._checked = False
        super().__init__(*arguments, **named)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **more: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        # Images and the auxiliary loss of MoE models need TRL's own method.
        plain = compute_aux_loss or any(value is not None for value in more.values())
        if plain or not self.shares(model):
            found = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, compute_aux_loss, **more
            )
        else:
            found = *self._score_tree(model, input_ids, attention_mask, logits_to_keep, batch_size), None
        self.scored = found[0].detach()
        return found

    def _score_tree(
        self, model: Any, ids: Tensor, mask: Tensor, width: int, batch_size: int | None
    ) -> tuple[Tensor, Tensor | None]:
        prompts = unpadded(ids[:, :-width], mask[:, :-width])
        completions = unpadded(ids[:, -width:], mask[:, -width:])
        size = batch_size or len(prompts)
        parts = []
        for start in range(0, len(prompts), size):
            with self.accelerator.autocast():
                parts.append(
                    completion_logprobs(model, prompts[start : start + size], completions[start : start + size])
                )
        logps, entropies = (_stack(values, width) for values in zip(*parts, strict=True))
        assert logps is not None
        return logps, entropies

    def shares(self, model: Any) -> bool:
        """Whether the model supports shared prefixes; checked once, on the first model scored."""
        if self.shared_prefix and not self._checked:
            self._checked = True
            with self.accelerator.autocast():
                reason = why_not_train(model)
            if reason:
                self.shared_prefix = False
                warnings.warn(
                    f"training falls back to padded batches without shared prefixes because {reason}",
                    FastSlowWarning,
                    stacklevel=2,
                )
        return self.shared_prefix


def unpadded(ids: Tensor, mask: Tensor) -> list[Integers]:
    """Rows without padding."""
    return [row[kept] for row, kept in zip(ids.cpu().numpy(), mask.bool().cpu().numpy(), strict=True)]


def _stack(values: Sequence[Tensor | None], width: int) -> Tensor | None:
    """Concatenate rows, each padded on the right to one width."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    return torch.cat([torch.nn.functional.pad(value, (0, width - value.shape[1])) for value in present])
