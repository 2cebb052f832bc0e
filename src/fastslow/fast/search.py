"""What every fast optimizer shares in one cycle: playing within a budget, checking proposals, and the result.

The carried population is first scored again under the current weights, because a score belongs to the policy that earned it.
The budget counts the rollouts that are played after that. Proposals are checked (token budget, no duplicate) before any
rollout is spent on them. A proposer that keeps failing ends the cycle but not the run, and so does a context that is right on
every anchor. The settings that save rollouts (`rescore`, `race`, `overlap`) are described in docs/rollouts.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fastslow.base.seeds import derive_seed
from fastslow.base.text import hidden_characters
from fastslow.fast.drafts import Draft
from fastslow.fast.evidence import Evidence, read_attempt
from fastslow.fast.pool import Member, Pool, select
from fastslow.fast.reflection import Attempt, ReflectionFailed
from fastslow.fast.scores import mean_score
from fastslow.fast.scoring import Scoring
from fastslow.records import Context, Rollout
from fastslow.tasks.base import Example

if TYPE_CHECKING:
    from fastslow.fast.cycle import FastLoop

PATIENCE = 4
"""Failed proposals in a row after which a cycle ends."""
TRIES = 4
"""Attempts to get a proposal that is new and within the token budget."""


@dataclass
class Edit:
    """One proposal: the feedback that led to it, and its minibatch score beside its parent's."""

    child: str
    parent: str
    component: str
    feedback: list[str]
    before: float
    after: float | None = None
    accepted: bool = False
    score: float | None = None
    reason: str = ""
    minibatch: list[dict[str, Any]] = field(default_factory=list)
    """The problems of the minibatch, with the parent's score on each and the child's."""


@dataclass
class Rejected:
    """A proposal that was not played; `texts` is empty where there was none."""

    parent: str
    texts: Mapping[str, str]
    reason: str


@dataclass
class LineEffect:
    """What a line of the texts is expected to bring on the problems that it is about."""

    component: str
    line: str
    problems: int
    """Of how many problems the grader has said it."""
    effect: float
    deviation: float


@dataclass
class Cycle:
    """What a cycle found."""

    pool: Pool
    found: bool = False
    """A child is now the best of the population, with 95% confidence."""
    edits: list[Edit] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    """Every carried or proposed context of the cycle, kept or not."""
    generations: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    reused: dict[str, int] = field(default_factory=dict)
    """Rollouts that served a purpose without being played for it, by that purpose."""
    rejected: list[Rejected] = field(default_factory=list)
    dropped: list[Member] = field(default_factory=list)
    """Contexts that were scored on the anchors but are not in the new population."""
    lines: list[LineEffect] = field(default_factory=list)
    """What is known of single lines, where the optimizer judges them."""


