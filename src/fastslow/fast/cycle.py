"""The fast loop of a run: its cycles, their journal, and edits drafted while the model trains.

A finished cycle is written to the run folder before its first slow step. A resumed run reads it from there, with what it
spent, and samples no rollout twice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastslow.base.seeds import derive_seed
from fastslow.base.world import World
from fastslow.fast.drafts import Draft
from fastslow.fast.evidence import Evidence, choose_anchors
from fastslow.fast.optimizers import find_optimizer
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Reflector
from fastslow.fast.scoring import PlayFast
from fastslow.fast.search import PATIENCE, TRIES, Cycle, Edit
from fastslow.recipe import FastRecipe, Recipe
from fastslow.records import Context, Example, Rollout
from fastslow.rollouts.play import Player, Timing
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Ledger, Purpose
from fastslow.runs.view import View
from fastslow.tasks.stages import Stages

if TYPE_CHECKING:
    from fastslow.state import State

__all__ = ["PATIENCE", "TRIES", "Cycle", "Edit", "Evolution", "FastLoop"]

Book = Callable[[Purpose, Sequence[Rollout], Timing], None]


class Evolution:
    """Evolves the pool of a run's state."""

    def __init__(
        self,
        recipe: Recipe,
        state: State,
        player: Player,
        reflector: Reflector,
        *,
        book: Book,
        journal: RunFolder | None,
        view: View,
    ) -> None:
        self.recipe, self.state, self.player, self.book = recipe, state, player, book
        self.journal, self.view, self.world = journal, view, player.world
        self.stages = player.task if isinstance(player.task, Stages) else None
        self._played: list[tuple[Rollout, str]] = []
        """The rollouts of the current cycle with their purposes, where they are saved."""
        collective = recipe.fast.reflection.kind == "policy"
        self.search = FastLoop(recipe.fast, reflector, self._play, player.chat.count, self.world, collective=collective)

    def evolve(self, ahead: Sequence[Example]) -> Pool:
        """The pool after this step's cycle; `ahead` are the training problems of the cycle's steps."""
        state, number = self.state, self.state.cycle
        carried = [member.context.id for member in state.pool.members]
        done = self.world.from_main(lambda: self._finished(number))
        if done and done["policy_step"] == state.step and done["carried"] == carried:
            spent = Ledger.from_dict(done["spent"])
            state.ledger.add(spent)
            state.clock.add(spent.total().seconds)
            state.memory.restore(done.get("memory"), ahead)
            return Pool.from_dict(done["population"])
        with state.clock.phase("fast"):
            return self._evolve(number, carried, ahead)

    def _finished(self, number: int) -> dict[str, Any] | None:
        """The journal entry of a cycle that finished before the run was interrupted."""
        return self.journal.cycle(number, self.state.memory.kept) if self.journal else None

    def _evolve(self, number: int, carried: Sequence[str], ahead: Sequence[Example]) -> Pool:
        state, memory = self.state, self.state.memory
        before = state.ledger.snapshot()
        self._played.clear()
        drafts = self._drafts(number)
        evidence = memory.open_cycle(self._same_task())
        scored_by = evidence if self.recipe.fast.rescore == "from-rollouts" else None
        anchors, budget = choose_anchors(ahead, scored_by, self.recipe.fast.anchors), memory.budget
        found = self.search.evolve(
            state.pool,
            anchors,
            cycle=number,
            policy_step=state.step,
            seed=derive_seed(self.recipe.seed, "fast", number),
            progress=lambda text: self.view.cycle(number, text),
            budget=budget,
            evidence=evidence,
            drafts=drafts,
        )
        self._book_reflection()
        for purpose, count in found.reused.items():
            state.ledger.book(purpose, reused=count)  # type: ignore[arg-type]
        best, active = found.pool.best, found.pool.active(self.recipe.slow.group)
        memory.close_cycle(active, ahead, found.found)
        if self.journal:
            entry = {
                "cycle": number,
                "policy_step": state.step,
                "carried": carried,
                "anchors": [example.id for example in anchors],
                "best": best.context.id,
                "active": [context.id for context in active],
                "population": found.pool.to_dict(),
                "dropped": [
                    {"id": member.context.id, "score": member.mean, "scores": dict(member.scores)}
                    for member in found.dropped
                ],
                "edits": [asdict(edit) for edit in found.edits],
                "rejected": [asdict(proposal) for proposal in found.rejected],
                "contexts": [{"id": context.id, **asdict(context)} for context in found.contexts],
                "lines": [asdict(each) for each in found.lines],
                "generations": found.generations,
                "faults": found.faults,
                "budget": budget,
                "spent": state.ledger.since(before).to_dict(),
            }
            if self.recipe.output.save_rollouts:
                rollouts, purposes = [each for each, _ in self._played], [purpose for _, purpose in self._played]
                self.journal.save_fast_rollouts(number, rollouts, purposes)
            self.journal.save_cycle(number, entry, memory.to_data())
        if failed := found.faults.get("reflection_failed"):
            self.view.message(f"cycle {number}: {failed} reflection(s) failed; the others were used", "warning")
        self.view.context(best.context.id, best.mean, "\n".join(best.context.texts.values()))
        return found.pool

    def _play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        rollouts, timing = self.player.play(
            pairs, self.recipe.sampling.training(), policy_step=self.state.step, seed=seed
        )
        self.book(purpose, rollouts, timing)  # type: ignore[arg-type]
        self.state.memory.scored(purpose, rollouts)
        if self.journal and self.recipe.output.save_rollouts:
            self._played += [(rollout, purpose) for rollout in rollouts]
        return rollouts

    def _same_task(self) -> bool:
        """Whether the next step has the same task as the last one."""
        step = self.state.step
        return self.stages is None or self.stages.at(step).name == self.stages.behind(step).name

    def _book_reflection(self) -> None:
        """Move the reflector's usage since the last call to the ledger."""
        usage = self.search.reflector.usage
        faults = {"retries": usage.retries, "failures": usage.failures}
        self.state.ledger.book(
            "reflection",
            calls=usage.calls,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=usage.seconds,
            cost=usage.cost,
            faults={name: count for name, count in faults.items() if count},
        )
        self.search.reflector.usage = type(usage)()

    # Drafts ------------------------------------------------------------------------------------------------------------

    def draft(self) -> None:
        """Start drafting edits while the model trains, unless the journal already has the next cycle."""
        state = self.state
        due = state.memory.drafts_due(state.step, self.recipe.slow.steps)
        if due and self.journal and self.journal.cycle(state.cycle + 1) is None:
            state.memory.desk.start(self._drafting(state.cycle))

    def close(self) -> None:
        """At the end of the run, book drafts that no cycle uses: they cost calls too."""
        self.state.memory.desk.collect(list)
        self._book_reflection()

    def _drafts(self, number: int) -> list[Draft]:
        """The drafts for a cycle; they are made now if drafting was not started."""
        if not self.recipe.fast.overlap or not number:
            return []
        return self.world.from_main(lambda: self.state.memory.desk.collect(self._drafting(number - 1)))

    def _drafting(self, number: int) -> Callable[[], list[Draft]]:
        # A tokenizer must not be used by two threads at once, so the drafts get a copy.
        count = copy.deepcopy(self.player.chat).count
        seed = derive_seed(self.recipe.seed, "drafts", number)
        return self.state.memory.drafting(number, self.state.pool, self.search.reflector, count, seed)


class FastLoop:
    """Evolves a population; holds what is the same for all cycles."""

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
        self.optimizer = find_optimizer(recipe.optimizer.name)
        self.collective = collective
        """The reflector samples the policy, so all processes must call it together."""

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

        `evidence` holds the slow loop's rollouts on these anchors, if they replace re-scoring; `budget` replaces the recipe's
        budget, and `drafts` replace the first reflections on their parents.
        """
        budget = self.recipe.budget if budget is None else budget
        search = self.optimizer(
            self, pool, anchors, cycle, policy_step, seed, progress, budget=budget, evidence=evidence, drafts=drafts
        )
        return search.run()
