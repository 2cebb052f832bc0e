"""One cycle of the fast loop in a run: evidence and anchors, the optimizer, what it cost, and the journal.

A finished cycle is written to the run folder before its first slow step. A resumed run reads it from there, with what it
spent, and samples no rollout twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from fastslow.base.world import derive_seed
from fastslow.fast.evaluator import Book, Evaluator
from fastslow.fast.memory import Evidence
from fastslow.fast.optimizers.base import NO_PROPOSAL, Cycle, Optimizer
from fastslow.fast.pool import Member, Pool
from fastslow.fast.reflection import Reflector
from fastslow.recipe import Recipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Example, Rollout
from fastslow.rollouts.play import Player, Timing, is_faulty
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Entry, Ledger, Purpose
from fastslow.runs.view import View
from fastslow.tasks.stages import Stages

if TYPE_CHECKING:
    from fastslow.state import State


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
        self.recipe, self.state, self.player, self.reflector = recipe, state, player, reflector
        self.book, self.journal, self.view = book, journal, view
        self.sampling = recipe.sampling.training()
        self.optimizer: type[Optimizer] = OPTIMIZER.registry.find(recipe.fast.optimizer.name)
        self._drawn: dict[str, list[float]] = {}
        """By context: the scores of the rollouts that the present cycle has seen."""
        code = [each.name for each in player.task.components if each.kind == "code"]
        if code and not getattr(reflector, "writes_code", True):
            view.message(f"without a reflection model no code is written: {', '.join(code)} stays as it is", "warning")

    def evolve(self, look_ahead: Sequence[Example]) -> Pool:
        """The pool after this step's cycle; `look_ahead` are the training problems of the cycle's steps."""
        state, number = self.state, self.state.cycle
        carried = [member.context.id for member in state.pool.members]
        journal, memory = self.journal, state.memory
        done = self.player.world.from_main(lambda: journal.cycle(number, memory is not None) if journal else None)
        if done and done["policy_step"] == state.step and done["carried"] == carried:
            spent = Ledger.from_dict(done["spent"])
            state.ledger.add(spent)
            state.clock.add(spent.total().seconds)
            if memory:
                memory.restore(done.get("memory"), look_ahead)
            return Pool.from_dict(done["population"])
        with state.clock.phase("fast"):
            before = state.ledger.snapshot()
            evaluator = self._evaluator(number, look_ahead)
            self._drawn = _by_context(evaluator.evidence.rollouts) if evaluator.evidence else {}
            found = self.optimizer(self.recipe.fast).evolve(evaluator, self.reflector, state.pool)
            if self.optimizer.reads_rollouts:  # its scores are expectations
                found.pool = Pool(tuple(replace(each, drawn=self._mean(each)) for each in found.pool.members))
            self._book(found)
            if memory:
                memory.close_cycle(found.pool.active(self.recipe.slow.group), look_ahead, found.found)
            if journal:
                self._write(journal, evaluator, found, carried, state.ledger.since(before))
        if failed := found.faults.get("reflection_failed"):
            self.view.message(f"cycle {number}: {_failures(failed, evaluator.asked, found)}", "warning")
        best = found.pool.best
        self.view.context(best.context.id, best.mean, "\n".join(best.context.texts.values()), best.drawn)
        return found.pool

    def _evaluator(self, number: int, look_ahead: Sequence[Example]) -> Evaluator:
        """Open the cycle's evidence and choose the anchors."""
        recipe, memory, player = self.recipe, self.state.memory, self.player
        task, step = player.task, self.state.step
        same_task = not isinstance(task, Stages) or task.at(step).name == task.behind(step).name
        evidence = memory.open_cycle(same_task) if memory else None
        scored_by = evidence if recipe.fast.rescore == "from-rollouts" else None
        return Evaluator(
            recipe.fast,
            player,
            choose_anchors(look_ahead, scored_by, recipe.fast.anchors),
            sampling=self.sampling,
            cycle=number,
            policy_step=step,
            seed=derive_seed(recipe.seed, "fast", number),
            budget=memory.budget if memory else recipe.fast.budget,
            evidence=evidence,
            components=player.library.components if player.library else task.components,
            count_tokens=player.chat.count,
            world=player.world,
            book=self._played,
            report=lambda text: self.view.cycle(number, text),
            problems=partial(task.examples, "train"),
            saves=self.journal is not None and recipe.output.save_rollouts,
        )

    def _played(self, purpose: Purpose, rollouts: Sequence[Rollout], timing: Timing) -> None:
        """Book rollouts, and keep them where the slow loop may train on them."""
        self.book(purpose, rollouts, timing)
        for name, scores in _by_context(rollouts).items():
            self._drawn.setdefault(name, []).extend(scores)
        if self.state.memory:
            self.state.memory.scored(purpose, rollouts)

    def _mean(self, member: Member) -> tuple[float, int]:
        """The mean score of the rollouts that this cycle saw under a context, and their number."""
        scores = self._drawn.get(member.context.id, [])
        return (fmean(scores) if scores else 0.0), len(scores)

    def _book(self, found: Cycle) -> None:
        """Book the rollouts that were reused, and what the reflector has used."""
        ledger, usage = self.state.ledger, self.reflector.usage
        faults = {"retries": usage.retries, "failures": usage.failures}
        spent = replace(usage.spent, faults={name: count for name, count in faults.items() if count})
        ledger.book("reflection", spent)
        self.reflector.usage = type(usage)()
        for purpose, count in found.reused.items():
            ledger.book(purpose, Entry(reused=count))

    def _write(
        self, journal: RunFolder, evaluator: Evaluator, found: Cycle, carried: Sequence[str], spent: Ledger
    ) -> None:
        entry = {
            "cycle": evaluator.cycle,
            "policy_step": evaluator.policy_step,
            "carried": carried,
            "anchors": [example.id for example in evaluator.anchors],
            "best": found.pool.best.context.id,
            "active": [context.id for context in found.pool.active(self.recipe.slow.group)],
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
            "budget": evaluator.budget,
            "spent": spent.to_dict(),
        }
        if evaluator.saves:
            rollouts, purposes = [each for each, _ in evaluator.saved], [purpose for _, purpose in evaluator.saved]
            journal.save_rollouts(evaluator.cycle, rollouts, purposes, of="cycle")
        memory = self.state.memory
        journal.save_cycle(evaluator.cycle, entry, memory.to_data() if memory else None)