class Search(ABC):
    """One cycle of a fast optimizer. All processes run it in the same way; proposals come from the main one."""

    reads_feedback: ClassVar[bool] = True
    """Whether the optimizer reads the grader's feedback; otherwise it learns from scores alone."""

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
        self.rejected: list[Rejected] = []
        self.faults: dict[str, int] = {}
        self.generations = self.failures_in_a_row = 0

    def run(self) -> Cycle:
        """Score the carried contexts again, search until the budget is spent, keep the best K."""
        self.scoring.carried(self.carried, self.progress)
        if self.budget:
            self.search()
        return self.result()

    @abstractmethod
    def search(self) -> None:
        """Propose contexts and score them on all anchors, until `finished`."""

    # Playing -----------------------------------------------------------------------------------------------------------

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> Sequence[Rollout]:
        """Every rollout of a cycle is played here."""
        return self.loop.play(pairs, purpose, seed)

    @property
    def spent(self) -> int:
        """Rollouts of the budget that are spent."""
        return self.scoring.spent

    @property
    def shows_feedback(self) -> bool:
        return self.reads_feedback and self.recipe.feedback

    def attempt(self, rollout: Rollout, component: str) -> Attempt | None:
        """What happened in one component of a rollout, as far as the optimizer may know it."""
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
        """A new context: the first parent with a proposed text for one component. Asks again where it is not new or too
        long."""
        for _ in range(TRIES):
            text = self.asked(ask)
            if text is None:
                return None
            if (found := self.offer(parents, component, text, feedback, before)) is not None:
                return found
        self.failures_in_a_row += 1
        return None

    def asked(self, ask: Callable[[int], str]) -> str | None:
        """The proposer's answer, given a seed; None where it fails, which is counted and reported."""
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
        self.rejected.append(Rejected("", {}, f"no proposal: {failure}"))
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
        """The context with a proposed text, if the text is within its token budget and the context is new."""
        return self.offer_texts(parents, {component: text}, feedback, before)

    def offer_texts(
        self,
        parents: Sequence[Context],
        texts: Mapping[str, str],
        feedback: Sequence[str] = (),
        before: float = 0.0,
    ) -> Context | None:
        """The same for proposed texts of several components at once. A text with characters that a reader does not see is
        refused: people could not tell what the model reads."""
        if hidden := hidden_characters("".join(texts.values())):
            self.fault("proposal_hidden_characters")
            self.reject(parents[0], texts, f"hidden characters: {hidden[:10]!a}")
            return None
        longest = max(map(self.loop.count_tokens, texts.values()), default=0)
        if longest > self.recipe.max_tokens:
            self.fault("proposal_too_long")
            self.reject(parents[0], texts, f"too long: {longest} tokens, at most {self.recipe.max_tokens} are allowed")
            return None
        child = Context({**parents[0].texts, **texts}, tuple(parent.id for parent in parents), self.cycle)
        if child.id in self.contexts:
            self.fault("proposal_not_new")
            self.reject(parents[0], texts, f"not new: the same text as {child.id}")
            return None
        self.failures_in_a_row = 0
        self.contexts[child.id] = child
        shown = list(feedback) if self.shows_feedback else []
        self.edits[child.id] = Edit(child.id, parents[0].id, ", ".join(texts), shown, before)
        return child

    def reject(self, parent: Context, texts: Mapping[str, str], reason: str) -> None:
        self.rejected.append(Rejected(parent.id, dict(texts), reason))

    def fault(self, name: str) -> None:
        self.faults[name] = self.faults.get(name, 0) + 1

    # Ending ------------------------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """The budget is spent, proposals keep failing, or a context is right on every anchor."""
        perfect = self.scoring.scores.perfect
        return perfect or self.spent >= self.budget or self.failures_in_a_row >= PATIENCE

    def result(self) -> Cycle:
        for edit in self.edits.values():
            edit.minibatch = self.scoring.trial(edit.child, edit.parent)
            if edit.child in self.members:
                edit.accepted, edit.score = True, self.members[edit.child].mean
            elif edit.child in self.scoring.stopped:
                drawn = self.scoring.stopped[edit.child]
                mean = sum(map(mean_score, drawn)) / len(drawn)
                edit.reason = f"{mean:.2f} on the first {len(drawn)} of {len(self.anchors)} anchors is too far behind"
            elif edit.after is not None and not edit.reason:
                edit.reason = f"{edit.after:.2f} on the minibatch is not above its parent's {edit.before:.2f}"
        scored = [replace(member, notes=self.notes.get(key, {})) for key, member in self.members.items()]
        pool = select(scored, self.recipe.population)
        kept = {member.context.id for member in pool.members}
        return Cycle(
            pool,
            self._is_find(pool.best),
            list(self.edits.values()),
            list(self.contexts.values()),
            self.generations,
            self.faults,
            self.scoring.reused,
            self.rejected,
            [member for member in scored if member.context.id not in kept],
        )

    def _is_find(self, best: Member) -> bool:
        """Whether the best context is new and better than all carried ones with 95% confidence; while nothing scores at all,
        a new best is enough."""
        carried = [self.members[member.context.id] for member in self.carried.members]
        if best.context.id in [member.context.id for member in carried]:
            return False
        if not best.mean:
            return True
        rival = max(carried, key=lambda member: member.mean)
        return self.scoring.scores.surely_better(best, rival, tried=len(self.members) - len(carried))
