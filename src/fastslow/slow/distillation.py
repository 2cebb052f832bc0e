"""FST-distill: on-policy distillation of the contexts into the weights.

The student is the policy under the seed text. The teacher is the same model under an evolved context, with its weights at the
start of the cycle. The student samples; the loss at each of its tokens is the reverse KL(student ‖ teacher) over the whole
vocabulary, both at the sampling temperature, without a gradient through the sampled tokens. Each context of the pool teaches
an equal share of a group. Rewards are recorded but not trained on: the weights learn only from the contexts. There is no KL
penalty to the base model, and zero-variance groups are kept.
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
    """Rows for one step from the student's rollouts, grouped by problem, and the teacher's prompt for each turn.

    Rollouts without teacher prompts (None) are left out.
    """
    shape = (-1, slow.group)
    rewards_PG = np.array([rollout.score for rollout in rollouts], dtype=np.float64).reshape(shape)
    tokens_PG = np.array([rollout.completion_tokens for rollout in rollouts]).reshape(shape)
    kept_PG = np.array([prompt is not None for prompt in prompts]).reshape(shape) & (tokens_PG > 0)
    groups_PG = np.broadcast_to(np.arange(len(rewards_PG))[:, None], rewards_PG.shape)
    weights_PG = prompt_mean_scale(tokens_PG, kept_PG) if slow.aggregation == "problem" else np.ones(rewards_PG.shape)
    rows = [
        Row(turn, float(weight), rollout.policy_step, tuple(prompt))
        for rollout, teacher_prompts, weight, kept in zip(rollouts, prompts, weights_PG.flat, kept_PG.flat, strict=True)
        if kept and teacher_prompts is not None
        for turn, prompt in zip(rollout.turns, teacher_prompts, strict=True)
    ]
    varied_P = informative(rewards_PG, groups_PG).any(axis=1)
    return Update(step, rows, 1 - float(varied_P.mean()))
