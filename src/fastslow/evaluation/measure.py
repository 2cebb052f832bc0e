"""Measures a policy on held-out problems: mean@k and best@k with intervals, and its divergence from the base model.

The divergence is KL(policy ‖ base) per token, averaged over tokens, on the policy's own completions, with the same prompt for
both models. It is exact over the vocabulary if the engine has all logits; otherwise it is estimated from the
log-probabilities of the sampled tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.intervals import Z95, interval
from fastslow.base.world import derive_seed
from fastslow.engine.base import Engine
from fastslow.recipe import Recipe
from fastslow.records import Context, Example, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Split
from fastslow.tasks.stages import Stages


@dataclass(frozen=True)
class Measured:
    """One evaluation of a run while it trains: results by label, with rollouts and seconds."""

    results: dict[str, dict[str, Any]]
    rollouts: Sequence[Rollout]
    seconds: float
    """Time for `rollouts`."""
    divergence_rollouts: Sequence[Rollout]
    divergence_seconds: float


def measure(recipe: Recipe, player: Player, seed_context: Context, step: int, best: Context) -> Measured:
    """Evaluate the policy under the seed text and under the context that is best on training problems."""
    contexts = measured_contexts(seed_context, best)
    scores, rollouts, seconds = evaluate_task(
        player,
        contexts,
        "validation",
        recipe.evaluation.problems,
        k=recipe.evaluation.k,
        sampling=recipe.evaluation.sampling(recipe.sampling.max_tokens),
        policy_step=step,
        seed=derive_seed(recipe.seed, "evaluation"),
    )
    results = {label: score.to_dict() for label, score in scores.items()}
    played: list[Rollout] = []
    took = 0.0
    if recipe.evaluation.divergence:
        for label, context in contexts.items():
            results[label]["kl"], drawn, more = _divergence(recipe, player, step, context)
            played += drawn
            took += more
    return Measured(results, rollouts, seconds, played, took)


def _divergence(recipe: Recipe, player: Player, step: int, context: Context) -> tuple[float, list[Rollout], float]:
    """KL of the policy from the base model, both under the same context."""
    if recipe.method == "gepa":
        return 0.0, [], 0.0
    task = player.task.behind(step).task if isinstance(player.task, Stages) else player.task
    pairs = [(example, context) for example in task.examples("validation")[: recipe.evaluation.problems]]
    seed = derive_seed(recipe.seed, "divergence")
    rollouts, timing = player.play(pairs, recipe.sampling.training(), policy_step=step, seed=seed)
    return divergence(player.engine, rollouts).kl, rollouts, timing.total


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


@dataclass(frozen=True)
class Divergence:
    """Mean KL per token in nats, with a 95% interval over rollouts."""

    kl: float
    low: float
    high: float
    tokens: int


def divergence(engine: Engine, rollouts: Sequence[Rollout]) -> Divergence:
    """Mean KL per token of an engine's policy from its base model."""
    found = token_divergences(engine, rollouts)
    sums, counts = [sum(values) for values in found], [len(values) for values in found]
    tokens = sum(counts)
    if not tokens:
        return Divergence(0.0, 0.0, 0.0, 0)
    mean = sum(sums) / tokens
    return Divergence(mean, *_token_interval(mean, sums, counts), tokens)


def token_divergences(engine: Engine, rollouts: Sequence[Rollout]) -> list[list[float]]:
    """The KL of every completion token, by rollout."""
    turns = [(index, turn) for index, rollout in enumerate(rollouts) for turn in rollout.turns]
    found: list[list[float]] = [[] for _ in rollouts]
    for (index, _), scores in zip(turns, engine.score([turn for _, turn in turns]), strict=True):
        estimated = (policy - base for policy, base in zip(scores.policy, scores.base, strict=True))
        found[index] += estimated if scores.kl is None else scores.kl
    return found


def _token_interval(mean: float, sums: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """95% interval of a ratio of sums over rollouts: rollouts are independent, the tokens of one are not."""
    rollouts = len(sums)
    if rollouts < 2:
        return 0.0, math.inf
    spread = sum((total - mean * count) ** 2 for total, count in zip(sums, counts, strict=True))
    error = math.sqrt(spread * rollouts / (rollouts - 1)) / sum(counts)
    return max(0.0, mean - Z95 * error), mean + Z95 * error
