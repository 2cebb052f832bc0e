"""From the rollouts of a step to the rows of one update: advantages, token weights, and what there is to learn from.

Arrays have one entry, `_N`, for each rollout of the step. Each turn is a row with its rollout's advantage, or with
one of its own (slow/credit.py).

FST-distill is on-policy distillation of the contexts into the weights. The student is the policy under the seed text. The
teacher is the same model under an evolved context, with its weights at the start of the cycle. The student samples; the loss
at each of its tokens is the reverse KL(student ‖ teacher) over the whole vocabulary, both at the sampling temperature,
without a gradient through the sampled tokens. Each context of the pool teaches an equal share of a group. Rewards are
recorded but not trained on: the weights learn only from the contexts. There is no KL penalty to the base model, and
zero-variance groups are kept.

Imitation, after training, is supervised learning on solved rollouts: what the model answered with a text becomes what it
answers without. The prompts are those of the seed text, the targets the tokens of the answers. The update is the policy loss
with advantage 1 and importance ratios of 1, which has the gradient of cross-entropy: a mean over the tokens of each rollout,
then over rollouts. Where scores are graded, each rollout counts by its score.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastslow.base.errors import Diverged
from fastslow.base.world import derive_seed
from fastslow.engine.base import Numbers, Row, Update
from fastslow.recipe import SlowRecipe
from fastslow.records import Completion, Rollout, Turn
from fastslow.slow.credit import EPSILON, Floats, Integers, Std, turn_advantages
from fastslow.slow.seeking import seeking
from fastslow.slow.words import Trust, failed

Baseline = Literal["problem", "prompt"]
Solved = Mapping[str, Sequence[Rollout]]
"""Solved rollouts by problem."""


@dataclass(frozen=True)
class Signal:
    """How much of a step there is to learn from."""

    zero_variance: float
    """Fraction of groups whose rewards are all equal: they have no gradient."""
    advantages: Sequence[float] | None = field(default=None, compare=False)
    """Of each rollout, without the factor of the aggregation, then of each rescued one; None where rewards are not trained
    on."""
    words: Mapping[str, float | bool | None] = field(default_factory=dict, compare=False)
    """What the grader's words added, for metrics.jsonl."""
    rescued: Sequence[Rollout] = field(default=(), compare=False)
    """Answers that joined their groups."""


@dataclass(frozen=True)
class Rescued:
    """An answer that came with help and is trained without: its prompts are those of its group."""

    group: int
    """The place of its group in the step."""
    rollout: Rollout
    helped: bool
    """Its log-probabilities are those of the prompts with help that the policy read; otherwise they are unknown."""


