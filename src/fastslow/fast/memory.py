"""The rollouts that the two loops share, where a recipe asks for it, and how much of its budget the fast loop may spend.

The fast loop stores rollouts that the slow loop can train on (`reuse`). The slow loop stores rollouts that score the contexts
(`rescore: from-rollouts`), that an optimizer reads (`digest`) or that decide the budget (`adaptive`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, variance
from typing import Any

from fastslow.recipe import FastRecipe, Recipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Completion, Context, Example, Rollout
from fastslow.rollouts.rounds import Pending
from fastslow.rollouts.stored import from_data, to_data
from fastslow.tasks.base import TaskMemory

LEAST_SHARE = 1 / 8
"""The share of `fast.budget` that `fast.adaptive` always leaves."""
PATIENCE = 2
"""Cycles without a find, or without a new best reward, before the budget changes."""
CLEAR = 3.0
"""Standard errors by which reward must have fallen to count as a drop."""


class Memory:
    """Kept for one cycle and saved with the run. `reads` says whether the fast loop reads the slow loop's rollouts."""

    def __init__(self, recipe: FastRecipe, reads: bool, task: TaskMemory | None = None) -> None:
        self.recipe, self.reads = recipe, reads
        self.cache = RolloutCache()
        self.evidence = Evidence()
        self.allowance = Allowance()
        self.task = task
        """What the task keeps, if anything."""

    @classmethod
    def of(cls, recipe: Recipe, task: TaskMemory | None = None) -> Memory | None:
        """None where the loops share nothing, with default settings and without a fast loop, and the task keeps nothing."""
        fast = recipe.fast
        if recipe.method == "rl":
            fast = fast.model_copy(update={"rescore": "all", "reuse": False, "adaptive": False})
        learns = recipe.method != "rl" and OPTIMIZER.registry.find(fast.optimizer.name).reads_rollouts
        reads = learns or fast.rescore == "from-rollouts"
        if not (reads or fast.reuse or fast.adaptive or task):
            return None
        return cls(fast, reads, task)

    @property
    def budget(self) -> int:
        return self.allowance.budget(self.recipe.budget)

    def scored(self, purpose: str, rollouts: Sequence[Rollout]) -> None:
        """Store rollouts of the fast loop, except minibatches: the reflector reads those (see `RolloutCache`)."""
        if self.recipe.reuse and purpose != "fast-minibatch":
            self.cache.add(rollouts)

    def trained(self, rollouts: Sequence[Rollout]) -> None:
        """Store rollouts sampled by the slow loop, without the reused ones."""
        if self.reads or self.recipe.adaptive:
            self.evidence.add(rollouts)

    def open_cycle(self, same_task: bool) -> Evidence | None:
        """Start a cycle; return the evidence for it, if the recipe uses it and there is any for this task."""
        if self.recipe.adaptive:
            self.allowance.observe(self.evidence.rewards())
        self.cache.clear()
        usable = self.reads and same_task and self.evidence.rollouts
        return self.evidence if usable else None

    def close_cycle(self, active: Iterable[Context], ahead: Iterable[Example], found: bool) -> None:
        """End a cycle; `found` says whether a candidate of this cycle is now the best, with 95% confidence."""
        self.cache.keep(active, ahead)
        self.evidence = Evidence()
        if self.recipe.adaptive:
            self.allowance.conclude(found)
        if self.task is not None:
            self.task.turn()

    def to_data(self) -> dict[str, Any]:
        return {
            "allowance": self.allowance.to_dict(),
            "evidence": to_data(self.evidence.rollouts),
            "cache": to_data(self.cache.rollouts),
            **({"task": self.task.to_data()} if self.task else {}),
        }

    def restore(self, data: Mapping[str, Any] | None, ahead: Sequence[Example]) -> None:
        """Read what `to_data` returned in the cycle of these problems."""
        if data is not None:
            self.allowance = Allowance.from_dict(data["allowance"])
            self.evidence = Evidence(from_data(data["evidence"], ahead))
            self.cache.clear()
            self.cache.add(from_data(data["cache"], ahead))
            if self.task is not None:
                self.task.restore(data["task"])


