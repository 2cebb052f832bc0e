"""From the rollouts of a step to the rows of one update: each turn is a row with its rollout's advantage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastslow.engine.base import Row, Update
from fastslow.recipe import SlowRecipe
from fastslow.records import Rollout
from fastslow.slow.advantages import Floats, Integers, advantages, baseline_groups, informative, prompt_mean_scale


def build_update(rollouts: Sequence[Rollout], slow: SlowRecipe, step: int, sizes: Sequence[int] = ()) -> Update:
    """Rows for one step; rollouts are grouped by problem, `slow.group` each or as many as `sizes` says."""
    problems_N, rewards_N, groups_N = _grouped(rollouts, slow, sizes)
    tokens_N = np.array([r.completion_tokens for r in rollouts])
    varied_N = informative(rewards_N, groups_N)
    kept_N = (varied_N if slow.drop_zero_variance else np.ones_like(varied_N)) & (tokens_N > 0)
    weights_N = advantages(rewards_N, groups_N, slow.std)
    if slow.loss.options.get("aggregation") == "problem":
        weights_N *= prompt_mean_scale(tokens_N, kept_N, problems_N)
    rows = [
        Row(turn, float(weight), rollout.policy_step)
        for rollout, weight, kept in zip(rollouts, weights_N, kept_N, strict=True)
        if kept
        for turn in rollout.turns
    ]
    group_varied = [varied_N[groups_N == group].any() for group in np.unique(groups_N)]
    return Update(step, rows, 1 - float(np.mean(group_varied)), float(varied_N.mean()))


def rollout_advantages(rollouts: Sequence[Rollout], slow: SlowRecipe, sizes: Sequence[int] = ()) -> list[float]:
    """The advantage of each rollout, without the factor of the aggregation."""
    _, rewards_N, groups_N = _grouped(rollouts, slow, sizes)
    found: list[float] = advantages(rewards_N, groups_N, slow.std).tolist()
    return found


def _grouped(rollouts: Sequence[Rollout], slow: SlowRecipe, sizes: Sequence[int]) -> tuple[Integers, Floats, Integers]:
    """Problem, reward and baseline group of every rollout."""
    sizes = sizes or [slow.group] * (len(rollouts) // slow.group)
    problems_N = np.repeat(np.arange(len(sizes)), sizes)
    numbers = {context: index for index, context in enumerate(dict.fromkeys(r.context.id for r in rollouts))}
    contexts_N = np.array([numbers[r.context.id] for r in rollouts])
    rewards_N = np.array([r.score for r in rollouts], dtype=np.float64)
    return problems_N, rewards_N, baseline_groups(problems_N, contexts_N, slow.baseline)
