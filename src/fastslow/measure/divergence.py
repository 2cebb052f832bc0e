"""How far training has moved a policy: the exact KL(policy ‖ base) of each token, over the whole vocabulary.

Measured on what the policy itself writes, both models reading the same text; the mean over tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import is_peft_model
from trl.trainer.utils import pad, use_adapter

from fastslow.rollouts.records import Rollout, Turn
from fastslow.shared_prefix.logprobs import tree_inputs

if TYPE_CHECKING:
    from trl import GRPOTrainer

    from fastslow.slow.shared_prefix import SharedPrefixTrainer

ROWS = 32
"""Sequences compared at a time: two sets of logits over the vocabulary are in memory for these."""


@torch.no_grad()
def divergence(trainer: SharedPrefixTrainer, rollouts: Sequence[Rollout]) -> float:
    """Mean token KL of a trainer's policy from its base: its reference model, or itself with the adapter off."""
    policy = trainer.accelerator.unwrap_model(trainer.model)
    total, tokens = 0.0, 0
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    for start in range(0, len(turns), ROWS):
        chosen = turns[start : start + ROWS]
        with _evaluating(policy), trainer.accelerator.autocast():
            log_probabilities = _by_tree if trainer.shares(policy) else _by_row
            log_p = log_probabilities(policy, chosen)
            with _base(trainer, policy) as base:
                log_q = log_probabilities(base, chosen)
        kl = (log_p.exp() * (log_p - log_q)).sum(-1)
        total, tokens = total + kl.sum().item(), tokens + kl.numel()
    return total / max(tokens, 1)


def _by_tree(model: Any, turns: Sequence[Turn]) -> torch.Tensor:
    """Of all next tokens at each written one, tokens × vocabulary."""
    prompts, written = [turn.prompt_ids for turn in turns], [turn.completion.ids for turn in turns]
    tree, inputs = tree_inputs(model, prompts, written, model.device)
    return torch.log_softmax(model(**inputs).logits[0, np.concatenate(tree.places)].float(), dim=-1)


def _by_row(model: Any, turns: Sequence[Turn]) -> torch.Tensor:
    """The same from padded rows."""
    sequences = [torch.tensor([*turn.prompt_ids, *turn.completion.ids]) for turn in turns]
    written = [torch.tensor([0] * len(turn.prompt_ids) + [1] * len(turn.completion.ids)) for turn in turns]
    ids, drawn, mask = (
        pad(values, padding_value=0, padding_side="right").to(model.device)
        for values in (sequences, written, [torch.ones_like(sequence) for sequence in sequences])
    )
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    return torch.log_softmax(logits[drawn[:, 1:].bool()].float(), dim=-1)


@contextmanager
def _base(trainer: GRPOTrainer, policy: Any) -> Iterator[Any]:
    if is_peft_model(policy):
        with use_adapter(policy, adapter_name=None):
            yield policy
    else:
        assert trainer.ref_model is not None, "the recipe's own check"
        yield trainer.ref_model


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
