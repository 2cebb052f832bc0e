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
from fastslow.slow.update import Signal


def build_distillation(
    rollouts: Sequence[Rollout],
    prompts: Sequence[Sequence[Sequence[int]] | None],
    slow: SlowRecipe,
    step: int,
) -> tuple[Update, Signal]:
    """Rows for one step from the student's rollouts, grouped by problem, and the teacher's prompt for each turn.

    Rollouts without teacher prompts (None) are left out.
    """
    problems_N = np.arange(len(rollouts)) // slow.group
    rewards_N = np.array([rollout.score for rollout in rollouts], dtype=np.float64)
    tokens_N = np.array([rollout.completion_tokens for rollout in rollouts])
    kept_N = np.array([prompt is not None for prompt in prompts]) & (tokens_N > 0)
    by_problem = slow.loss.options.get("aggregation", "problem") == "problem"
    weights_N = prompt_mean_scale(tokens_N, kept_N, problems_N) if by_problem else np.ones(len(rollouts))
    rows = [
        Row(turn, float(weight), rollout.policy_step, teacher_prompt=tuple(prompt))
        for rollout, teacher_prompts, weight, kept in zip(rollouts, prompts, weights_N, kept_N, strict=True)
        if kept and teacher_prompts is not None
        for turn, prompt in zip(rollout.turns, teacher_prompts, strict=True)
    ]
    share = float(informative(rewards_N, problems_N).mean())  # groups of one size
    return Update(step, rows), Signal(1 - share, share)
