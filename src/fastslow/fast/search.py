"""What every fast optimizer shares in one cycle: playing and its price, checking what was proposed, and the outcome.

The carried population is scored anew under the current weights before anything else, since scores belong to the policy that
earned them; the budget counts rollouts actually played and leaves that re-scoring out. Proposals are checked (token budget,
no duplicate) before a single rollout is spent on them. A proposer that keeps failing ends the cycle, not the run, and so does
a context that is right on every anchor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fastslow.fast.pool import Member, Pool, select
from fastslow.fast.reflection import Attempt, ReflectionFailed
from fastslow.rollouts.play import derive_seed
from fastslow.rollouts.records import Context, Rollout
from fastslow.tasks.base import Example

if TYPE_CHECKING:
    from fastslow.fast.cycle import FastLoop

PATIENCE = 4
"""Failed proposals in a row after which a cycle stops asking."""
TRIES = 4
"""Proposals drawn until one is new."""

PlayFast = Callable[[Sequence[tuple[Example, Context]], str, int], Sequence[Rollout]]
"""Plays (example, context) pairs for a purpose on the ledger with a seed, under the current policy."""
Played = list[list[Rollout]]
"""The rollouts of one context: by problem, and of each problem as many as `fast.samples` says."""


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
    ) -> None:
        self.loop, self.recipe, self.carried = loop, loop.recipe, pool
        self.anchors = list({example.id: example for example in anchors}.values())
        self.components = list(pool.best.context.texts)
        self.cycle, self.policy_step, self.seed, self.progress = cycle, policy_step, seed, progress
        self.contexts = {member.context.id: member.context for member in pool.members}
        self.notes: dict[str, Mapping[str, Any]] = {member.context.id: member.notes for member in pool.members}
        self.members: dict[str, Member] = {}
        self.edits: dict[str, Edit] = {}
        self.faults: dict[str, int] = {}
        self.spent = self.calls = self.generations = self.failures_in_a_row = 0

    def run(self) -> Cycle:
        """Score the carried contexts anew, search until the budget is spent, keep the best K."""
        self.rescore()
        if self.recipe.budget:
            self.search()
        return self.result()

    @abstractmethod
    def search(self) -> None:
        """Propose contexts and score them on all anchors, until `finished`."""

    # Scoring -----------------------------------------------------------------------------------------------------------

    def rescore(self) -> None:
        """Score every carried context on every anchor, all as one batch."""
        contexts = [member.context for member in self.carried.members]
        self.progress(f"scoring {len(contexts)} carried context(s) on {len(self.anchors)} problems")
        played = self.play([(context, self.anchors) for context in contexts], "rescore")
        for context, rollouts in zip(contexts, played, strict=True):
            self.remember(context, self.anchors, rollouts)

    def play(self, items: Sequence[tuple[Context, Sequence[Example]]], purpose: str) -> list[Played]:
        """Rollouts by item and example, `samples` of each, drawn in one batch."""
        samples = self.recipe.samples
        pairs = [(example, context) for context, batch in items for example in batch for _ in range(samples)]
        self.calls += 1
        rollouts = iter(self.loop.play(pairs, purpose, derive_seed(self.seed, purpose, self.calls)))
        if purpose != "rescore":
            self.spent += len(pairs)
        return [[[next(rollouts) for _ in range(samples)] for _ in batch] for _, batch in items]

    def remember(self, context: Context, batch: Sequence[Example], rollouts: Played) -> None:
        """Make a context that was played on all anchors, in whatever order, a candidate for the next population."""
        scores = {example.id: mean_score(drawn) for example, drawn in zip(batch, rollouts, strict=True)}
        self.members[context.id] = Member(context, scores, self.policy_step, notes=self.notes.get(context.id, {}))

    def attempt(self, rollout: Rollout, component: str) -> Attempt | None:
        """What happened in one component of a rollout, in words; nothing where it was never asked or has nothing to learn.

        Who learns from scores alone gets no word of the grader's.
        """
        turns = [turn for turn in rollout.turns if turn.component == component]
        if rollout.turns and not turns:
            return None
        own = rollout.feedback.by_component.get(component) if self.reads_feedback else None
        if own == "":
            return None
        words = rollout.feedback.text if own is None else own
        return Attempt(
            question="\n\n".join(turn.question for turn in turns),
            answer="\n\n".join(turn.answer for turn in turns),
            feedback=words if self.reads_feedback else "",
            score=rollout.score,
        )

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
        self.calls += 1
        seed = derive_seed(self.seed, "reflection", self.calls)

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
        self.edits[child.id] = Edit(child.id, parents[0].id, ", ".join(texts), list(feedback), before)
        return child

    def fault(self, name: str) -> None:
        self.faults[name] = self.faults.get(name, 0) + 1

    # Ending ------------------------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Spent, tired of failures, or a context is right on every anchor and nothing is left to find."""
        perfect = any(member.mean >= 1 for member in self.members.values())
        return perfect or self.spent >= self.recipe.budget or self.failures_in_a_row >= PATIENCE

    def result(self) -> Cycle:
        for edit in self.edits.values():
            if edit.child in self.members:
                edit.accepted, edit.score = True, self.members[edit.child].mean
            elif edit.after is not None and not edit.reason:
                edit.reason = f"{edit.after:.2f} on the minibatch is not above its parent's {edit.before:.2f}"
        pool = select(list(self.members.values()), self.recipe.population)
        return Cycle(pool, list(self.edits.values()), list(self.contexts.values()), self.generations, self.faults)


def mean_score(rollouts: Sequence[Rollout]) -> float:
    return sum(rollout.score for rollout in rollouts) / len(rollouts)
