"""The population Φ: contexts, their scores on each problem, and how contexts are compared and selected by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, fmean, stdev
from typing import Any

from gepa.gepa_utils import find_dominator_programs

from fastslow.records import Context, Rollout


@dataclass(frozen=True)
class Member:
    """A context and its score on each anchor problem, under the policy of one step."""

    context: Context
    scores: Mapping[str, float] = field(default_factory=dict)
    scored_at: int = 0
    front: bool = False
    """On the Pareto front: best on some problem that no other member covers."""
    wins: int = 0
    """The number of problems on which no other context was better."""
    progress: Mapping[str, float] = field(default_factory=dict)
    """How far its answers to each problem got, where the grader says so; it breaks ties while no context has scored."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What its optimizer keeps about it beside the texts, such as counters; plain data that JSON can hold."""
    drawn: tuple[float, int] | None = None
    """Only where its scores are expected rather than measured: the mean score of the rollouts that its cycle saw under it,
    and their number."""

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores) if self.scores else 0.0

    @property
    def worth(self) -> tuple[float, float]:
        """Mean score and mean progress, which members are ranked by."""
        return self.mean, sum(self.progress.values()) / max(1, len(self.progress))

    def on(self, problem: str) -> tuple[float, float]:
        """Score and progress on one problem."""
        return self.scores[problem], self.progress.get(problem, 0.0)


@dataclass(frozen=True)
class Pool:
    """The contexts carried from cycle to cycle, best first."""

    members: tuple[Member, ...]

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Pool:
        return cls((Member(Context(dict(texts))),))

    @property
    def best(self) -> Member:
        return self.members[0]

    @property
    def ids(self) -> set[str]:
        return {member.context.id for member in self.members}

    def active(self, group: int) -> list[Context]:
        """The contexts a group is played under: the largest number of the best that divides the group size."""
        count = max(k for k in range(1, len(self.members) + 1) if group % k == 0)
        return [member.context for member in self.members[:count]]

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {
                "id": member.context.id,
                "texts": dict(member.context.texts),
                "parents": list(member.context.parents),
                "born": member.context.born,
                "score": member.mean,
                "wins": member.wins,
                "front": member.front,
                "scored_at": member.scored_at,
                "scores": dict(member.scores),
                **({"progress": dict(member.progress)} if any(member.progress.values()) else {}),
                **({"notes": member.notes} if member.notes else {}),
                **({"drawn": list(member.drawn)} if member.drawn else {}),
            }
            for member in self.members
        ]

    @classmethod
    def from_dict(cls, data: Sequence[Mapping[str, Any]]) -> Pool:
        return cls(
            tuple(
                Member(
                    Context(item["texts"], tuple(item["parents"]), item["born"]),
                    item["scores"],
                    item["scored_at"],
                    item["front"],
                    item["wins"],
                    item.get("progress", {}),
                    item.get("notes", {}),
                    tuple(item["drawn"]) if "drawn" in item else None,
                )
                for item in data
            )
        )


def select(candidates: Sequence[Member], size: int) -> Pool:
    """The best `size` distinct contexts: the best mean, the rest of the Pareto front by mean score, then the others.

    The front is the smallest set of contexts that together win every problem, and may lack the best mean. All candidates were
    scored on the same problems. Ties go to the context that wins more problems, then to the older one. Progress breaks ties
    only while no context has scored: once there are right answers, how right the others look says nothing.
    """
    if any(member.mean for member in candidates):
        candidates = [replace(member, progress={}) for member in candidates]
    distinct = list({member.context.id: member for member in reversed(candidates)}.values())[::-1]
    best = {
        problem: max(member.on(problem) for member in distinct)
        for problem in dict.fromkeys(key for member in distinct for key in member.scores)
    }
    winners = {
        problem: {index for index, member in enumerate(distinct) if member.on(problem) == top}
        for problem, top in best.items()
    }
    wins = [sum(index in group for group in winners.values()) for index in range(len(distinct))]
    worth = [(member.worth, wins[index], -index) for index, member in enumerate(distinct)]  # the least goes first
    front = set(find_dominator_programs(winners, worth)) if winners else {0}
    ranked = [replace(member, front=index in front, wins=wins[index]) for index, member in enumerate(distinct)]
    ranked.sort(key=lambda member: (member.worth, member.wins), reverse=True)
    rest = sorted(ranked[1:], key=lambda member: not member.front)
    kept = [ranked[0], *rest[: size - 1]]
    kept.sort(key=lambda member: (member.worth, member.wins), reverse=True)
    return Pool(tuple(kept))


Draws = Mapping[str, Sequence[float]]
"""The rewards drawn on each problem, by problem id; a problem may have none."""

CONTEXT_WEIGHT = 8.0
"""Draws that the mean over all contexts counts for in the mean of one."""
PROBLEM_WEIGHT = 2.0
"""Draws that a context's mean counts for in its score on one problem."""

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
