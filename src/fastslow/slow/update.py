"""From the rollouts of a step to the rows of one update: each turn is a row with its rollout's advantage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastslow.engine.base import Row, Update
from fastslow.recipe import SlowRecipe
from fastslow.records import Rollout
from fastslow.slow.advantages import Floats, advantages, baseline_groups, informative, prompt_mean_scale


def build_update(rollouts: Sequence[Rollout], slow: SlowRecipe, step: int) -> Update:
    """Rows for one step; rollouts are grouped by problem, `slow.group` each."""
    rewards_PG, groups_PG = _grouped(rollouts, slow)
    tokens_PG = np.array([r.completion_tokens for r in rollouts]).reshape(rewards_PG.shape)
    varied_PG = informative(rewards_PG, groups_PG)
    kept_PG = (varied_PG if slow.drop_zero_variance else np.ones_like(varied_PG)) & (tokens_PG > 0)
    weights_PG = advantages(rewards_PG, groups_PG, slow.std)
    if slow.loss == "cispo" and slow.aggregation == "problem":
        weights_PG *= prompt_mean_scale(tokens_PG, kept_PG)
    rows = [
        Row(turn, float(weight), rollout.policy_step)
        for rollout, weight, kept in zip(rollouts, weights_PG.flat, kept_PG.flat, strict=True)
        if kept
        for turn in rollout.turns
    ]
    group_varied = [varied_PG[groups_PG == group].any() for group in np.unique(groups_PG)]
    return Update(step, rows, 1 - float(np.mean(group_varied)))


def rollout_advantages(rollouts: Sequence[Rollout], slow: SlowRecipe) -> list[float]:
    """The advantage of each rollout, without the factor of the aggregation."""
    return advantages(*_grouped(rollouts, slow), slow.std).ravel().tolist()


def _grouped(rollouts: Sequence[Rollout], slow: SlowRecipe) -> tuple[Floats, NDArray[np.int64]]:
    """Rewards and baseline groups, by problem and rollout."""
    shape = (-1, slow.group)
    numbers = {context: index for index, context in enumerate(dict.fromkeys(r.context.id for r in rollouts))}
    contexts_PG = np.array([numbers[r.context.id] for r in rollouts]).reshape(shape)
    rewards_PG = np.array([r.score for r in rollouts], dtype=np.float64).reshape(shape)
    return rewards_PG, baseline_groups(contexts_PG, slow.baseline)
