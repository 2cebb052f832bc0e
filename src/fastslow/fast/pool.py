"""The population Φ: contexts, with their scores on each problem and the policy step they were measured at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gepa.gepa_utils import find_dominator_programs

from fastslow.records import Context


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


def compose(contexts: Sequence[Context], problems: int, group: int) -> list[Context]:
    """The context of every rollout of a step, problem by problem: exactly group/K of each in every group."""
    share = group // len(contexts)
    return [context for _ in range(problems) for context in contexts for _ in range(share)]
