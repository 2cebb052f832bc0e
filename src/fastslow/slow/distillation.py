"""FST-distill: what the contexts make the model do is trained into the weights, so that it does it without them.

The student is the policy under the seed text. The teacher is the same model under an evolved context, with the weights it
had at the cycle's start. The student writes; at each of its tokens the loss is the reverse KL(student ‖ teacher) over the
whole vocabulary, both at the sampling temperature, with the tokens that were written taken as given. The contexts of the
pool teach in equal shares of a group. Rewards are recorded and not used: what reaches the weights, reaches them through the
contexts. There is no penalty for leaving the base model, and no group is left out for its rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastslow.engine.base import Row, Update
from fastslow.recipe import SlowRecipe
from fastslow.records import Rollout
from fastslow.slow.advantages import informative, prompt_mean_scale


def build_distillation(
    rollouts: Sequence[Rollout],
    prompts: Sequence[Sequence[Sequence[int]] | None],
    slow: SlowRecipe,
    step: int,
) -> Update:
    """Rows for one step from the student's rollouts, problem by problem, and the prompts their teachers read, turn by turn.

    Where a rollout has no such prompts it has no teacher, and is left out.
    """
    shape = (-1, slow.group)
    rewards_PG = np.array([rollout.score for rollout in rollouts], dtype=np.float64).reshape(shape)
    tokens_PG = np.array([rollout.completion_tokens for rollout in rollouts]).reshape(shape)
    kept_PG = np.array([prompt is not None for prompt in prompts]).reshape(shape) & (tokens_PG > 0)
    groups_PG = np.broadcast_to(np.arange(len(rewards_PG))[:, None], rewards_PG.shape)
    weights_PG = prompt_mean_scale(tokens_PG, kept_PG) if slow.aggregation == "problem" else np.ones(rewards_PG.shape)
    rows = [
        Row(turn, float(weight), rollout.policy_step, tuple(prompt))
        for rollout, asked, weight, kept in zip(rollouts, prompts, weights_PG.flat, kept_PG.flat, strict=True)
        if kept and asked is not None
        for turn, prompt in zip(rollout.turns, asked, strict=True)
    ]
    varied_P = informative(rewards_PG, groups_PG).any(axis=1)
    return Update(step, rows, 1 - float(varied_P.mean()))
