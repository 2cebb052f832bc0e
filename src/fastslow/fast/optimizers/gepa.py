"""GEPA, the method's own fast optimizer: a fresh in-memory gepa run on the look-ahead, started from the whole population.

Differences from a stock gepa run: search.py describes re-scoring, the budget, the checks of proposals and what ends a cycle.
Beyond those, gepa starts from all carried contexts with their fresh scores instead of one seed, and while no context scores,
the grader's progress breaks ties, because a search by right answers alone would not move.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gepa import optimize
from gepa.core.adapter import EvaluationBatch
from gepa.core.state import GEPAState, ValsetEvaluation
from gepa.proposer.base import CandidateProposal
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal
from gepa.strategies.proposal_sampling import IndependentSampling

from fastslow.base.seeds import derive_seed
from fastslow.fast.drafts import Draft, side_by_side
from fastslow.fast.pool import Member
from fastslow.fast.reflection import Attempt, Request
from fastslow.fast.scores import is_more, mean_score
from fastslow.fast.search import Search
from fastslow.records import Context, Rollout
from fastslow.tasks.base import Example

FLOOR = 2.0**-30
"""Added to the scores on all anchors that gepa sees: it draws a merge's ancestor by score and fails where all score 0."""

TIE = 2.0**-20
"""The weight of full progress in these scores, where a right answer counts 1: enough to break ties between zeros."""

Candidate = dict[int, str]
"""A context as gepa sees it: texts by component number."""
Records = Mapping[int, Sequence[Mapping[str, Any]]]
"""The attempts under a context, by component number."""
Job = tuple[Candidate, Records, list[int]]
"""A context, the attempts under it, and the components to edit."""


class Improvement:
    """Accepts a child whose minibatch scores add up to more than its parent's. gepa's own criterion adds them up in their
    order, where 0.1 + 0.2 is more than 0.3."""

    def should_accept(self, proposal: CandidateProposal, state: GEPAState) -> bool:
        before, after = (proposal.subsample_scores_before or []), (proposal.subsample_scores_after or [])
        return is_more(math.fsum(after), math.fsum(before))


class _Quiet:
    def log(self, message: str) -> None:
        """Ignore gepa's log: the run folder and the view have the same in more detail."""


class Gepa(Search):
    """gepa's adapter, reflection, stopper and callback for one cycle.

    gepa iterates over sets of problem ids and of component names, and sets of strings have another order in every process. It
    gets numbers for both, so that one seed gives one result and the processes of a run agree.
    """

    propose_new_texts = None
    proposing = False
    """Between the start and the end of an evaluation on a minibatch."""
    state: GEPAState | None = None

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
            return [self._on_anchors(member) for member in self.scoring.in_full([context for context, _ in pairs])]
        results = []
        for (context, _), rollouts in zip(pairs, self.scoring.minibatches(pairs), strict=True):
            scores = [mean_score(drawn) for drawn in rollouts]
            edit = self.edits.get(context.id)
            if edit is not None and edit.after is None:
                edit.after = sum(scores) / len(scores)
            shown = [score + TIE * self.scoring.progress(drawn) for score, drawn in zip(scores, rollouts, strict=True)]
            traces = [drawn[0] for drawn in rollouts]
            results.append(EvaluationBatch(outputs=scores, scores=shown, trajectories=traces))
        return results

    def _on_anchors(self, member: Member | None) -> EvaluationBatch[Rollout, float]:
        """The scores on all anchors; without any, less than every other context has, so that gepa never makes it a parent."""
        scores = [0.0 if member is None else _shown(member, example) for example in self.anchors]
        return EvaluationBatch(outputs=scores, scores=scores)

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

    def reflect_many(self, jobs: Sequence[Job]) -> list[tuple[ReflectionProposal, Gepa]]:
        """The proposals of a generation; with `overlap`, those without a draft are requested in parallel."""
        if self.recipe.overlap:
            wanted = self._undrafted(jobs)
            self.drafts += self.loop.world.from_main(lambda: side_by_side(self.loop.reflector, wanted))
        return [self.reflect(*job) for job in jobs]

    def reflect(self, candidate: Candidate, dataset: Records, components: list[int]) -> tuple[ReflectionProposal, Gepa]:
        """A new text for the component whose turn it is, or none when reflection fails."""
        parent = self._context(candidate)
        for number in components:
            text = self._new_text(parent, self.components[number], dataset[number])
            if text is not None:
                return ReflectionProposal({number: text}), self
        return ReflectionProposal({}), self

    def _undrafted(self, jobs: Sequence[Job]) -> list[tuple[str, Request]]:
        drafted = Counter((draft.parent, draft.component) for draft in self.drafts)
        wanted = []
        for place, (candidate, dataset, components) in enumerate(jobs):
            parent, component = self._context(candidate), self.components[components[0]]
            if drafted[parent.id, component]:
                drafted[parent.id, component] -= 1
                continue
            seed = derive_seed(self.seed, "side by side", self.generations, place)
            wanted.append((parent.id, self._request(parent, component, dataset[components[0]], seed)))
        return wanted

    def _request(self, parent: Context, component: str, records: Sequence[Mapping[str, Any]], seed: int) -> Request:
        return Request(
            component=component,
            text=parent.texts[component],
            attempts=[record["attempt"] for record in records],
            proposer=self.recipe.optimizer.proposer,
            max_tokens=self.recipe.max_tokens,
            count_tokens=self.loop.count_tokens,
            seed=seed,
        )

    def _new_text(self, parent: Context, component: str, records: Sequence[Mapping[str, Any]]) -> str | None:
        before = records[0]["before"] if records else 0.0
        draft = self._draft(parent, component)
        if draft is not None:
            drafted = self.offer([parent], component, draft.text, _complaints(draft.attempts), before)
            if drafted is not None:
                return drafted.texts[component]

        def ask(seed: int) -> str:
            return self.loop.reflector(self._request(parent, component, records, seed))

        child = self.child([parent], component, ask, _complaints(record["attempt"] for record in records), before)
        return None if child is None else child.texts[component]

    def _draft(self, parent: Context, component: str) -> Draft | None:
        """The next draft for this parent and component, which is used up."""
        for index, draft in enumerate(self.drafts):
            if (draft.parent, draft.component) == (parent.id, component):
                return self.drafts.pop(index)
        return None

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


def _complaints(attempts: Iterable[Attempt]) -> list[str]:
    return [attempt.feedback for attempt in attempts if attempt.score < 1]
