"""How far training has moved a policy: the exact KL(policy ‖ base) of each token, over the whole vocabulary.

Measured on what the policy itself writes, both models reading the same text; the mean over tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import is_peft_model
from trl.trainer.utils import pad, use_adapter

from fastslow.rollouts.records import Rollout
from fastslow.rollouts.sampling import evaluating

if TYPE_CHECKING:
    from trl import GRPOTrainer

ROWS = 32
"""Sequences compared at a time: two sets of logits over the vocabulary are in memory for these."""


@torch.no_grad()
def divergence(trainer: GRPOTrainer, rollouts: Sequence[Rollout]) -> float:
    """Mean token KL of a trainer's policy from its base: its reference model, or itself with the adapter off."""
    policy = trainer.accelerator.unwrap_model(trainer.model)
    total, tokens = 0.0, 0
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    for start in range(0, len(turns), ROWS):
        chosen = turns[start : start + ROWS]
        sequences = [torch.tensor([*turn.prompt_ids, *turn.completion.ids]) for turn in chosen]
        written = [torch.tensor([0] * len(turn.prompt_ids) + [1] * len(turn.completion.ids)) for turn in chosen]
        ids, drawn, mask = (
            pad(values, padding_value=0, padding_side="right").to(trainer.accelerator.device)
            for values in (sequences, written, [torch.ones_like(sequence) for sequence in sequences])
        )
        with evaluating(policy), trainer.accelerator.autocast():
            log_p = _log_probabilities(policy, ids, mask)
            with _base(trainer, policy) as base:
                log_q = _log_probabilities(base, ids, mask)
        kl = (log_p.exp() * (log_p - log_q)).sum(-1)[drawn[:, 1:].bool()]
        total, tokens = total + kl.sum().item(), tokens + kl.numel()
    return total / max(tokens, 1)


def _log_probabilities(model: Callable[..., Any], ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(model(input_ids=ids, attention_mask=mask).logits[:, :-1].float(), dim=-1)


@contextmanager
def _base(trainer: GRPOTrainer, policy: Any) -> Iterator[Any]:
    if is_peft_model(policy):
        with use_adapter(policy, adapter_name=None):
            yield policy
    else:
        assert trainer.ref_model is not None, "the recipe's own check"
        yield trainer.ref_model
