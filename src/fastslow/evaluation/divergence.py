"""Divergence of a trained policy: KL(policy ‖ base) per token, averaged over tokens.

It is measured on the policy's own completions, with the same prompt for both models. It is exact over the vocabulary if the
engine has all logits; otherwise it is estimated from the log-probabilities of the sampled tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastslow.engine.base import Engine, TokenScores
from fastslow.evaluation.reward import Z95
from fastslow.records import Rollout


@dataclass(frozen=True)
class Divergence:
    """Mean KL per token in nats, with a 95% interval over rollouts."""

    kl: float
    low: float
    high: float
    tokens: int


def divergence(engine: Engine, rollouts: Sequence[Rollout]) -> Divergence:
    """Mean KL per token of an engine's policy from its base model."""
    found = token_divergences(engine, rollouts)
    sums, counts = [sum(values) for values in found], [len(values) for values in found]
    tokens = sum(counts)
    if not tokens:
        return Divergence(0.0, 0.0, 0.0, 0)
    mean = sum(sums) / tokens
    return Divergence(mean, *_interval(mean, sums, counts), tokens)


def token_divergences(engine: Engine, rollouts: Sequence[Rollout]) -> list[list[float]]:
    """The KL of every completion token, by rollout."""
    turns = [(index, turn) for index, rollout in enumerate(rollouts) for turn in rollout.turns]
    found: list[list[float]] = [[] for _ in rollouts]
    for (index, _), scores in zip(turns, engine.score([turn for _, turn in turns]), strict=True):
        found[index] += _token_kl(scores)
    return found


def _token_kl(scores: TokenScores) -> list[float]:
    if scores.kl is not None:
        return list(scores.kl)
    return [policy - base for policy, base in zip(scores.policy, scores.base, strict=True)]


def _interval(mean: float, sums: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """95% interval of a ratio of sums over rollouts: rollouts are independent, the tokens of one are not."""
    rollouts = len(sums)
    if rollouts < 2:
        return 0.0, math.inf
    spread = sum((total - mean * count) ** 2 for total, count in zip(sums, counts, strict=True))
    error = math.sqrt(spread * rollouts / (rollouts - 1)) / sum(counts)
    return max(0.0, mean - Z95 * error), mean + Z95 * error
