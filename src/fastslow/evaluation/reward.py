"""Evaluation: mean@k and best@k on held-out problems, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.records import Context, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Example, Split
from fastslow.tasks.stages import Stages

Z95 = 1.959964


@dataclass(frozen=True)
class Score:
    """The score of a context: mean@k and best@k, averaged over problems, with 95% intervals."""

    context: str
    problems: int
    k: int
    mean: float
    low: float
    high: float
    best: float
    best_low: float
    best_high: float
    response_length: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def interval(mean: float, problems: int) -> tuple[float, float]:
    """Wilson's 95% interval with one trial per problem.

    Scores are in [0, 1], so their variance is at most mean·(1 − mean): the interval is conservative for k > 1 and graded
    scores, and valid at 0 and 1, where a bootstrap interval has no width.
    """
    centre = (mean + Z95**2 / (2 * problems)) / (1 + Z95**2 / problems)
    half = Z95 / (1 + Z95**2 / problems) * math.sqrt(mean * (1 - mean) / problems + Z95**2 / (4 * problems**2))
    # At 0 and 1 the mean is an end of the interval; rounding must not exclude it.
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def score_rollouts(rollouts: Sequence[Rollout], k: int) -> Score:
    """The score of one context from its rollouts, k consecutive ones per problem."""
    groups = [rollouts[start : start + k] for start in range(0, len(rollouts), k)]
    mean = sum(r.score for r in rollouts) / len(rollouts)
    best = sum(max(r.score for r in group) for group in groups) / len(groups)
    low, high = interval(mean, len(groups))
    best_low, best_high = interval(best, len(groups))
    length = sum(r.completion_tokens for r in rollouts) / len(rollouts)
    return Score(rollouts[0].context.id, len(groups), k, mean, low, high, best, best_low, best_high, length)


def measured_contexts(seed: Context, best: Context) -> dict[str, Context]:
    """The contexts to evaluate, by label: the seed text, and the best on training problems if it is another."""
    return {"seed": seed} if best.id == seed.id else {"seed": seed, "best context": best}


def evaluate_task(
    player: Player,
    contexts: Mapping[str, Context],
    split: Split,
    problems: int,
    *,
    k: int,
    sampling: Sampling,
    policy_step: int,
    seed: int,
) -> tuple[dict[str, Score], list[Rollout], float]:
    """Score contexts, given by label, on the first problems of a split; also return the rollouts and the seconds.

    With stages, `LABEL` is the score on the task of the last step, and every task, that one too, has `LABEL on TASK`.
    """
    task = player.task
    tasks = task.each if isinstance(task, Stages) else {"": task}
    found: dict[str, dict[str, Score]] = {}
    rollouts: list[Rollout] = []
    seconds = 0.0
    for name, each in tasks.items():
        scores, played, took = evaluate(
            player,
            list(contexts.values()),
            each.examples(split)[:problems],
            k=k,
            sampling=sampling,
            policy_step=policy_step,
            seed=seed,
        )
        found[name] = dict(zip(contexts, scores, strict=True))
        rollouts += played
        seconds += took
    if not isinstance(task, Stages):
        return found[""], rollouts, seconds
    by_task = {f"{label} on {name}": score for name, scored in found.items() for label, score in scored.items()}
    return found[task.behind(policy_step).name] | by_task, rollouts, seconds


def evaluate(
    player: Player,
    contexts: Sequence[Context],
    problems: Sequence[Example],
    *,
    k: int,
    sampling: Sampling,
    policy_step: int,
    seed: int,
) -> tuple[list[Score], list[Rollout], float]:
    """Score contexts on the same problems in one batch; also return the rollouts and the seconds."""
    if not problems:
        raise TaskError(
            "the task has no problems to evaluate on; give it some (dataset: holdout or validation_path), "
            "or set evaluation.every=0"
        )
    pairs = [(example, context) for context in contexts for example in problems for _ in range(k)]
    rollouts, timing = player.play(pairs, sampling, policy_step=policy_step, seed=seed)
    size = len(problems) * k
    shares = [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
    return [score_rollouts(share, k) for share in shares], rollouts, timing.total
