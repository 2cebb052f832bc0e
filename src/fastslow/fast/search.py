"""What every fast optimizer shares in one cycle: playing and its price, checking what was proposed, and the outcome.

The carried population is scored anew under the current weights before anything else, since scores belong to the policy that
earned them; the budget counts rollouts actually played and leaves that re-scoring out. Proposals are checked (token budget,
no duplicate) before a single rollout is spent on them. A proposer that keeps failing ends the cycle, not the run, and so does
a context that is right on every anchor. What can be made to cost less (`rescore`, `race`, drafts) or to see more clearly
(`paired`) is described in docs/rollouts.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fastslow.fast.drafts import Draft
from fastslow.fast.evidence import Evidence, read_attempt
from fastslow.fast.pool import Member, Pool, select
from fastslow.fast.reflection import Attempt, ReflectionFailed
from fastslow.fast.scores import mean_score
from fastslow.fast.scoring import Scoring
from fastslow.records import Context, Rollout
from fastslow.seeds import derive_seed
from fastslow.tasks.base import Example

if TYPE_CHECKING:
    from fastslow.fast.cycle import FastLoop

PATIENCE = 4
"""Failed proposals in a row after which a cycle stops asking."""
TRIES = 4
"""Proposals drawn until one is new."""


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
    found: bool = False
    """A child is now the best of the population, and by more than luck."""
    edits: list[Edit] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    """Every context the cycle met, carried or proposed, kept or not."""
    generations: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    reused: dict[str, int] = field(default_factory=dict)
    """Rollouts by the purpose they served without being played for it."""


class Search(ABC):
    """One cycle of a fast optimizer. All processes run it alike; what a proposer writes comes from the main one."""

    reads_feedback: ClassVar[bool] = True
    """Whether the optimizer learns from the grader's words; without, it learns from scores alone."""

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
        self.anchors = list({example.id: example for example in anchors}.values())
        self.components = list(pool.best.context.texts)
        self.cycle, self.seed, self.progress = cycle, seed, progress
        self.budget, self.drafts = budget, list(drafts)
        self.scoring = Scoring(loop.recipe, self.play, self.anchors, policy_step, seed, evidence)
        self.members = self.scoring.scores.members
        """The scored contexts, by id."""
        self.contexts = {member.context.id: member.context for member in pool.members}
        self.notes: dict[str, Mapping[str, Any]] = {member.context.id: member.notes for member in pool.members}
        self.edits: dict[str, Edit] = {}
        self.faults: dict[str, int] = {}
        self.generations = self.failures_in_a_row = 0

    def run(self) -> Cycle:
        """Score the carried contexts anew, search until the budget is spent, keep the best K."""
        self.scoring.carried(self.carried, self.progress)
        if self.budget:
            self.search()
        return self.result()

    @abstractmethod
    def search(self) -> None:
        """Propose contexts and score them on all anchors, until `finished`."""

    # Playing -----------------------------------------------------------------------------------------------------------

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> Sequence[Rollout]:
        """All that a cycle plays goes through here."""
        return self.loop.play(pairs, purpose, seed)

    @property
    def spent(self) -> int:
        """Rollouts of the budget that were played."""
        return self.scoring.spent

    @property
    def shows_feedback(self) -> bool:
        return self.reads_feedback and self.recipe.feedback

    def attempt(self, rollout: Rollout, component: str) -> Attempt | None:
        """What happened in one component of a rollout, told no further than the optimizer may know."""
        return read_attempt(rollout, component, self.shows_feedback)

    # Proposing ---------------------------------------------------------------------------------------------------------

    def child(
        self,
        parents: Sequence[Context],
        component: str,
        ask: Callable[[int], str],
        feedback: Sequence[str] = (),
        before: float = 0.0,
    ) -> Context | None:
        """A new context: its first parent with another text for one component, asked for until it is new and fits."""
        for _ in range(TRIES):
            text = self.asked(ask)
            if text is None:
                return None
            if (found := self.offer(parents, component, text, feedback, before)) is not None:
                return found
        self.failures_in_a_row += 1
        return None

    def asked(self, ask: Callable[[int], str]) -> str | None:
        """What a proposer writes, given a seed; nothing where it fails, which is counted and told."""
        self.scoring.calls += 1
        seed = derive_seed(self.seed, "reflection", self.scoring.calls)

        def answer() -> str | ReflectionFailed:
            try:
                return ask(seed)
            except ReflectionFailed as failure:
                return failure
            except Exception as error:  # gepa would pass over it in silence, and other processes would wait for ever
                return ReflectionFailed(f"the reflector broke: {type(error).__name__}: {error}")

        outcome = answer() if self.loop.collective else self.loop.world.from_main(answer)
        if isinstance(outcome, ReflectionFailed):
            self.fail(outcome)
            return None
        return outcome

    def fail(self, failure: ReflectionFailed) -> None:
        self.fault("reflection_failed")
        self.failures_in_a_row += PATIENCE if failure.permanent else 1
        self.progress(f"no edit: {failure}")

    def offer(
        self,
        parents: Sequence[Context],
        component: str,
        text: str,
        feedback: Sequence[str] = (),
        before: float = 0.0,
    ) -> Context | None:
        """The context that a proposed text makes, if the text keeps to its budget and the context is new."""
        return self.offer_texts(parents, {component: text}, feedback, before)

    def offer_texts(
        self,
        parents: Sequence[Context],
        texts: Mapping[str, str],
        feedback: Sequence[str] = (),
        before: float = 0.0,
    ) -> Context | None:
        """The same for new texts of several components at once."""
        if any(self.loop.count_tokens(text) > self.recipe.max_tokens for text in texts.values()):
            self.fault("proposal_too_long")
            return None
        child = Context({**parents[0].texts, **texts}, tuple(parent.id for parent in parents), self.cycle)
        if child.id in self.contexts:
            self.fault("proposal_not_new")
            return None
        self.failures_in_a_row = 0
        self.contexts[child.id] = child
        told = list(feedback) if self.shows_feedback else []
        self.edits[child.id] = Edit(child.id, parents[0].id, ", ".join(texts), told, before)
        return child

    def fault(self, name: str) -> None:
        self.faults[name] = self.faults.get(name, 0) + 1

    # Ending ------------------------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Spent, tired of failures, or a context is right on every anchor and nothing is left to find."""
        perfect = self.scoring.scores.perfect
        return perfect or self.spent >= self.budget or self.failures_in_a_row >= PATIENCE

    def result(self) -> Cycle:
        for edit in self.edits.values():
            if edit.child in self.members:
                edit.accepted, edit.score = True, self.members[edit.child].mean
            elif edit.child in self.scoring.stopped:
                drawn = self.scoring.stopped[edit.child]
                mean = sum(map(mean_score, drawn)) / len(drawn)
                edit.reason = f"{mean:.2f} on the first {len(drawn)} of {len(self.anchors)} anchors is too far behind"
            elif edit.after is not None and not edit.reason:
                edit.reason = f"{edit.after:.2f} on the minibatch is not above its parent's {edit.before:.2f}"
        scored = [replace(member, notes=self.notes.get(key, {})) for key, member in self.members.items()]
        chosen = select(scored, self.recipe.population).members
        spare = [replace(member, front=False, wins=0) for member in self.scoring.reserve]
        return Cycle(
            Pool((*chosen, *spare[: self.recipe.population - len(chosen)])),
            self._is_find(chosen[0]),
            list(self.edits.values()),
            list(self.contexts.values()),
            self.generations,
            self.faults,
            self.scoring.reused,
        )

    def _is_find(self, best: Member) -> bool:
        """Whether the best context is new and surely better than all carried ones; new is enough while nothing is right."""
        carried = [self.members[m.context.id] for m in self.carried.members if m.context.id in self.members]
        if best.context.id in [member.context.id for member in carried]:
            return False
        rival = max(carried, key=lambda member: member.mean, default=None)
        if rival is None or not best.mean:
            return True
        return self.scoring.scores.surely_better(best, rival, tried=len(self.members) - len(carried))
