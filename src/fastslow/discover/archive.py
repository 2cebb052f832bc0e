"""The archive of a search: the candidates that are kept, what was tried, and what of it later problems show.

Candidates live on islands. A problem belongs to an island and shows a parent of it: good candidates are more likely, those
with many children less. Each island keeps its best, one of each score, and now and then hands its best to the next.
A `View` is the archive as problems show it and as answers are rewarded by; it stays the same within a step, so that no answer
depends on which other was evaluated first.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastslow.discover.problem import Problem
from fastslow.records import Record

GREED = 4.0
"""Ranks over which the chance to be a parent falls to 1/e."""
MIGRATION = 10
"""Turns after which each island hands its best candidate to the next."""
BEST, WORST, TOP = 0.9, 0.1, 0.99
"""Rewards of the best and the worst score so far, and what a better one approaches."""


@dataclass(frozen=True)
class Candidate(Record):
    """A candidate that has a score."""

    id: str
    text: str
    score: float
    words: str
    number: int
    """Of its evaluation, from 1."""
    parent: str = ""
    """The id of the candidate that it was proposed from."""
    by: str = "seed"
    """Who proposed it."""


@dataclass(frozen=True)
class View(Record):
    """What problems show, and rewards are measured by."""

    problem: Problem
    islands: Sequence[Sequence[Candidate]]
    scores: Sequence[float]
    """The values of all different scores so far, the best last."""
    children: Mapping[str, int]
    evaluations: int

    def parent(self, island: int, seed: int) -> Candidate | None:
        """Chosen by chance among the candidates of an island."""
        found = self.islands[island % len(self.islands)] or [each for those in self.islands for each in those]
        if not found:
            return None
        weights = [
            math.exp(-rank / GREED) / math.sqrt(1 + self.children.get(each.id, 0)) for rank, each in enumerate(found)
        ]
        return random.Random(seed).choices(found, weights)[0]

    def others(self, parent: Candidate | None, count: int, seed: int) -> list[Candidate]:
        """The best of all and some by chance, all different from the parent."""
        known = {each.id: each for those in self.islands for each in those if parent is None or each.id != parent.id}
        ranked = sorted(known.values(), key=lambda each: (-self.problem.value(each.score), each.number))
        return [*ranked[:1], *random.Random(seed).sample(ranked[1:], min(max(count - 1, 0), len(ranked[1:])))][:count]

    def reward(self, value: float) -> float:
        """Where a score stands among all so far, in (0, 1): higher for every better score, above `BEST` for a new best."""
        scores = self.scores
        if not scores:
            return (BEST + WORST) / 2
        low, high = scores[0], scores[-1]
        spread = (high - scores[len(scores) // 2]) or abs(high) or 1.0
        if value >= high:
            return TOP - (TOP - BEST) * math.exp(-(value - high) / spread)
        if value <= low:
            return WORST / 5 + (WORST - WORST / 5) * math.exp(-(low - value) / spread)
        place = bisect_right(scores, value) - 1
        within = (value - scores[place]) / (scores[place + 1] - scores[place])
        return WORST + (BEST - WORST) * (place + within) / (len(scores) - 1)


class Archive:
    """What is kept of a search; `to_data` and `restore` are all of it."""

    def __init__(self, problem: Problem, islands: int, keep: int) -> None:
        self.problem, self.keep = problem, keep
        self.islands: list[list[Candidate]] = [[] for _ in range(islands)]
        self.seen: dict[str, tuple[int, float | None]] = {}
        """Of every candidate that was evaluated: the number of its evaluation, and its score, None if it was invalid."""
        self.scores: list[float] = []
        self.children: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """Evaluations and what came of them."""
        self.best: Candidate | None = None
        """The best whose score was verified."""
        self.turns = 0
        self.look()

    def add(self, candidate: Candidate, island: int | None = None) -> None:
        """Keep a valid candidate, on an island or, without one, on all of them."""
        value = self.problem.value(candidate.score)
        place = bisect_left(self.scores, value)
        if self.scores[place : place + 1] != [value]:
            insort(self.scores, value)
        for those in self.islands if island is None else [self.islands[island % len(self.islands)]]:
            self._settle(those, candidate)

    def _settle(self, those: list[Candidate], candidate: Candidate) -> None:
        if any(each.id == candidate.id for each in those):
            return
        same = next((place for place, each in enumerate(those) if each.score == candidate.score), None)
        if same is not None:  # of one score the shorter one, which is easier to read and to change
            if len(candidate.text) < len(those[same].text):
                those[same] = candidate
            return
        those.append(candidate)
        those.sort(key=lambda each: (-self.problem.value(each.score), each.number))
        del those[self.keep :]

    def turn(self) -> None:
        """Let problems show what was added."""
        self.turns += 1
        if self.turns % MIGRATION == 0 and len(self.islands) > 1:
            best = [those[0] if those else None for those in self.islands]
            for place, candidate in enumerate(best):
                if candidate is not None:
                    self._settle(self.islands[(place + 1) % len(self.islands)], candidate)
        self.look()

    def look(self) -> None:
        islands, evaluations = tuple(map(tuple, self.islands)), self.counts["evaluations"]
        self.view = View(self.problem, islands, tuple(self.scores), dict(self.children), evaluations)

    def to_data(self) -> dict[str, Any]:
        kept = {each.id: each for those in self.islands for each in those}
        return {
            "candidates": [asdict(each) for each in kept.values()],
            "islands": [[each.id for each in those] for those in self.islands],
            "seen": {name: list(found) for name, found in self.seen.items()},
            "scores": list(self.scores),
            "children": dict(self.children),
            "counts": dict(self.counts),
            "best": asdict(self.best) if self.best else None,
            "turns": self.turns,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        kept = {each["id"]: Candidate(**each) for each in data["candidates"]}
        self.islands = [[kept[name] for name in those] for those in data["islands"]]
        self.scores = list(data["scores"])
        self.seen = {name: (number, score) for name, (number, score) in data["seen"].items()}
        self.children, self.counts = Counter(data["children"]), Counter(data["counts"])
        self.best = Candidate(**data["best"]) if data["best"] else None
        self.turns = data["turns"]
        self.look()
