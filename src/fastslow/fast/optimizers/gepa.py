"""GEPA, the method's own fast optimizer: a fresh in-memory gepa run on the look-ahead, started from the whole population.

Differences from a stock gepa run: evaluator.py describes re-scoring and the budget, base.py the checks of proposals and what
ends a cycle. Beyond those, gepa starts from all carried contexts with their fresh scores instead of one seed, and while no
context scores, the grader's progress breaks ties, because a search by right answers alone would not move.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from gepa import optimize
from gepa.core.adapter import EvaluationBatch
from gepa.core.state import GEPAState, ValsetEvaluation
from gepa.proposer.base import CandidateProposal
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal
from gepa.strategies.component_selector import RoundRobinReflectionComponentSelector
from gepa.strategies.proposal_sampling import IndependentSampling
from pydantic import Field

from fastslow.fast.optimizers.base import Optimizer
from fastslow.fast.pool import Member, is_more, mean_score
from fastslow.recipe import FastRecipe, Part
from fastslow.records import Context, Example, Rollout

FLOOR = 2.0**-30
"""Added to the scores on all anchors that gepa sees: it draws a merge's ancestor by score and fails where all score 0."""

TIE = 2.0**-20
"""The weight of full progress in these scores, where a right answer counts 1: enough to break ties between zeros."""

MERGED = 5
"""Problems that gepa tries a merge on."""

Candidate = dict[int, str]
"""A context as gepa sees it: texts by component number."""
Records = Mapping[int, Sequence[Mapping[str, Any]]]
"""The attempts under a context, by component number."""


class Improvement:
    """Accepts a child whose minibatch scores add up to more than its parent's. gepa's own criterion adds them up in their
    order, where 0.1 + 0.2 is more than 0.3."""

    def should_accept(self, proposal: CandidateProposal, state: GEPAState) -> bool:
        before, after = (proposal.subsample_scores_before or []), (proposal.subsample_scores_after or [])
        return is_more(math.fsum(after), math.fsum(before))


class _Quiet:
    def log(self, message: str) -> None:
        """Ignore gepa's log: the run folder and the view have the same in more detail."""


class _InTurn(RoundRobinReflectionComponentSelector):
    """gepa's own choice of the component to edit, among those that can be edited."""

    def __init__(self, numbers: Collection[Any]) -> None:
        self.numbers = numbers

    def __call__(self, *given: Any, **named: Any) -> list[str]:
        while (chosen := super().__call__(*given, **named))[0] not in self.numbers:
            continue
        return chosen


class ProposerOptions(Part):
    proposer: Literal["light", "full"] = "light"
    """`light` may only make incremental edits to the parent, `full` may rewrite it."""


class GepaOptions(ProposerOptions):
    proposals: int = Field(default=1, ge=1)
    """Children proposed per generation; more fill a GPU better."""


