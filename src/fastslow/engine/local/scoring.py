"""Score completions under the policy and its base model: log-probabilities and the exact KL over the vocabulary.

Logits are computed for a few tokens at a time. With an adapter, the base model is the policy with its adapter disabled, so no
second model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastslow.engine.base import TokenScores
from fastslow.engine.local.hidden import check_halves, chunk_tokens, output_head, written_states
from fastslow.engine.local.sampler import evaluating
from fastslow.records import Turn

if TYPE_CHECKING:
    from fastslow.engine.local.trainer import Trainer

ROWS = 32
"""Sequences per batch."""


@torch.no_grad()
def score_turns(trainer: Trainer, turns: Sequence[Turn]) -> list[TokenScores]:
    policy = trainer.accelerator.unwrap_model(trainer.model)
    found: list[TokenScores] = []
    with evaluating(policy), trainer.accelerator.autocast():
        check_halves(policy)
        shared = trainer.shares(policy)
        for start in range(0, len(turns), ROWS):
            found += _score_batch(trainer, policy, shared, turns[start : start + ROWS])
    return found


def _score_batch(trainer: Trainer, policy: Any, shared: bool, turns: Sequence[Turn]) -> list[TokenScores]:
    rows = [turn.prompt_ids for turn in turns], [turn.completion.ids for turn in turns]
    hidden_p = written_states(policy, *rows, shared=shared)
    with trainer.base() as base:
        hidden_q = written_states(base, *rows, shared=shared)
    size = chunk_tokens(policy.get_input_embeddings().weight.size(0))
    tokens = torch.tensor([token for ids in rows[1] for token in ids], device=hidden_p.device)
    parts: list[torch.Tensor] = []
    for p, q, ids in zip(hidden_p.split(size), hidden_q.split(size), tokens.split(size), strict=True):
        log_p = torch.log_softmax(output_head(policy)(p), dim=-1)
        with trainer.base() as base:
            log_q = torch.log_softmax(output_head(base)(q), dim=-1)
        kl = (log_p.exp() * (log_p - log_q)).sum(dim=-1)
        parts.append(torch.stack([*(values.gather(1, ids[:, None])[:, 0] for values in (log_p, log_q)), kl]))
    lengths = [len(turn.completion.ids) for turn in turns]
    return [TokenScores(*part.tolist()) for part in torch.cat(parts, dim=1).split(lengths, dim=1)]
