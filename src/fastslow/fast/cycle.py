"""One cycle of the fast loop: the recipe's optimizer evolves the carried population on the look-ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastslow.fast.drafts import Draft
from fastslow.fast.evidence import Evidence
from fastslow.fast.optimizers import find_optimizer
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Reflector
from fastslow.fast.scoring import PlayFast
from fastslow.fast.search import PATIENCE, TRIES, Cycle, Edit
from fastslow.recipe import FastRecipe
from fastslow.tasks.base import Example
from fastslow.world import World

__all__ = ["PATIENCE", "TRIES", "Cycle", "Edit", "FastLoop"]


class FastLoop:
    """Evolves a population; holds what stays the same from cycle to cycle."""

    def __init__(
        self,
        recipe: FastRecipe,
        reflector: Reflector,
        play: PlayFast,
        count_tokens: Callable[[str], int],
        world: World,
        *,
        collective: bool = False,
    ) -> None:
        self.recipe, self.reflector, self.play = recipe, reflector, play
        self.count_tokens, self.world = count_tokens, world
        self.optimizer = find_optimizer(recipe.optimizer)
        self.collective = collective
        """The reflector samples the policy, which all processes must do together."""

    def evolve(
        self,
        pool: Pool,
        anchors: Sequence[Example],
        *,
        cycle: int,
        policy_step: int,
        seed: int,
        progress: Callable[[str], None] = lambda text: None,
        budget: int | None = None,
        evidence: Evidence | None = None,
        drafts: Sequence[Draft] = (),
    ) -> Cycle:
        """Re-score the carried contexts on the anchors, evolve until the budget is spent, keep the best K.

        `evidence` has the slow loop's rollouts on these anchors, where scores are taken from them; `budget` stands for the
        recipe's, `drafts` for the first reflections on their parents.
        """
        budget = self.recipe.budget if budget is None else budget
        search = self.optimizer(
            self, pool, anchors, cycle, policy_step, seed, progress, budget=budget, evidence=evidence, drafts=drafts
        )
        return search.run()