class RolloutCache:
    """Fast-loop rollouts that the slow loop trains on instead of sampling new ones, by (problem, context), oldest first.

    Contexts are kept because of their scores, so high scores are over-represented here (docs/rollouts.md, `reuse`): reused
    rollouts never enter a context's score or a mean reward that decisions use.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], list[Rollout]] = {}

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for waiting in self._waiting.values() for rollout in waiting]

    def add(self, rollouts: Iterable[Rollout]) -> None:
        for rollout in rollouts:
            self._waiting.setdefault((rollout.example.id, rollout.context.id), []).append(rollout)

    def keep(self, contexts: Iterable[Context], examples: Iterable[Example]) -> None:
        """Drop rollouts that no group of this cycle can use."""
        wanted, ahead = {context.id for context in contexts}, {example.id for example in examples}
        self._waiting = {key: kept for key, kept in self._waiting.items() if key[0] in ahead and key[1] in wanted}

    def begin(self, pairs: Sequence[tuple[Example, Context]], step: int) -> list[Pending]:
        """Begin a rollout for each pair: a waiting one, if there is one, is finished already."""
        begun = []
        for example, context in pairs:
            waiting = self._waiting.get((example.id, context.id))
            rollout = waiting.pop(0) if waiting else None
            begun.append(Pending(example, context, step, rollout=rollout, reused=rollout is not None))
        return begun

    def clear(self) -> None:
        self._waiting.clear()


class Evidence:
    """The slow loop's rollouts of one cycle as texts and scores without tokens, oldest first.

    They were sampled after the contexts had been selected, so their scores have no selection bias. Reused rollouts of the
    fast loop are excluded.
    """

    def __init__(self, rollouts: Iterable[Rollout] = ()) -> None:
        self.rollouts: list[Rollout] = []
        self.add(rollouts)

    def add(self, rollouts: Iterable[Rollout]) -> None:
        for rollout in rollouts:
            turns = tuple(replace(turn, prompt_ids=(), completion=Completion((), ())) for turn in rollout.turns)
            self.rollouts.append(replace(rollout, turns=turns))

    def problems(self, count: int) -> list[Example]:
        """The latest problems, newest first: the policy that answered them is closest to the current one."""
        return list({rollout.example.id: rollout.example for rollout in reversed(self.rollouts)}.values())[:count]

    def of(self, context: str, examples: Iterable[Example]) -> dict[str, list[Rollout]]:
        """A context's rollouts on each of these problems."""
        found: dict[str, list[Rollout]] = {example.id: [] for example in examples}
        for rollout in self.rollouts:
            if rollout.context.id == context and rollout.example.id in found:
                found[rollout.example.id].append(rollout)
        return found

    def rewards(self) -> list[float]:
        """The mean reward of every problem; problems are the independent samples."""
        by_problem: dict[tuple[str, int], list[float]] = {}
        for rollout in self.rollouts:
            by_problem.setdefault((rollout.example.id, rollout.policy_step), []).append(rollout.score)
        return [fmean(scores) for scores in by_problem.values()]


@dataclass
class Allowance:
    """Halves every cycle once nothing was found for `PATIENCE` cycles, down to `LEAST_SHARE`, and doubles with a find.

    It is whole again when reward drops clearly from one cycle to the next, as it does when the task changes, and once when
    reward has stalled; only a new best reward lets the next stall raise it again.
    """

    share: float = 1.0
    idle: int = 0
    """Cycles in a row without a find."""
    stalled: int = 0
    """Cycles in a row without a new best reward."""
    best: float = -math.inf
    last: tuple[float, float] | None = None
    """Mean reward of the last cycle, and its squared standard error."""

    def observe(self, rewards: Sequence[float]) -> None:
        """Take in the rewards of a cycle's problems, as the slow loop drew them."""
        if len(rewards) < 2:
            return
        mean, error = fmean(rewards), variance(rewards) / len(rewards)
        dropped = self.last is not None and mean < self.last[0] - CLEAR * math.sqrt(error + self.last[1])
        if dropped or mean > self.best + math.sqrt(error):
            self.best, self.stalled = mean, 0
        else:
            self.stalled += 1
        if dropped or self.stalled == PATIENCE:
            self.share, self.idle = 1.0, 0
        self.last = mean, error

    def conclude(self, found: bool) -> None:
        """Take in whether a child of the cycle is now the best of the population, and by more than luck."""
        if found:
            self.share, self.idle = min(1.0, 2 * self.share), 0
        else:
            self.idle += 1
            if self.idle >= PATIENCE:
                self.share = max(LEAST_SHARE, self.share / 2)

    def budget(self, whole: int) -> int:
        return math.ceil(whole * self.share)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "best": None if math.isinf(self.best) else self.best}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Allowance:
        best, last = data["best"], data["last"]
        return cls(**{**data, "best": -math.inf if best is None else best, "last": last and tuple(last)})