class Gepa(Optimizer):
    """gepa's adapter, reflection, stopper and callback for one cycle.

    gepa iterates over sets of problem ids and of component names, and sets of strings have another order in every process. It
    gets numbers for both, so that one seed gives one result and the processes of a run agree.
    """

    Options = GepaOptions
    supports = frozenset({"rescore", "reuse"})
    evolves_code = True
    covers_budget = False
    propose_new_texts = None
    proposing = False
    """Between the start and the end of an evaluation on a minibatch."""
    state: GEPAState | None = None

    @classmethod
    def most_rollouts(cls, recipe: FastRecipe, anchors: int, components: int) -> int:
        """With the rest of the last generation: its children on a minibatch and on all anchors, or a merge."""
        if not recipe.budget:
            return 0
        children = recipe.optimizer.proposals * (2 * min(recipe.minibatch, anchors) + anchors)
        merge = MERGED + anchors if components > 1 else 0
        return recipe.budget - 1 + max(children, merge) * recipe.samples

    def search(self) -> None:
        optimize(
            seed_candidate=self.numbered(self.carried.best.context),
            trainset=self.anchors,
            valset=self.anchors,
            adapter=self,
            reflection_strategy=self,
            reflection_minibatch_size=min(self.recipe.minibatch, len(self.anchors)),
            sampling_strategy=IndependentSampling(self.recipe.optimizer.proposals),
            acceptance_criterion=Improvement(),
            module_selector=_InTurn({self.components.index(name) for name in self.evolving}),
            use_merge=len(self.components) > 1,
            stop_callbacks=[lambda state: self.finished()],
            callbacks=[self],
            track_best_outputs=False,
            logger=_Quiet(),
            seed=self.seed,
        )

    # Scoring -----------------------------------------------------------------------------------------------------------

    def evaluate(
        self, batch: list[Example], candidate: Candidate, capture_traces: bool = False
    ) -> EvaluationBatch[Rollout, float]:
        """gepa scores its seed this way, which re-scoring already did, and tries merges on a minibatch."""
        known = self.members.get(self._context(candidate).id)
        if known is None:
            scores = [score + FLOOR for score in self.batch_evaluate([(candidate, batch)])[0].scores]
        else:
            scores = [_shown(known, example) for example in batch]
        return EvaluationBatch(outputs=scores, scores=scores)

    def batch_evaluate(self, items: list[tuple[Candidate, list[Example]]]) -> list[EvaluationBatch[Rollout, float]]:
        """Play all (candidate, batch) pairs together: minibatches while proposing, then all anchors for accepted children."""
        pairs = [(self._context(candidate), batch) for candidate, batch in items]
        if not self.proposing and all(len(batch) == len(self.anchors) for _, batch in items):
            members = self.evaluator.in_full([context for context, _ in pairs])
            found = [[_shown(member, example) for example in self.anchors] for member in members]
            return [EvaluationBatch(outputs=scores, scores=scores) for scores in found]
        results = []
        for (context, _), rollouts in zip(pairs, self.evaluator.minibatches(pairs), strict=True):
            scores = [mean_score(drawn) for drawn in rollouts]
            edit = self.edits.get(context.id)
            if edit is not None and edit.after is None:
                edit.after = sum(scores) / len(scores)
            shown = [
                score + TIE * self.evaluator.progress(drawn) for score, drawn in zip(scores, rollouts, strict=True)
            ]
            traces = [drawn[0] for drawn in rollouts]
            results.append(EvaluationBatch(outputs=scores, scores=shown, trajectories=traces))
        return results

    def numbered(self, context: Context) -> Candidate:
        return {number: context.texts[name] for number, name in enumerate(self.components)}

    def _texts(self, candidate: Candidate) -> dict[str, str]:
        return {name: candidate[number] for number, name in enumerate(self.components)}

    def _context(self, candidate: Candidate) -> Context:
        context = Context(self._texts(candidate), born=self.cycle)
        return self.contexts.get(context.id, context)

    # Proposing ---------------------------------------------------------------------------------------------------------

    def make_reflective_dataset(
        self, candidate: Candidate, evaluation: EvaluationBatch[Rollout, float], components: list[int]
    ) -> dict[int, list[dict[str, Any]]]:
        before = sum(evaluation.outputs) / len(evaluation.outputs)
        return {
            number: [
                {"attempt": attempt, "before": before}
                for rollout in evaluation.trajectories or []
                if (attempt := self.attempt(rollout, self.components[number])) is not None
            ]
            for number in components
        }

    def reflect(self, candidate: Candidate, dataset: Records, components: list[int]) -> tuple[ReflectionProposal, Gepa]:
        """A new text for the component whose turn it is, or none when reflection fails."""
        parent = self._context(candidate)
        for number in components:
            component, records = self.components[number], dataset[number]
            before = records[0]["before"] if records else 0.0
            child = self.edited(parent, component, [record["attempt"] for record in records], before)
            if child is not None:
                return ReflectionProposal({number: child.texts[component]}), self
        return ReflectionProposal({}), self

    # Watching ----------------------------------------------------------------------------------------------------------

    def on_iteration_start(self, event: Mapping[str, Any]) -> None:
        self.generations += 1
        self.progress(f"generation {self.generations}: {self.spent}/{self.budget} rollouts")
        self.state = event["state"]
        if self.generations == 1:
            for member in self.members.values():
                if member.context.id == self.carried.best.context.id:  # gepa's seed
                    continue
                self.state.update_state_with_new_program(
                    parent_program_idx=[],
                    new_program=self.numbered(member.context),
                    valset_evaluation=ValsetEvaluation(
                        {}, {number: _shown(member, example) for number, example in enumerate(self.anchors)}
                    ),
                    run_dir=None,
                    num_metric_calls_by_discovery_of_new_program=0,
                )

    def on_evaluation_start(self, event: Mapping[str, Any]) -> None:
        self.proposing = True

    def on_evaluation_end(self, event: Mapping[str, Any]) -> None:
        self.proposing = False

    def on_merge_attempted(self, event: Mapping[str, Any]) -> None:
        assert self.state is not None
        parents = tuple(self._context(self.state.program_candidates[index]).id for index in event["parent_ids"])
        child = Context(self._texts(event["merged_candidate"]), parents, self.cycle)
        self.contexts.setdefault(child.id, child)


def _shown(member: Member, example: Example) -> float:
    """The score of a context on a problem as gepa sees it."""
    score, progress = member.on(example.id)
    return score + TIE * progress + FLOOR
