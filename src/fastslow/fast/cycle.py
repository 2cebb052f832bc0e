"""One cycle of the fast loop: a fresh in-memory gepa run on the look-ahead, started from the whole carried population.

Differences from one stock gepa run, and why: the population is re-scored under the current weights before anything else,
since scores belong to the policy that earned them; the budget counts rollouts actually played and leaves that re-scoring
out; proposals are checked (token budget, no duplicate) before a single rollout is spent on them; and a reflection model
that keeps failing ends the cycle, not the run, and so does a context that is right on every anchor. What can be made to
cost less (`rescore`, `race`, drafts) or to see more clearly (`paired`) is described in docs/rollouts.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gepa import optimize
from gepa.core.adapter import EvaluationBatch
from gepa.core.state import GEPAState, ValsetEvaluation
from gepa.strategies.proposal_sampling import IndependentSampling

from fastslow.fast.drafts import Draft
from fastslow.fast.evidence import Evidence, read_attempt
from fastslow.fast.pool import Member, Pool, select
from fastslow.fast.reflection import Attempt, ReflectionFailed, Reflector, Request
from fastslow.fast.scores import mean_score
from fastslow.fast.scoring import PlayFast, Scoring
from fastslow.recipe import FastRecipe
from fastslow.rollouts.play import derive_seed
from fastslow.rollouts.records import Context, Rollout
from fastslow.rollouts.world import World
from fastslow.tasks.base import Example

PATIENCE = 4
"""Failed reflections in a row after which a cycle stops asking."""
TRIES = 4
"""Proposals drawn until one is new."""
FLOOR = 2.0**-30
"""Added to the scores on all anchors that gepa sees: it draws a merge's ancestor by score and fails where all score 0."""

Candidate = dict[int, str]
"""A context in gepa's hands: texts by component number."""


@dataclass
class Edit:
    """One proposed child: which feedback led to it and how it fared against its parent on the minibatch."""

    child: str
    parent: str
    component: str
    feedback: list[str]
    before: float
    after: float | None = None
    accepted: bool = False
    score: float | None = None
    reason: str = ""


@dataclass
class Cycle:
    """What a cycle found."""

    pool: Pool
    edits: list[Edit] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    """Every context the cycle met, carried or proposed, kept or not."""
    generations: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    reused: dict[str, int] = field(default_factory=dict)
    """Rollouts by the purpose they served without being played for it."""


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
        run = _Run(self, pool, anchors, cycle, policy_step, seed, progress, budget, evidence, drafts)
        run.scoring.carried(pool, progress)
        if budget:
            optimize(
                seed_candidate=run.numbered(pool.best.context),
                trainset=run.anchors,
                valset=run.anchors,
                adapter=run,
                custom_candidate_proposer=run.propose,
                reflection_minibatch_size=min(self.recipe.minibatch, len(run.anchors)),
                sampling_strategy=IndependentSampling(self.recipe.proposals),
                use_merge=len(pool.best.context.texts) > 1,
                stop_callbacks=[run.finished],
                callbacks=[run],
                track_best_outputs=False,
                logger=_Quiet(),
                seed=seed,
            )
        return run.result()


class _Quiet:
    def log(self, message: str) -> None:
        """gepa's commentary; the run folder and the view say it better."""


