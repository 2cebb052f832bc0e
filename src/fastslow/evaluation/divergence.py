"""How far training has moved a policy: the exact KL(policy ‖ base) of each token, over the whole vocabulary.

Measured on what the policy itself writes, both models reading the same text; the mean over tokens. Logits are made for a
few tokens at a time. With an adapter the base model is the policy with its adapter off, and no second model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import is_peft_model
from trl.trainer.utils import use_adapter

from fastslow.engine.local.hidden import check_halves, chunk_tokens, output_head, written_states
from fastslow.engine.local.sampler import evaluating
from fastslow.evaluation.reward import Z95
from fastslow.records import Rollout, Turn

if TYPE_CHECKING:
    from trl import GRPOTrainer

    from fastslow.engine.local.shared_prefix import SharedPrefixTrainer

ROWS = 32
"""Sequences compared at a time."""


@dataclass(frozen=True)
class Divergence:
    """The mean KL of a token in nats, with a 95% interval over rollouts."""

    kl: float
    low: float
    high: float
    tokens: int


def divergence(trainer: SharedPrefixTrainer, rollouts: Sequence[Rollout]) -> Divergence:
    """Mean token KL of a trainer's policy from its base: its reference model, or itself with the adapter off."""
    found = token_divergences(trainer, rollouts)
    sums, counts = [sum(values) for values in found], [len(values) for values in found]
    tokens = sum(counts)
    if not tokens:
        return Divergence(0.0, 0.0, 0.0, 0)
    mean = sum(sums) / tokens
    return Divergence(mean, *_interval(mean, sums, counts), tokens)


@torch.no_grad()
def token_divergences(trainer: SharedPrefixTrainer, rollouts: Sequence[Rollout]) -> list[list[float]]:
    """The KL of every token that was written, rollout by rollout."""
    policy = trainer.accelerator.unwrap_model(trainer.model)
    turns = [(index, turn) for index, rollout in enumerate(rollouts) for turn in rollout.turns]
    found: list[list[float]] = [[] for _ in rollouts]
    with evaluating(policy), trainer.accelerator.autocast():
        check_halves(policy)
        shared = trainer.shares(policy)
        for start in range(0, len(turns), ROWS):
            chosen = turns[start : start + ROWS]
            values = _of_turns(trainer, policy, shared, [turn for _, turn in chosen])
            for (index, _), row in zip(chosen, values, strict=True):
                found[index] += row
    return found


def _of_turns(trainer: GRPOTrainer, policy: Any, shared: bool, turns: Sequence[Turn]) -> list[list[float]]:
    """The KL at every written token, turn by turn."""
    rows = [turn.prompt_ids for turn in turns], [turn.completion.ids for turn in turns]
    hidden_p = written_states(policy, *rows, shared=shared)
    with _base(trainer, policy) as base:
        hidden_q = written_states(base, *rows, shared=shared)
    size = chunk_tokens(policy.get_input_embeddings().weight.size(0))
    values = []
    for p, q in zip(hidden_p.split(size), hidden_q.split(size), strict=True):
        log_p = torch.log_softmax(output_head(policy)(p), dim=-1)
        with _base(trainer, policy) as base:
            log_q = torch.log_softmax(output_head(base)(q), dim=-1)
        values.append((log_p.exp() * (log_p - log_q)).sum(dim=-1))
    return [part.tolist() for part in torch.cat(values).split([len(turn.completion.ids) for turn in turns])]


def _interval(mean: float, sums: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """95% of a ratio of sums over rollouts, which are drawn apart from each other while the tokens of one are not."""
    rollouts = len(sums)
    if rollouts < 2:
        return 0.0, math.inf
    spread = sum((total - mean * count) ** 2 for total, count in zip(sums, counts, strict=True))
    error = math.sqrt(spread * rollouts / (rollouts - 1)) / sum(counts)
    return max(0.0, mean - Z95 * error), mean + Z95 * error


@contextmanager
def _base(trainer: GRPOTrainer, policy: Any) -> Iterator[Any]:
    if is_peft_model(policy):
        with use_adapter(policy, adapter_name=None):
            yield policy
    else:
        assert trainer.ref_model is not None, "the recipe's own check"
        yield trainer.ref_model
