"""Advantages and token weights: pure functions of arrays with one entry, `_N`, for each rollout of a step."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Baseline = Literal["problem", "prompt"]
EPSILON = 1e-4  # TRL's, so that one update equals stock TRL's


def baseline_groups(problems_N: Integers, contexts_N: Integers, baseline: Baseline) -> Integers:
    """A group number per rollout; rollouts of one group share a baseline."""
    return problems_N if baseline == "problem" else problems_N * (contexts_N.max() + 1) + contexts_N


def advantages(rewards_N: Floats, groups_N: Integers, std: Literal["group", "batch", "none"]) -> Floats:
    """(r − group mean) / (std + ε), with the std of the group or of the batch; `none` does not divide."""
    result_N = np.zeros_like(rewards_N, dtype=np.float64)
    for group in np.unique(groups_N):
        members = groups_N == group
        rewards = rewards_N[members]
        centred = rewards - rewards.mean()
        by_group = std == "group" and len(rewards) > 1
        result_N[members] = centred / (rewards.std(ddof=1) + EPSILON) if by_group else centred
    if std == "batch":
        result_N /= rewards_N.std(ddof=1) + EPSILON
    return result_N


def informative(rewards_N: Floats, groups_N: Integers) -> NDArray[np.bool_]:
    """Which rollouts are in a group with reward variance; the others have no gradient."""
    result_N = np.zeros(rewards_N.shape, dtype=bool)
    for group in np.unique(groups_N):
        members = groups_N == group
        result_N[members] = np.ptp(rewards_N[members]) > 0
    return result_N


def prompt_mean_scale(tokens_N: Integers, kept_N: NDArray[np.bool_], problems_N: Integers) -> Floats:
    """Factors that turn a mean over all tokens into a mean over each problem's tokens, then over problems.

    The loss divides by the number N of kept tokens. A problem with T of them should be divided by T, and by the number P of
    problems that have any, so the factor is N / (P · T). A problem with more rollouts than another counts as much as it.
    """
    tokens_N = np.where(kept_N, tokens_N, 0)
    per_problem_P = np.bincount(problems_N, tokens_N)
    present = np.count_nonzero(per_problem_P)
    scale_P = np.divide(
        tokens_N.sum(), present * per_problem_P, out=np.zeros(len(per_problem_P)), where=per_problem_P > 0
    )
    return np.asarray(scale_P[problems_N], dtype=np.float64)