class _Run:
    """gepa's adapter, proposer, stopper and callback for one cycle.

    gepa walks over sets of problem ids and of component names, and a set of strings has another order in every process: it
    is given numbers for both, so that one seed gives one result and the processes of a run agree.
    """

    propose_new_texts = None

    def __init__(
        self,
        loop: FastLoop,
        pool: Pool,
        anchors: Sequence[Example],
        cycle: int,
        policy_step: int,
        seed: int,
        progress: Callable[[str], None],
        budget: int,
        evidence: Evidence | None,
        drafts: Sequence[Draft],
    ) -> None:
        self.loop, self.recipe, self.carried = loop, loop.recipe, pool
        self.budget, self.drafts = budget, list(drafts)
        self.anchors = list({example.id: example for example in anchors}.values())
        self.components = list(pool.best.context.texts)
        self.cycle, self.seed, self.progress = cycle, seed, progress
        self.scoring = Scoring(loop.recipe, loop.play, self.anchors, policy_step, seed, evidence)
        self.scores = self.scoring.scores
        self.contexts = {member.context.id: member.context for member in pool.members}
        self.edits: dict[str, Edit] = {}
        self.faults: dict[str, int] = {}
        self.generations = self.failures_in_a_row = 0
        self.proposing = False
        self.state: GEPAState | None = None

    # Scoring -----------------------------------------------------------------------------------------------------------

    def evaluate(
        self, batch: list[Example], candidate: Candidate, capture_traces: bool = False
    ) -> EvaluationBatch[Rollout, None]:
        """gepa scores its seed this way, which re-scoring already did, and tries merges on a few problems."""
        known = self.scores.members.get(self._context(candidate).id)
        if known is None:
            scores = self.batch_evaluate([(candidate, batch)])[0].scores
        else:
            scores = [known.scores[example.id] for example in batch]
        return EvaluationBatch(outputs=[None] * len(batch), scores=[score + FLOOR for score in scores])

    def batch_evaluate(self, items: list[tuple[Candidate, list[Example]]]) -> list[EvaluationBatch[Rollout, None]]:
        """Play all (candidate, batch) pairs together: minibatches while proposing, all anchors of an accepted child after."""
        pairs = [(self._context(candidate), batch) for candidate, batch in items]
        if not self.proposing and all(len(batch) == len(self.anchors) for _, batch in items):
            return [self._on_anchors(member) for member in self.scoring.in_full([context for context, _ in pairs])]
        results = []
        for (context, batch), rollouts in zip(pairs, self.scoring.minibatches(pairs, self.generations), strict=True):
            scores = [mean_score(drawn) for drawn in rollouts]
            edit = self.edits.get(context.id)
            if edit is not None and edit.after is None:
                edit.after = sum(scores) / len(scores)
            traces = [drawn[0] for drawn in rollouts]
            results.append(EvaluationBatch(outputs=[None] * len(batch), scores=scores, trajectories=traces))
        return results

    def _on_anchors(self, member: Member | None) -> EvaluationBatch[Rollout, None]:
        """A full score; without one, less than any other context has, so that gepa never makes it a parent."""
        scores = [0.0 if member is None else member.scores[example.id] + FLOOR for example in self.anchors]
        return EvaluationBatch(outputs=[None] * len(scores), scores=scores)

    def numbered(self, context: Context) -> Candidate:
        return {number: context.texts[name] for number, name in enumerate(self.components)}

    def _texts(self, candidate: Candidate) -> dict[str, str]:
        return {name: candidate[number] for number, name in enumerate(self.components)}

    def _context(self, candidate: Candidate) -> Context:
        context = Context(self._texts(candidate), born=self.cycle)
        return self.contexts.get(context.id, context)

    # Proposing ---------------------------------------------------------------------------------------------------------

    def make_reflective_dataset(
        self, candidate: Candidate, evaluation: EvaluationBatch[Rollout, None], components: list[int]
    ) -> dict[int, list[dict[str, Any]]]:
        before = sum(evaluation.scores) / len(evaluation.scores)
        return {
            number: [
                {"attempt": attempt, "before": before}
                for rollout in evaluation.trajectories or []
                if (attempt := read_attempt(rollout, self.components[number])) is not None
            ]
            for number in components
        }

    def propose(
        self, candidate: Candidate, dataset: Mapping[int, Sequence[Mapping[str, Any]]], components: list[int]
    ) -> dict[int, str]:
        """A new text for the component whose turn it is, or nothing when reflection fails."""
        parent = self._context(candidate)
        for number in components:
            text = self._new_text(parent, self.components[number], dataset[number])
            if text is not None:
                return {number: text}
        return {}

    def _new_text(self, parent: Context, component: str, records: Sequence[Mapping[str, Any]]) -> str | None:
        attempts: list[Attempt] = [record["attempt"] for record in records]
        before = records[0]["before"] if records else 0.0
        draft = self._draft(parent, component)
        for _ in range(TRIES):
            self.scoring.calls += 1
            request = Request(
                component=component,
                text=parent.texts[component],
                attempts=attempts,
                proposer=self.recipe.proposer,
                max_tokens=self.recipe.max_tokens,
                count_tokens=self.loop.count_tokens,
                seed=derive_seed(self.seed, "reflection", self.scoring.calls),
            )
            outcome, seen = (self._reflect(request), attempts) if draft is None else (draft.text, draft.attempts)
            draft = None
            if isinstance(outcome, ReflectionFailed):
                self._fault("reflection_failed")
                self.failures_in_a_row += PATIENCE if outcome.permanent else 1
                self.progress(f"no edit: {outcome}")
                return None
            if self.loop.count_tokens(outcome) > self.recipe.max_tokens:
                self._fault("proposal_too_long")
                continue
            child = Context({**parent.texts, component: outcome}, (parent.id,), self.cycle)
            if child.id in self.contexts:
                self._fault("proposal_not_new")
                continue
            self.failures_in_a_row = 0
            self.contexts[child.id] = child
            feedback = [attempt.feedback for attempt in seen if attempt.score < 1]
            self.edits[child.id] = Edit(child.id, parent.id, component, feedback, before)
            return outcome
        self.failures_in_a_row += 1
        return None

    def _draft(self, parent: Context, component: str) -> Draft | None:
        """The next draft of an edit like this, taken off the pile."""
        for index, draft in enumerate(self.drafts):
            if (draft.parent, draft.component) == (parent.id, component):
                return self.drafts.pop(index)
        return None

    def _reflect(self, request: Request) -> str | ReflectionFailed:
        def ask() -> str | ReflectionFailed:
            try:
                return self.loop.reflector(request)
            except ReflectionFailed as failure:
                return failure
            except Exception as error:  # gepa would pass over it in silence, and other processes would wait for ever
                return ReflectionFailed(f"the reflector broke: {type(error).__name__}: {error}")

        return ask() if self.loop.collective else self.loop.world.from_main(ask)

    def _fault(self, name: str) -> None:
        self.faults[name] = self.faults.get(name, 0) + 1

    # Watching ----------------------------------------------------------------------------------------------------------

    def finished(self, state: GEPAState) -> bool:
        """Spent, tired of failures, or a context is right on every anchor and nothing is left to find."""
        return self.scores.perfect or self.scoring.spent >= self.budget or self.failures_in_a_row >= PATIENCE

    def on_iteration_start(self, event: Mapping[str, Any]) -> None:
        self.generations += 1
        self.progress(f"generation {self.generations}: {self.scoring.spent}/{self.budget} rollouts")
        self.state = event["state"]
        if self.generations == 1:
            for member in self.scores.members.values():
                if member.context.id == self.carried.best.context.id:  # gepa's seed
                    continue
                self.state.update_state_with_new_program(
                    parent_program_idx=[],
                    new_program=self.numbered(member.context),
                    valset_evaluation=ValsetEvaluation(
                        {}, {number: member.scores[e.id] + FLOOR for number, e in enumerate(self.anchors)}
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

    def result(self) -> Cycle:
        for edit in self.edits.values():
            if edit.child in self.scores.members:
                edit.accepted, edit.score = True, self.scores.members[edit.child].mean
            elif edit.child in self.scoring.stopped:
                drawn = self.scoring.stopped[edit.child]
                mean = sum(map(mean_score, drawn)) / len(drawn)
                edit.reason = f"{mean:.2f} on the first {len(drawn)} of {len(self.anchors)} anchors is too far behind"
            elif edit.after is not None:
                edit.reason = f"{edit.after:.2f} on the minibatch is not above its parent's {edit.before:.2f}"
        chosen = select(list(self.scores.members.values()), self.recipe.population).members
        spare = [replace(member, front=False, wins=0) for member in self.scoring.reserve]
        return Cycle(
            Pool((*chosen, *spare[: self.recipe.population - len(chosen)])),
            list(self.edits.values()),
            list(self.contexts.values()),
            self.generations,
            self.faults,
            self.scoring.reused,
        )
