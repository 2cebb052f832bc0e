"""Supervised learning on solved rollouts: what the model answered with a text becomes what it answers without.

The prompts are those of the seed text, the targets the tokens of the answers. The update is the policy loss with advantage 1
and importance ratios of 1, which has the gradient of cross-entropy: a mean over the tokens of each rollout, then over
rollouts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fastslow.base.world import derive_seed
from fastslow.engine.base import Row, Update
from fastslow.records import Completion, Rollout, Turn
from fastslow.slow.update import prompt_mean_scale

Solved = Mapping[str, Sequence[Rollout]]
"""Solved rollouts by problem."""


def build_imitation(rollouts: Sequence[Rollout], step: int) -> Update:
    """Rows for one step from solved rollouts, whose prompts are already those of the seed text."""
    tokens_N = np.array([rollout.completion_tokens for rollout in rollouts])
    weights = prompt_mean_scale(tokens_N, tokens_N > 0, np.arange(len(rollouts)))
    rows = [
        Row(_of_current_policy(turn), float(weight), step - 1)
        for rollout, weight in zip(rollouts, weights, strict=True)
        if weight
        for turn in rollout.turns
    ]
    return Update(step, rows)


def _of_current_policy(turn: Turn) -> Turn:
    """The turn with unknown log-probabilities of sampling: the engine then takes the current policy's, for a ratio of 1."""
    ids = turn.completion.ids
    return replace(turn, completion=Completion(ids, (math.nan,) * len(ids)))


def hold_back(problems: Sequence[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """Problems to learn from and problems to stop early by: at least one of each, unless the share is 0 or there is one."""
    shuffled = sorted(problems)
    random.Random(derive_seed(seed, "held back")).shuffle(shuffled)
    count = min(max(1, round(share * len(shuffled))), len(shuffled) - 1) if share else 0
    return shuffled[count:], shuffled[:count]


def epoch_batches(solved: Solved, problems: Sequence[str], batch: int, epoch: int, seed: int) -> list[list[Rollout]]:
    """One rollout of every problem, in batches of almost equal size: however often a problem was solved, it counts once.

    Later epochs take the next of a problem's rollouts.
    """
    chosen = [solved[problem][epoch % len(solved[problem])] for problem in sorted(problems)]
    random.Random(derive_seed(seed, "imitation", epoch)).shuffle(chosen)
    count = math.ceil(len(chosen) / batch)
    return [chosen[place::count] for place in range(count)]
