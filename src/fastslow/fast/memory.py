"""The rollouts that the two loops share; none with default settings.

The fast loop stores rollouts that the slow loop can train on (`reuse`). The slow loop stores rollouts that score the contexts
(`rescore: from-rollouts`, `adaptive`) and that the reflector reads (`overlap`). Both say how likely problems are solved
(`slow.allocation: informative`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fastslow.fast.allowance import Allowance
from fastslow.fast.drafts import Desk, Draft, make_drafts
from fastslow.fast.evidence import Evidence
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Reflector
from fastslow.recipe import FastRecipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Context, Rollout
from fastslow.rollouts.cache import RolloutCache
from fastslow.rollouts.chances import Chances
from fastslow.rollouts.stored import from_data, to_data
from fastslow.tasks.base import Example


class Memory:
    """Kept for one cycle and saved with the run."""

    def __init__(self, recipe: FastRecipe, *, evolves: bool = True, predicts: bool = False) -> None:
        self.recipe = recipe
        self.chances = Chances() if predicts else None
        self.cache = RolloutCache(recipe.reuse_age)
        self.evidence = Evidence()
        self.allowance = Allowance()
        self.desk = Desk()
        # Without a fast loop the evidence would never be used or cleared.
        optimizer = OPTIMIZER.registry.find(recipe.optimizer.name)
        self.reads = recipe.rescore == "from-rollouts" or getattr(optimizer, "reads_rollouts", False)
        self.watches = evolves and (self.reads or recipe.adaptive or recipe.overlap)
        self.kept = self.watches or predicts or (evolves and recipe.reuse)
        """Whether there is anything to save with the run."""

    @property
    def budget(self) -> int:
        return self.allowance.budget(self.recipe.budget)

    def scored(self, purpose: str, rollouts: Sequence[Rollout]) -> None:
        """Store rollouts of the fast loop, except minibatches: the reflector reads those (see `RolloutCache`)."""
        if self.chances:
            self.chances.observe(rollouts)
        if self.recipe.reuse and purpose != "fast-minibatch":
            self.cache.add(rollouts)

    def trained(self, rollouts: Sequence[Rollout]) -> None:
        """Store rollouts sampled by the slow loop, without the reused ones."""
        if self.chances:
            self.chances.observe(rollouts)
        if self.watches:
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

    def to_data(self) -> dict[str, Any] | None:
        """The memory as JSON data, None if nothing is kept. Drafts are not saved: a resumed run makes them again."""
        if not self.kept:
            return None
        return {
            "allowance": self.allowance.to_dict(),
            "evidence": to_data(self.evidence.rollouts),
            "cache": to_data(self.cache.rollouts),
            "chances": self.chances.to_data() if self.chances else None,
        }

    def restore(self, data: Mapping[str, Any] | None, ahead: Sequence[Example]) -> None:
        """Read what `to_data` returned in the cycle of these problems."""
        if data is not None:
            self.allowance = Allowance.from_dict(data["allowance"])
            self.evidence = Evidence(from_data(data["evidence"], ahead))
            self.cache.clear()
            self.cache.add(from_data(data["cache"], ahead))
            if self.chances and data.get("chances"):
                self.chances = Chances.from_data(data["chances"])

    # Drafts ------------------------------------------------------------------------------------------------------------

    def drafts_due(self, step: int, steps: int) -> bool:
        """Whether to start drafting for the next cycle now, in a run of `steps` steps."""
        cycle = step // self.recipe.cycle
        follows = (cycle + 1) * self.recipe.cycle < steps
        return self.recipe.overlap and follows and step >= self._half_way(cycle) and not self.desk.started

    def drafting(
        self, cycle: int, pool: Pool, reflector: Reflector, count_tokens: Callable[[str], int], seed: int
    ) -> Callable[[], list[Draft]]:
        """A function that drafts for the next cycle, from the current pool and the rollouts of this cycle's first half."""
        evidence, budget = self.evidence.until(self._half_way(cycle)), self.budget
        return lambda: make_drafts(self.recipe, reflector, pool, evidence, count_tokens, budget=budget, seed=seed)

    def _half_way(self, cycle: int) -> int:
        return cycle * self.recipe.cycle + (self.recipe.cycle - 1) // 2