def build_update(
    rollouts: Sequence[Rollout],
    slow: SlowRecipe,
    step: int,
    rescued: Sequence[Rescued] = (),
    *,
    ranks: tuple[Trust, Sequence[NDArray[np.int8]]] | None = None,
    prompts: Sequence[Sequence[Sequence[int]] | None] | None = None,
) -> tuple[Update, Signal]:
    """Rows for one step; rollouts are grouped by problem, `slow.group` each, and each rescued one is one more of its group.
    Groups whose rewards are all equal are left out, unless words have something to say of them (slow/words.py): `ranks` is
    what words are trusted with and, by problem, which rollouts got further by them; `prompts` are the teacher's for each turn
    of the rollouts that may be distilled. A step has rescued rollouts, or words, or neither.

    Ranked groups count as a mean over all problems of the step, which is added to the mean over those whose rewards differ.
    """
    own, rollouts = len(rollouts), [*rollouts, *(each.rollout for each in rescued)]
    problems_N = np.array([*(np.arange(own) // slow.group), *(each.group for each in rescued)])
    helped_N = [*[False] * own, *(each.helped for each in rescued)]
    rewards_N = np.array([rollout.score for rollout in rollouts], dtype=np.float64)
    tokens_N = np.array([_trained_tokens(rollout) for rollout in rollouts])
    _, contexts_N = np.unique([rollout.context.id for rollout in rollouts], return_inverse=True)
    groups_N = baseline_groups(problems_N, contexts_N, slow.baseline)
    varied_N, advantages_N, by_turn = _by_rewards(rollouts, rewards_N, groups_N, slow)
    ranked_N, taught_N = np.zeros_like(varied_N), np.zeros_like(varied_N)
    words: dict[str, float | bool | None] = {}
    if ranks is not None:
        ranked_N, by_words_N, found = _by_ranks(*ranks, rewards_N, groups_N, slow)
        words = {"gradient_by_reward": float(varied_N.mean()), **found}
        advantages_N = np.where(varied_N, advantages_N, by_words_N)
    if prompts is not None:
        failed_N, disagreement_N = failed(rewards_N, groups_N)
        taught_N = failed_N & np.array([prompt is not None for prompt in prompts]) & (tokens_N > 0)
        words = {"distilled": float(taught_N.mean())}
    trained_N = (varied_N | taught_N) & (tokens_N > 0) & (slow.advantage != "none")
    ranked_N &= tokens_N > 0
    scales_N = _scales(tokens_N, trained_N, ranked_N, problems_N)
    rows = []
    for place in np.flatnonzero(trained_N | ranked_N).tolist():
        rollout, scale = rollouts[place], float(scales_N[place])
        if prompts is not None and taught_N[place]:
            weight = float(disagreement_N[place]) * (scale if _by_problem(slow) else 1.0)
            rows += _taught(rollout, prompts[place] or (), weight)
        else:
            helped = helped_N[place]
            for number in rollout.trained:
                advantage = float(advantages_N[place] if by_turn is None else by_turn[place][number])
                rows.append(Row(rollout.turns[number], advantage, rollout.policy_step, scale, helped=helped))
    return Update(step, rows), Signal(1 - float(varied_N[:own].mean()), advantages_N.tolist(), words, rollouts[own:])


def _trained_tokens(rollout: Rollout) -> int:
    return sum(len(rollout.turns[number].completion.ids) for number in rollout.trained)


def _by_rewards(
    rollouts: Sequence[Rollout], rewards_N: Floats, groups_N: Integers, slow: SlowRecipe
) -> tuple[NDArray[np.bool_], Floats, list[Floats] | None]:
    """Which rollouts have a gradient by their rewards, their advantages, and those of their turns where these differ."""
    if slow.advantage == "mean":
        advantages_N = advantages(rewards_N, groups_N, slow.std)
    else:
        advantages_N = seeking(rewards_N, groups_N, slow.advantage)
    if slow.credit == "rollout":
        return informative(rewards_N, groups_N), advantages_N, None
    by_turn = turn_advantages(rollouts, advantages_N, groups_N, slow.credit, slow.discount, slow.std)
    varied_N = np.isin(groups_N, groups_N[[bool(np.any(found)) for found in by_turn]])
    return varied_N, np.array([found.mean() if len(found) else 0.0 for found in by_turn]), by_turn


def _by_ranks(
    trust: Trust, further: Sequence[NDArray[np.int8]], rewards_N: Floats, groups_N: Integers, slow: SlowRecipe
) -> tuple[NDArray[np.bool_], Floats, dict[str, float | bool | None]]:
    """Which rollouts have a gradient by the grader's words, their advantages, and numbers for metrics.jsonl."""
    bonus_N = trust.bonus(further, rewards_N, groups_N)
    ranked_N = informative(bonus_N, groups_N)
    words = {"gradient_by_words": float(ranked_N.mean()), "words_bonus": float(np.abs(bonus_N).mean())}
    return ranked_N, trust.advantages(bonus_N, rewards_N, groups_N, slow.std), {**words, **trust.numbers()}


def _scales(
    tokens_N: Integers, trained_N: NDArray[np.bool_], ranked_N: NDArray[np.bool_], problems_N: Integers
) -> Floats:
    """The factors of `prompt_mean_scale`. Ranked rollouts are a mean of their own, over all problems of the step, which is
    added to that of the others."""
    scales_N = prompt_mean_scale(tokens_N, trained_N, problems_N)
    if not ranked_N.any():
        return scales_N
    apart_N = prompt_mean_scale(tokens_N, ranked_N, problems_N)
    apart_N *= len(np.unique(problems_N[ranked_N])) / len(np.unique(problems_N)) / tokens_N[ranked_N].sum()
    both_N = np.where(ranked_N, apart_N, scales_N / max(tokens_N[trained_N].sum(), 1))
    return np.asarray(both_N * tokens_N[trained_N | ranked_N].sum())


def _taught(rollout: Rollout, prompts: Sequence[Sequence[int]], weight: float) -> list[Row]:
    return [
        Row(turn, weight, rollout.policy_step, teacher_prompt=tuple(prompt))
        for turn, prompt in zip(rollout.turns, prompts, strict=True)
    ]


def _by_problem(slow: SlowRecipe) -> bool:
    return bool(slow.loss.options.get("aggregation", "problem") == "problem")


def build_distillation(
    rollouts: Sequence[Rollout], prompts: Sequence[Sequence[Sequence[int]] | None], slow: SlowRecipe, step: int
) -> tuple[Update, Signal]:
    """Rows for one step from the student's rollouts, grouped by problem, and the teacher's prompt for each turn.

    Rollouts without teacher prompts (None) are left out.
    """
    problems_N = np.arange(len(rollouts)) // slow.group
    rewards_N = np.array([rollout.score for rollout in rollouts], dtype=np.float64)
    tokens_N = np.array([rollout.completion_tokens for rollout in rollouts])
    kept_N = np.array([prompt is not None for prompt in prompts]) & (tokens_N > 0)
    weights_N = prompt_mean_scale(tokens_N, kept_N, problems_N) if _by_problem(slow) else np.ones(len(rollouts))
    rows = [
        row
        for rollout, teacher_prompts, weight, kept in zip(rollouts, prompts, weights_N, kept_N, strict=True)
        if kept and teacher_prompts is not None
        for row in _taught(rollout, teacher_prompts, float(weight))
    ]
    return Update(step, rows), Signal(1 - float(informative(rewards_N, problems_N).mean()))


def build_imitation(rollouts: Sequence[Rollout], step: int) -> Update:
    """Rows for one step from rollouts, which count by their scores; their prompts are already those of the seed text."""
    tokens_N = np.array([rollout.completion_tokens for rollout in rollouts])
    scores_N = np.array([rollout.score for rollout in rollouts])
    weights = prompt_mean_scale(tokens_N, tokens_N > 0, np.arange(len(rollouts))) * scores_N
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


def baseline_groups(problems_N: Integers, contexts_N: Integers, baseline: Baseline) -> Integers:
    """A group number per rollout; rollouts of one group share a baseline."""
    return problems_N if baseline == "problem" else problems_N * (contexts_N.max() + 1) + contexts_N


def advantages(rewards_N: Floats, groups_N: Integers, std: Std) -> Floats:
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


def require_finite(update: Update, numbers: Numbers) -> None:
    """Raise `Diverged` if the loss, the gradient or a weight of an update is not a finite number."""
    measured = {"loss": "the loss", "grad_norm": "the gradient norm"} if update.rows else {}
    for key, name in {**measured, "largest_weight": "the largest weight"}.items():
        value = numbers.get(key)
        if value is not None and not math.isfinite(value):
            raise Diverged(f"{name} is {value}")
