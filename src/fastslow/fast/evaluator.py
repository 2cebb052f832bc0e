"""Plays contexts on problems for one cycle: within a budget, booked, scored, and without playing what is known already.

A score belongs to the policy that earned it, so contexts carried into a cycle are scored again under the current weights;
that is not part of the budget. docs/rollouts.md describes the settings that save rollouts: `rescore` and `reuse`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from fastslow.base.world import World, derive_seed
from fastslow.fast.memory import Evidence
from fastslow.fast.pool import Member, Pool, Scores, mean_progress, mean_score
from fastslow.fast.reflection.base import KINDS, Kind, kind_of
from fastslow.recipe import FastRecipe
from fastslow.records import Component, Context, Example, Rollout, Sampling
from fastslow.rollouts.play import Player, Timing
from fastslow.runs.ledger import Purpose

Book = Callable[[Purpose, Sequence[Rollout], Timing], None]
"""Books rollouts and their seconds for a purpose."""
Item = tuple[Context, Sequence[Example]]
"""A context and the problems to play it on."""


@dataclass
class Evaluator:
    """The rollouts and scores of one cycle. All processes make the same calls."""

    recipe: FastRecipe
    player: Player
    anchors: list[Example]
    """The problems that contexts are scored on."""
    _: KW_ONLY
    sampling: Sampling
    cycle: int
    policy_step: int
    seed: int
    budget: int
    evidence: Evidence | None
    """The slow loop's rollouts, where an optimizer reads them or `rescore: from-rollouts` scores by them."""
    components: Sequence[Component]
    count_tokens: Callable[[str], int]
    world: World
    book: Book
    report: Callable[[str], None] = lambda text: None
    """Says to people how far the cycle is."""
    problems: Callable[[], Sequence[Example]] = lambda: ()
    """All training problems, for an optimizer that goes back to one of an earlier cycle."""
    saves: bool = False
    """Keep all rollouts with their purposes in `saved`."""
    watch: Callable[[Sequence[Rollout], Purpose], None] = lambda rollouts, purpose: None
    """Called with every batch, for an optimizer that learns from all of them."""
    scores: Scores = field(default_factory=Scores, init=False)
    saved: list[tuple[Rollout, str]] = field(default_factory=list, init=False)
    known: dict[str, dict[str, list[Rollout]]] = field(default_factory=dict, init=False)
    """With `rescore: from-rollouts`, the rollouts behind a context's scores, by problem."""
    reused: Counter[Purpose] = field(default_factory=Counter, init=False)
    """Rollouts that served a purpose without being played for it, by that purpose."""
    trials: list[tuple[str, dict[str, float]]] = field(default_factory=list, init=False)
    """The minibatches so far, in order: a context's id and its mean score on each problem."""
    blank: bool = field(default=True, init=False)
    """No carried context has scored on any anchor."""
    spent: int = field(default=0, init=False)
    """Rollouts of the budget that are spent."""
    calls: int = field(default=0, init=False)
    """Counts batches and proposals: each has a seed of its own."""
    asked: int = field(default=0, init=False)
    """Proposals that a proposer was asked for."""

    def __post_init__(self) -> None:
        self.anchors = list({example.id: example for example in self.anchors}.values())

    def kind(self, component: str) -> Kind:
        """The kind of a component, by its name."""
        return next((kind_of(each) for each in self.components if each.name == component), KINDS["prompt"])

    def draw(self, pairs: Sequence[tuple[Example, Context]], purpose: Purpose) -> list[Rollout]:
        """One rollout per pair under the current policy, played as one batch and booked."""
        self.calls += 1
        seed = derive_seed(self.seed, purpose, self.calls)
        rollouts, timing = self.player.play(pairs, self.sampling, policy_step=self.policy_step, seed=seed)
        if purpose != "rescore":
            self.spent += len(pairs)
        self.book(purpose, rollouts, timing)
        if self.saves:
            self.saved += [(rollout, purpose) for rollout in rollouts]
        self.watch(rollouts, purpose)
        return rollouts

    def rescore(self, pool: Pool) -> None:
        """Score the carried contexts on every anchor: by the slow loop's rollouts where there are any, the rest by playing
        them as one batch."""
        waiting = [member.context for member in pool.members]
        if self.evidence is not None:
            self.scores.overall = mean_score(self.evidence.rollouts)
            waiting = [context for context in waiting if not self._take_from(self.evidence, context)]
        if waiting:
            self.report(f"scoring {len(waiting)} carried context(s) on {len(self.anchors)} problems")
            drawn = self._sampled([(context, self.anchors) for context in waiting], "rescore")
            for context, rollouts in zip(waiting, drawn, strict=True):
                self._remember(context, rollouts)
        self.blank = not any(member.mean for member in self.scores.members.values())
        if not self.blank:
            self.scores.forget_progress()

    def minibatches(self, items: Sequence[Item]) -> list[list[list[Rollout]]]:
        """Rollouts by item and problem; those that are not known yet are played as one batch."""
        known = [self._known(context, batch) for context, batch in items]
        waiting = [item for item, found in zip(items, known, strict=True) if found is None]
        sampled = iter(self._sampled(waiting, "fast-minibatch") if waiting else [])
        drawn = [next(sampled) if found is None else found for found in known]
        for (context, batch), rollouts in zip(items, drawn, strict=True):
            scores = {example.id: mean_score(of) for example, of in zip(batch, rollouts, strict=True)}
            self.trials.append((context.id, scores))
        return drawn

    def in_full(self, contexts: Sequence[Context]) -> list[Member]:
        """Score children on all anchors."""
        sampled = self._sampled([(context, self.anchors) for context in contexts], "fast-score")
        for context, rollouts in zip(contexts, sampled, strict=True):
            self._remember(context, rollouts)
        return [self.scores.members[context.id] for context in contexts]

    def trial(self, child: str, parent: str) -> list[dict[str, Any]]:
        """A child's first minibatch: its score on each problem, and the last one of its parent before that."""
        at = next((index for index, (context, _) in enumerate(self.trials) if context == child), None)
        if at is None:
            return []
        earlier = [scores for context, scores in reversed(self.trials[:at]) if context == parent]
        return [
            {
                "example": problem,
                "before": next((scores[problem] for scores in earlier if problem in scores), None),
                "after": score,
            }
            for problem, score in self.trials[at][1].items()
        ]

    def progress(self, rollouts: Sequence[Rollout]) -> float:
        """How far answers got, by the grader's feedback; 0 once a carried context has scored, or without feedback."""
        return mean_progress(rollouts) if self.recipe.feedback and self.blank else 0.0

    def _sampled(self, items: Sequence[Item], purpose: Purpose) -> list[list[list[Rollout]]]:
        """Rollouts by item and problem, `samples` of each, played as one batch."""
        samples = self.recipe.samples
        pairs = [(example, context) for context, batch in items for example in batch for _ in range(samples)]
        rollouts = iter(self.draw(pairs, purpose))
        return [[[next(rollouts) for _ in range(samples)] for _ in batch] for _, batch in items]

    def _take_from(self, evidence: Evidence, context: Context) -> bool:
        """Score a context by the slow loop's rollouts, where it has any on these anchors."""
        found = evidence.of(context.id, self.anchors)
        rollouts = [rollout for drawn in found.values() for rollout in drawn]
        if not rollouts:
            return False
        self.reused["rescore"] += len(rollouts)
        self._enter(context, found, max(rollout.policy_step for rollout in rollouts))
        return True

    def _remember(self, context: Context, rollouts: list[list[Rollout]]) -> None:
        by_problem = {example.id: drawn for example, drawn in zip(self.anchors, rollouts, strict=True)}
        self._enter(context, by_problem, self.policy_step)

    def _enter(self, context: Context, by_problem: dict[str, list[Rollout]], policy_step: int) -> None:
        if self.evidence is not None:
            # Of several draws, one that went wrong has more to teach.
            self.known[context.id] = {
                problem: sorted(drawn, key=lambda rollout: rollout.score) for problem, drawn in by_problem.items()
            }
        draws = {problem: [rollout.score for rollout in drawn] for problem, drawn in by_problem.items()}
        everything = [rollout for drawn in by_problem.values() for rollout in drawn]
        progress = {problem: self.progress(drawn or everything) for problem, drawn in by_problem.items()}
        self.scores.remember(context, draws, policy_step, progress)

    def _known(self, context: Context, batch: Sequence[Example]) -> list[list[Rollout]] | None:
        """A context's rollouts on these problems, where its scores came with some for each of them."""
        by_problem = self.known.get(context.id, {})
        found = [by_problem.get(example.id, []) for example in batch]
        if not all(found):
            return None
        self.reused["fast-minibatch"] += sum(map(len, found))
        return found
