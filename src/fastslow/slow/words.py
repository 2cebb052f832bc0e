"""What the grader's words add to the gradient (`slow.feedback`): a rank where rewards are equal, a teacher for failures.

*Rank.* In a group whose rewards are all equal, a rollout's bonus is the share of the others that it got further than by the
grader's words, less the share that got further than it, times `SPREAD / 2` of the smallest difference of two rewards of a
group that the run has seen (1 while it has seen none). So words never weigh as much as a reward, and they sum to 0. The
advantage is the bonus divided by the largest standard deviation that a group with that difference can have, where
`slow.std` divides: two rollouts of such a group are further apart. Groups whose rewards differ have no bonus.

Words are trusted as long as they predict rewards. Where rewards of a group differ, the words of two rollouts with different
rewards either agree with these or not; the share that agrees less the share that does not is the group's *agreement*. Of the
latest `LATEST` groups the agreements must add up to `SURE` times the root of the sum of their squares. Whatever their size,
agreements that are as often negative as positive do that in one case of ninety at most (Hoeffding: exp(−SURE²/2)). With
fewer than `LEAST` groups, which cannot, nothing is known and words count: above all while every reward is 0.

*Distil.* A rollout has failed if its reward is below the mean of its group or, in a group of equal rewards, below 1. What
failed and has words is distilled: the loss at each of its tokens is KL(policy ‖ teacher), where the teacher is the policy of
the cycle's start which has read those words. Others keep the policy loss. The weight is how much the group disagrees: twice
the standard deviation of its rewards, which is 1 where half of them are 0 and half 1; and 1 where all failed alike, because
then nothing else teaches. A single failure among many successes gets little: the policy knows how to do it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastslow.base.text import unlisted
from fastslow.records import Context, Rollout
from fastslow.slow.credit import EPSILON, Floats, Integers

SPREAD = 0.5
"""How far bonuses of a group are apart at most, as a part of the smallest difference of rewards."""
LATEST, LEAST, SURE = 128, 9, 3.0
READ = (
    "An earlier answer to the question below was graded, and the grader said:\n{}\n"
    "Answer the question now; do what the grader asks for, and do not mention the earlier answer."
)
"""What the teacher reads below the context."""


@dataclass(frozen=True)
class Trust:
    """What rewards have said of words so far."""

    smallest: float | None = None
    """The smallest difference of two rewards of a group; None while none differed."""
    agreements: tuple[float, ...] = ()

    def after(self, rollouts: Sequence[Rollout], further: Iterable[NDArray[np.int8]]) -> Trust:
        """With those of a step; `further` has, for each problem, which of its rollouts got further by words."""
        smallest, agreements, start = self.smallest, list(self.agreements), 0
        for signs in further:
            scores = np.array([rollout.score for rollout in rollouts[start : start + len(signs)]])
            start += len(signs)
            gaps = np.diff(np.unique(scores))
            if len(gaps):
                smallest = min(float(gaps.min()), math.inf if smallest is None else smallest)
            told = signs[scores[:, None] > scores]
            if told.any():
                agreements.append(float(told.sum() / np.count_nonzero(told)))
        return replace(self, smallest=smallest, agreements=tuple(agreements[-LATEST:]))

    @property
    def known(self) -> bool | None:
        """Whether words predict rewards; None if too few groups say."""
        if len(self.agreements) < LEAST:
            return None
        return sum(self.agreements) >= SURE * math.sqrt(sum(each**2 for each in self.agreements))

    def bonus(self, further: Iterable[NDArray[np.int8]], rewards_N: Floats, groups_N: Integers) -> Floats:
        """The bonus of every rollout; `further` has a matrix for each problem, whose rollouts follow each other."""
        bonus_N, start = np.zeros(len(rewards_N)), 0
        if self.known is not False:
            largest = SPREAD / 2 * (1.0 if self.smallest is None else self.smallest)
            for signs in further:
                these, start = slice(start, start + len(signs)), start + len(signs)
                same = groups_N[these, None] == groups_N[None, these]
                equal = ~((rewards_N[these, None] != rewards_N[None, these]) & same).any(axis=1)
                others = np.maximum(same.sum(axis=1) - 1, 1)
                bonus_N[these] = largest * equal * (signs * same).sum(axis=1) / others
        return bonus_N

    def advantages(self, bonus_N: Floats, rewards_N: Floats, groups_N: Integers, std: str) -> Floats:
        if std == "none":
            return bonus_N
        sizes_N = np.bincount(groups_N)[groups_N]
        smallest = 1.0 if self.smallest is None else self.smallest
        least_N = smallest / 2 * np.sqrt(sizes_N / np.maximum(sizes_N - 1, 1))
        if std == "batch":
            least_N = np.maximum(least_N, rewards_N.std(ddof=1))
        return np.asarray(bonus_N / (least_N + EPSILON))

    def numbers(self) -> dict[str, Any]:
        """For a row of metrics.jsonl."""
        count = len(self.agreements)
        return {"words_agreement": sum(self.agreements) / count if count else None, "words_trusted": self.known}

    def to_data(self) -> dict[str, Any]:
        return {"smallest": self.smallest, "agreements": self.agreements}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Trust:
        return cls(data["smallest"], tuple(data["agreements"]))


def failed(rewards_N: Floats, groups_N: Integers) -> tuple[NDArray[np.bool_], Floats]:
    """Which rollouts have failed, and how much their groups disagree."""
    failed_N, disagreement_N = np.zeros(len(rewards_N), dtype=bool), np.ones(len(rewards_N))
    for group in np.unique(groups_N):
        members = groups_N == group
        rewards = rewards_N[members]
        equal = not np.ptp(rewards)
        failed_N[members] = rewards < (1.0 if equal else rewards.mean())
        if not equal:
            disagreement_N[members] = min(1.0, 2 * rewards.std())
    return failed_N, disagreement_N


def told(rollout: Rollout) -> Context | None:
    """The context with what the grader said of this rollout below it; None if it said nothing, or the answer is right."""
    feedback = rollout.feedback
    if rollout.score >= 1:
        return None
    texts = {}
    for component, text in rollout.context.texts.items():
        said = feedback.by_component.get(component, feedback.text).strip()
        texts[component] = f"{text}\n\n{READ.format(unlisted(said))}".strip() if said else text
    return Context(texts) if texts != dict(rollout.context.texts) else None
