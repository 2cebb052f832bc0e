"""Advantages that seek the highest reward of a group instead of a higher mean, for problems of which the best answer counts.

Arrays have one entry, `_N`, for each rollout of the step. Groups with equal rewards have advantages of 0, and those of any
group sum up to 0 but for `best`.

- `best`: the gain of the group's maximum by a rollout, its lead over the best of the others. This is the policy gradient of
  the expected maximum with the other rollouts as its baseline. Only one rollout of a group has an advantage.
- `entropic`: the policy gradient of log E[exp(β r)] / β. A rollout has the weight exp(β r), divided by the group's mean
  weight, less 1. β is chosen for each group so that the weights are `NATS` from equal ones (KL divergence): where rewards
  hardly differ, β is large. This is the objective of TTT-Discover (arXiv 2601.16175).
- `rank`: logarithmic rank weights of evolution strategies: the better half of a group shares the weight, the more the higher
  the rank. Equal rewards share theirs.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from fastslow.slow.credit import Floats, Integers

Seeking = Literal["best", "entropic", "rank", "none"]
NATS = math.log(2)
_HALVINGS, _LARGEST = 60, 1e12


def seeking(rewards_N: Floats, groups_N: Integers, kind: Seeking) -> Floats:
    """The advantage of each rollout in its group."""
    result_N = np.zeros_like(rewards_N, dtype=np.float64)
    if kind == "none":
        return result_N
    of_group = {"best": lead, "entropic": entropic, "rank": ranked}[kind]
    for group in np.unique(groups_N):
        members = groups_N == group
        if np.ptp(rewards_N[members]) > 0:
            result_N[members] = of_group(rewards_N[members])
    return result_N


def lead(rewards: Floats) -> Floats:
    """How far the maximum of a group falls without each of its rollouts."""
    second, first = np.sort(rewards)[-2:]
    return np.where(rewards == first, first - second, 0.0)


def entropic(rewards: Floats) -> Floats:
    """exp(β r) over its mean, less 1, with the β at which the weights are `NATS` from equal, or the largest."""
    gaps = rewards - rewards.max()
    low, high = 0.0, 1.0
    while _distance(high * gaps) < NATS and high < _LARGEST:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _distance(middle * gaps) < NATS else (low, middle)
    weights = np.exp(high * gaps)
    return np.asarray(weights / weights.mean() - 1)


def _distance(powers: Floats) -> float:
    """KL(weights ‖ equal weights) in nats."""
    weights = np.exp(powers)
    shares = weights / weights.sum()
    some = shares[shares > 0]
    return float((some * np.log(some * len(powers))).sum())


def ranked(rewards: Floats) -> Floats:
    """Weights by rank, less their mean, with a largest of 1 before that."""
    count = len(rewards)
    by_rank = np.maximum(0.0, math.log(count / 2 + 1) - np.log(np.arange(1, count + 1)))
    by_rank /= by_rank[0]
    ordered = -np.sort(-rewards)
    weights = np.array([by_rank[ordered == reward].mean() for reward in rewards])
    return weights - weights.mean()
