"""From the rewards of rollouts to the scores that contexts are compared by, and when a comparison can stop early."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist, fmean, stdev

from fastslow.fast.pool import Member
from fastslow.records import Context, Rollout

Draws = Mapping[str, Sequence[float]]
"""The rewards drawn on each problem, by problem id; a problem may have none."""

CONTEXT_WEIGHT = 8.0
"""Draws that the mean over all contexts counts for in the mean of one."""
PROBLEM_WEIGHT = 2.0
"""Draws that a context's mean counts for in its score on one problem."""
CONFIDENCE = 1.645
"""Standard deviations that one side of a 95% interval is wide."""
SLICES = (0.25, 0.5)
"""Shares of the anchors after which a race may stop."""


ROUNDING = 1e-12


def is_more(value: float, other: float) -> bool:
    """Whether a sum or a mean of scores is larger than another by more than the error of floating-point numbers."""
    return value - other > ROUNDING


def mean_score(rollouts: Sequence[Rollout]) -> float:
    return sum(rollout.score for rollout in rollouts) / len(rollouts)


def mean_progress(rollouts: Sequence[Rollout]) -> float:
    return sum(rollout.progress for rollout in rollouts) / len(rollouts)


def plain(draws: Draws) -> dict[str, float]:
    """The mean draw on every problem."""
    return {problem: sum(scores) / len(scores) for problem, scores in draws.items()}


def shrunken(draws: Draws, overall: float) -> dict[str, float]:
    """Posterior means: a problem's score is shrunken towards the context's mean, and that towards the mean of all contexts.

    For rewards of 0 and 1 this is the Beta-Bernoulli model with the prior means and the counts above. One lucky draw moves a
    score by a third of the way, many move it nearly all of it, and a problem without a draw has the context's mean.
    """
    everything = [score for scores in draws.values() for score in scores]
    mean = (CONTEXT_WEIGHT * overall + sum(everything)) / (CONTEXT_WEIGHT + len(everything))
    return {
        problem: (PROBLEM_WEIGHT * mean + sum(scores)) / (PROBLEM_WEIGHT + len(scores))
        for problem, scores in draws.items()
    }


def race_stops(anchors: int) -> list[int]:
    """After how many anchors a race may stop, the end included."""
    stops = {math.ceil(share * anchors) for share in SLICES} | {anchors}
    return sorted(stops)


class Scores:
    """The scored contexts of one cycle."""

    def __init__(self, overall: float | None = None) -> None:
        self.overall = overall
        """The mean that scores are shrunken towards; None takes the mean draw as it is."""
        self.members: dict[str, Member] = {}
        self.draws: dict[str, Draws] = {}
        self.perfect = False
        """Some context was right in every draw on every anchor."""

    def remember(
        self, context: Context, draws: Draws, policy_step: int, progress: Mapping[str, float] | None = None
    ) -> Member:
        """Score a context by its draws under a policy."""
        member = Member(context, self.estimate(draws), policy_step, progress=progress or {})
        self.members[context.id], self.draws[context.id] = member, draws
        self.perfect |= all(scores and min(scores) >= 1 for scores in draws.values())
        return member

    def forget_progress(self) -> None:
        for key, member in self.members.items():
            self.members[key] = replace(member, progress={})

    def estimate(self, draws: Draws) -> dict[str, float]:
        return plain(draws) if self.overall is None else shrunken(draws, self.overall)

    def surely_better(self, one: Member, other: Member, tried: int = 1) -> bool:
        """Whether one context is better than another with 95% confidence, on the problems that both have draws on; `tried`
        corrects for choosing it as the best of that many candidates."""
        mine, theirs = self.draws[one.context.id], self.draws[other.context.id]
        gains = [fmean(mine[problem]) - fmean(theirs[problem]) for problem in mine if mine[problem] and theirs[problem]]
        needed = NormalDist().inv_cdf(1 - 0.05 / tried)
        return len(gains) > 1 and fmean(gains) > needed * stdev(gains) / math.sqrt(len(gains))

    def hopeless(self, draws: Draws, places: int) -> bool:
        """Whether a context, by its draws on some of the anchors, is best on none of them and, with 95% confidence, worse
        than the last context that would be kept."""
        ranked = sorted(self.members.values(), key=lambda member: -member.mean)
        if len(ranked) < places:
            return False
        known = self.draws[ranked[places - 1].context.id]
        mean, variance = _beta([score for scores in draws.values() for score in scores])
        other_mean, other_variance = _beta([score for problem in draws for score in known[problem]])
        if mean + CONFIDENCE * math.sqrt(variance + other_variance) >= other_mean:
            return False
        best = {problem: max(member.scores[problem] for member in ranked) for problem in draws}
        return all(score <= best[problem] for problem, score in self.estimate(draws).items())


def _beta(scores: Sequence[float]) -> tuple[float, float]:
    """Mean and variance of the Beta posterior of a success rate, from the uniform prior."""
    mean = (1 + sum(scores)) / (2 + len(scores))
    return mean, mean * (1 - mean) / (3 + len(scores))