def _by_context(rollouts: Iterable[Rollout]) -> dict[str, list[float]]:
    """Scores by the context that they were drawn under, without faulty grades."""
    found: dict[str, list[float]] = {}
    for rollout in rollouts:
        if not is_faulty(rollout):
            found.setdefault(rollout.context.id, []).append(rollout.score)
    return found


def _failures(failed: int, asked: int, found: Cycle) -> str:
    reasons = [each.reason for each in found.rejected if each.reason.startswith(NO_PROPOSAL)]
    last = f"; the last: {reasons[-1].removeprefix(NO_PROPOSAL)}" if reasons else ""
    if failed >= asked:
        which = "the only reflection" if failed == 1 else f"all {failed} reflections"
        return f"{which} failed, so the reflection model proposed nothing{last}"
    return f"{failed} of {asked} reflections failed; the others were used{last}"


def choose_anchors(look_ahead: Sequence[Example], evidence: Evidence | None, count: int) -> list[Example]:
    """The problems that contexts are scored on: the first of the look-ahead, which are also the first to be trained on.

    With evidence, the anchors are the latest training problems instead: only those have rollouts of the carried contexts, and
    contexts can only be compared on the same problems.
    """
    if evidence is not None and evidence.rollouts:
        return evidence.problems(count)
    return list({example.id: example for example in look_ahead}.values())[:count]
