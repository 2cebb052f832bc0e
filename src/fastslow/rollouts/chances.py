"""What the rollouts of both loops say about each problem's chance of success."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastslow.records import Example, Rollout

HALF_LIFE = 8.0
"""Steps after which a rollout counts half in what is expected of its problem: the policy has changed."""
REMEMBERED = 40
"""Steps after which what was seen of a problem is dropped."""
OTHER_TEXT = 0.5
"""What a rollout under a context that is not played any more counts for."""
PAIRS = 10
"""Pairs of rollouts of one problem that count for half as many differing ones as if all problems were alike."""


class Chances:
    """What every problem's rollouts so far say about its chance of success."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[int, str, float]]] = {}
        """By problem: step of the policy, context and score."""
        self._trained: dict[str, int] = {}
        """By problem: the step that last trained on it."""

    def observe(self, rollouts: Iterable[Rollout]) -> None:
        for rollout in rollouts:
            seen = (rollout.policy_step, rollout.context.id, rollout.score)
            self._seen.setdefault(rollout.example.id, []).append(seen)

    def train(self, problems: Iterable[str], step: int) -> None:
        """Note that a step trained on these problems."""
        self._trained |= dict.fromkeys(problems, step)

    def least_trained(self, problems: Sequence[Example], count: int) -> list[Example]:
        """`count` of these problems: in their order those that no remembered step has trained on, then those that were
        trained on longest ago."""
        return sorted(problems, key=lambda problem: self._trained.get(problem.id, -1))[:count]

    def forget(self, step: int) -> None:
        """Drop what is too old to matter."""
        self._trained = {problem: last for problem, last in self._trained.items() if step - last < REMEMBERED}
        recent = {
            problem: [each for each in seen if step - each[0] < REMEMBERED] for problem, seen in self._seen.items()
        }
        self._seen = {problem: seen for problem, seen in recent.items() if seen}

    def expect(self, problems: Iterable[str], contexts: Iterable[str], step: int) -> dict[str, tuple[float, float]]:
        """The Beta distribution of each problem's chance at this step, under these contexts. Its prior has the mean of all
        problems, and the weight that follows from how often two rollouts of one problem differ."""
        active = set(contexts)
        counts = {problem: self._count(seen, active, step) for problem, seen in self._seen.items()}
        right, wrong = (sum(count[part] for count in counts.values()) for part in (0, 1))
        mean = (right + 1) / (right + wrong + 2)
        within = self._differing(mean, step) / 2
        prior = within / (mean * (1 - mean) - within)
        found = {}
        for problem in problems:
            own_right, own_wrong = counts.get(problem, (0.0, 0.0))
            found[problem] = prior * mean + own_right, prior * (1 - mean) + own_wrong
        return found

    def _differing(self, mean: float, step: int) -> float:
        """How often two rollouts of one problem in one step differ; always less than those of two problems do. Rollouts of
        different steps may differ because the policy has changed, which says nothing about one step."""
        apart = 2 * mean * (1 - mean)
        pairs, differing = float(PAIRS), PAIRS * apart / 2
        for seen in self._seen.values():
            scores: dict[int, list[float]] = {}
            for policy_step, _, score in seen:
                scores.setdefault(policy_step, []).append(score)
            for policy_step, drawn in scores.items():
                weight, right = _weight(step - policy_step), sum(drawn)
                pairs += weight * len(drawn) * (len(drawn) - 1) / 2
                differing += weight * right * (len(drawn) - right)
        return min(differing / pairs, 0.9 * apart)

    @staticmethod
    def _count(seen: Iterable[tuple[int, str, float]], active: set[str], step: int) -> tuple[float, float]:
        right = wrong = 0.0
        for policy_step, context, score in seen:
            weight = _weight(step - policy_step) * (1.0 if context in active else OTHER_TEXT)
            right, wrong = right + weight * score, wrong + weight * (1 - score)
        return right, wrong

    def to_data(self) -> dict[str, Any]:
        return {"seen": dict(self._seen), "trained": dict(self._trained)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Chances:
        found = cls()
        found._trained = dict(data["trained"])
        found._seen = {
            problem: [(step, context, score) for step, context, score in seen] for problem, seen in data["seen"].items()
        }
        return found


def _weight(age: int) -> float:
    """What a rollout counts for whose policy is `age` steps old."""
    return 0.5 ** (age / HALF_LIFE)
