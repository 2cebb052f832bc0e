"""Advantages and token weights: pure functions of arrays, `_P` problems by `_G` rollouts of a group."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Baseline = Literal["problem", "prompt"]
EPSILON = 1e-4  # TRL's, so that one update equals stock TRL's


def baseline_groups(contexts_PG: NDArray[np.int64], baseline: Baseline) -> NDArray[np.int64]:
    """A group number per rollout; rollouts of one group share a baseline."""
    problems_PG = np.arange(len(contexts_PG))[:, None]
    if baseline == "problem":
        return np.broadcast_to(problems_PG, contexts_PG.shape).copy()
    return problems_PG * (contexts_PG.max() + 1) + contexts_PG


def advantages(rewards_PG: Floats, groups_PG: NDArray[np.int64], std: Literal["group", "batch", "none"]) -> Floats:
    """(r − group mean) / (std + ε), with the std of the group or of the batch; `none` does not divide."""
    result_PG = np.zeros_like(rewards_PG, dtype=np.float64)
    for group in np.unique(groups_PG):
        members = groups_PG == group
        rewards = rewards_PG[members]
        centred = rewards - rewards.mean()
        result_PG[members] = centred / (rewards.std(ddof=1) + EPSILON) if std == "group" else centred
    if std == "batch":
        result_PG /= rewards_PG.std(ddof=1) + EPSILON
    return result_PG


def informative(rewards_PG: Floats, groups_PG: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rollouts are in a group with reward variance; the others have no gradient."""
    result_PG = np.zeros(rewards_PG.shape, dtype=bool)
    for group in np.unique(groups_PG):
        members = groups_PG == group
        result_PG[members] = np.ptp(rewards_PG[members]) > 0
    return result_PG


def prompt_mean_scale(tokens_PG: NDArray[np.int64], kept_PG: NDArray[np.bool_]) -> Floats:
    """Factors that turn a mean over all tokens into a mean over each problem's tokens, then over problems.

    The loss divides by the number N of kept tokens. A problem with T of them should be divided by T, and by the number P of
    problems that have any, so the factor is N / (P · T).
    """
    tokens_PG = np.where(kept_PG, tokens_PG, 0)
    per_problem_P = tokens_PG.sum(axis=1)
    present = np.count_nonzero(per_problem_P)
    scale_P = np.divide(tokens_PG.sum(), present * per_problem_P, out=np.zeros(len(tokens_PG)), where=per_problem_P > 0)
    return np.broadcast_to(scale_P[:, None], tokens_PG.shape).copy()
