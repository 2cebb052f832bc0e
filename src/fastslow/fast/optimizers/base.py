"""What every fast optimizer shares in one cycle: what it may know of rollouts, checks of proposals, and the result.

Proposals are checked by their component's kind and for novelty before any rollout is spent on them. A proposer that keeps
failing ends the cycle but not the run, and so does a context that is right on every anchor.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from fastslow.base.errors import FastSlowError
from fastslow.base.world import derive_seed
from fastslow.fast.evaluator import Evaluator
from fastslow.fast.memory import LEAST_SHARE
from fastslow.fast.pool import Member, Pool, select
from fastslow.fast.reflection import Attempt, ReflectionFailed, Reflector, Request
from fastslow.fast.reflection.base import LONGEST_FEEDBACK, LONGEST_TEXT, MOST_LINES, Refusal, excerpt
from fastslow.fast.reflection.code import BROKEN
from fastslow.recipe import FastRecipe, Part, Recipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Context, Rollout
from fastslow.rollouts.play import is_faulty
from fastslow.runs.ledger import Purpose

PATIENCE = 4
"""Failed proposals in a row after which a cycle ends."""
TRIES = 4
"""Attempts to get a proposal that is new and within the token budget."""
SHOWN = 2
"""Refused proposals that a request shows, the latest."""
NO_PROPOSAL = "no proposal: "
"""How the reason begins where a proposer failed."""
SAVING = {
    "rescore": ("from-rollouts", "leaves no rollouts under the contexts to score them by"),
    "reuse": (True, "has no use for rollouts under the contexts"),
}
"""Settings of the fast loop that an optimizer must support: the value that turns each on, and why `distill`, which trains
under the seed text, rules it out."""


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
    kept: float | None = None
    """The share of answers of which the grader did not say it where the text does, as estimated, and where it does not."""
    kept_without: float | None = None


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
    reused: dict[Purpose, int] = field(default_factory=dict)
    """Rollouts that served a purpose without being played for it, by that purpose."""
    rejected: list[Rejected] = field(default_factory=list)
    dropped: list[Member] = field(default_factory=list)
    """Contexts that were scored on the anchors but are not in the new population."""
    lines: list[LineEffect] = field(default_factory=list)
    """What is known of single lines, where the optimizer judges them."""


class Optimizer(ABC):
    """Evolves a population in one cycle; there is a new one for every cycle.

    It sees the evaluator, the reflector and the carried pool, and nothing else of the run. All processes run it in the same
    way; proposals come from the main one.
    """

    Options: ClassVar[type[Part]] = Part
    """Its options in a recipe."""
    reads_feedback: ClassVar[bool] = True
    """Whether it reads the grader's feedback; otherwise it learns from scores alone."""
    reads_rollouts: ClassVar[bool] = False
    """Whether it learns from the slow loop's rollouts whatever `rescore` says, and does not score carried contexts again."""
    supports: ClassVar[frozenset[str]] = frozenset()
    """Which of `rescore` and `reuse` it works with. `reuse` needs a proposer that never reads the rollouts that contexts are
    scored by, because these are trained on."""
    evolves_code: ClassVar[bool] = False
    """Whether it works with tasks that have components of kind `code`."""
    first_look: ClassVar[int] = 0
    """Of one that reads the slow loop's rollouts: the problems that it plays, as re-scoring, while there are none."""
    least_population: ClassVar[int] = 1
    covers_budget: ClassVar[bool] = True
    """Whether it starts a step only if the budget covers it, so that a small budget would find nothing."""

    evaluator: Evaluator
    reflector: Reflector
    carried: Pool

    def __init__(self, recipe: FastRecipe) -> None:
        self.recipe = recipe
        self.edits: dict[str, Edit] = {}
        self.rejected: list[Rejected] = []
        self.faults: Counter[str] = Counter()
        self.refused: dict[str, list[tuple[str, str]]] = {}
        """By component: the proposals that are shown with the next request, and why they were refused."""
        self.generations = self.failures_in_a_row = 0

    @classmethod
    def refuse(cls, recipe: Recipe) -> None:
        """Raise a `ValueError` where the settings do not fit this optimizer."""
        fast = recipe.fast
        for name, (value, because) in SAVING.items():
            if getattr(fast, name) != value:
                continue
            chosen, without = f"{name}={str(value).lower()}", f"set fast.{name}={'false' if value is True else 'all'}"
            if recipe.method == "distill":
                raise ValueError(
                    f"fast.{chosen} cannot be combined with method=distill, whose weights learn under the seed text, which "
                    f"{because}; {without}, or set method=fst"
                )
            if name not in cls.supports:
                raise ValueError(
                    f"fast.{chosen} cannot be combined with fast.optimizer={fast.optimizer.name}; {without}, or set "
                    f"fast.optimizer to one of {', '.join(_supporting(name))}"
                )
        if fast.population < cls.least_population:
            raise ValueError(
                f"fast.optimizer={fast.optimizer.name} breeds from two texts, but fast.population={fast.population}; raise "
                "fast.population, or choose another fast.optimizer"
            )
        anchors = min(fast.anchors, fast.cycle * recipe.slow.problems)
        least = (2 * min(fast.minibatch, anchors) + anchors) * fast.samples
        budget = math.ceil(fast.budget * LEAST_SHARE) if fast.adaptive else fast.budget
        if cls.covers_budget and 0 < budget < least:
            shrunken = f", of which fast.adaptive may leave {budget}," if fast.adaptive else ""
            raise ValueError(
                f"fast.budget={fast.budget}{shrunken} does not cover one new text under fast.optimizer={fast.optimizer.name}:"
                f" two minibatches and all {anchors} anchors, fast.samples={fast.samples} times, are {least} rollouts; raise "
                "fast.budget, or lower fast.anchors, fast.minibatch or fast.samples"
            )

    @classmethod
    def most_rollouts(cls, recipe: FastRecipe, anchors: int, components: int) -> int:
        """The most rollouts of one search, carried contexts not counted."""
        return recipe.budget

    def evolve(self, evaluator: Evaluator, reflector: Reflector, carried: Pool) -> Cycle:
        """Score the carried contexts again, search until the budget is spent, keep the best K."""
        self.open(evaluator, reflector, carried)
        if not self.reads_rollouts:
            evaluator.rescore(carried)
        if evaluator.budget and self.evolving:
            self.search()
        return self.result()

    def open(self, evaluator: Evaluator, reflector: Reflector, carried: Pool) -> None:
        """Take up what a cycle starts with."""
        self.evaluator, self.reflector, self.carried = evaluator, reflector, carried
        self.anchors, self.budget, self.progress = evaluator.anchors, evaluator.budget, evaluator.report
        self.cycle, self.seed, self.count_tokens = evaluator.cycle, evaluator.seed, evaluator.count_tokens
        self.components = list(carried.best.context.texts)
        self.code = {each.name for each in evaluator.components if each.kind == "code"}
        written = getattr(reflector, "writes_code", True)
        self.evolving = [name for name in self.components if written or name not in self.code]
        """The components that the reflector can write."""
        self.members = evaluator.scores.members
        """The scored contexts, by id."""
        self.contexts = {member.context.id: member.context for member in carried.members}
        self.notes: dict[str, Mapping[str, Any]] = {member.context.id: member.notes for member in carried.members}
        evaluator.watch = self.saw

    @abstractmethod
    def search(self) -> None:
        """Propose contexts and score them on all anchors, until `finished`."""

    def saw(self, rollouts: Sequence[Rollout], purpose: Purpose) -> None:  # noqa: B027
        """Every rollout of the cycle passes here, for an optimizer that keeps what it has seen."""

    @property
    def spent(self) -> int:
        return self.evaluator.spent

    @property
    def shows_feedback(self) -> bool:
        return self.reads_feedback and self.recipe.feedback

    def attempt(self, rollout: Rollout, component: str) -> Attempt | None:
        """One component's part of a rollout, as far as the optimizer may know it; None if there is nothing to learn."""
        return attempt_of(rollout, component, shows_feedback=self.shows_feedback)

    # Proposing ---------------------------------------------------------------------------------------------------------

    def request(self, parent: Context, component: str, attempts: Sequence[Attempt], seed: int) -> Request:
        """A request for one edit of a parent's text."""
        return Request(
            component=component,
            text=parent.texts[component],
            attempts=attempts,
            proposer=getattr(self.recipe.optimizer, "proposer", "light"),
            max_tokens=self.recipe.max_tokens,
            count_tokens=self.count_tokens,
            seed=seed,
            kind=self.evaluator.kind(component),
            refused=tuple(self.refused.get(component, ())),
        )

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
            if (found := self.offer(parents, {component: text}, feedback, before)) is not None:
                return found
        self.failures_in_a_row += 1
        return None

    def edited(self, parent: Context, component: str, attempts: Sequence[Attempt], before: float) -> Context | None:
        """A new context: an edit of a parent's text for one component, from attempts under it."""
        complaints = [attempt.feedback for attempt in attempts if attempt.score < 1]

        def ask(seed: int) -> str:
            return self.reflector(self.request(parent, component, attempts, seed))

        return self.child([parent], component, ask, complaints, before)

    def asked(self, ask: Callable[[int], str]) -> str | None:
        """The proposer's answer, given a seed; None where it fails, which is counted and reported."""
        self.evaluator.calls += 1
        self.evaluator.asked += 1
        seed = derive_seed(self.seed, "reflection", self.evaluator.calls)

        def answer() -> str | ReflectionFailed:
            try:
                return ask(seed)
            except ReflectionFailed as failure:
                return failure
            except Exception as error:  # gepa would pass over it in silence, and other processes would wait for ever
                return ReflectionFailed(f"the reflector broke: {type(error).__name__}: {error}")

        together = getattr(self.reflector, "collective", False)
        outcome = answer() if together else self.evaluator.world.from_main(answer)
        if isinstance(outcome, ReflectionFailed):
            self.fail(outcome)
            return None
        return outcome

    def fail(self, failure: ReflectionFailed) -> None:
        self.faults["reflection_failed"] += 1
        self.rejected.append(Rejected("", {}, f"{NO_PROPOSAL}{failure}"))
        self.failures_in_a_row += PATIENCE if failure.permanent else 1
        self.progress(f"no edit: {failure}")

    def offer(
        self, parents: Sequence[Context], texts: Mapping[str, str], feedback: Sequence[str] = (), before: float = 0.0
    ) -> Context | None:
        """The context with proposed texts by component, if their kinds accept them and the context is new."""
        child = Context({**parents[0].texts, **texts}, tuple(parent.id for parent in parents), self.cycle)
        refusal = None
        for name, text in texts.items():
            # What is run to check it may behave differently in every process.
            check = partial(self.evaluator.kind(name).check, text, self.count_tokens, self.recipe.max_tokens)
            refusal = self.evaluator.world.from_main(check)
            if refusal is not None:
                if refusal.fault == BROKEN:
                    self.refused[name] = [*self.refused.get(name, []), (text, refusal.reason)][-SHOWN:]
                break
        if refusal is None and child.id in self.contexts:
            refusal = Refusal("proposal_not_new", f"not new: the same text as {child.id}")
        if refusal is not None:
            self.faults[refusal.fault] += 1
            self.rejected.append(Rejected(parents[0].id, dict(texts), refusal.reason))
            return None
        self.failures_in_a_row = 0
        self.contexts[child.id] = child
        shown = list(feedback) if self.shows_feedback else []
        self.edits[child.id] = Edit(child.id, parents[0].id, ", ".join(texts), shown, before)
        return child

    # Ending ------------------------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """The budget is spent, proposals keep failing, or a context is right on every anchor."""
        perfect = self.evaluator.scores.perfect
        return perfect or self.spent >= self.budget or self.failures_in_a_row >= PATIENCE

    def result(self) -> Cycle:
        for edit in self.edits.values():
            edit.minibatch = self.evaluator.trial(edit.child, edit.parent)
            if edit.child in self.members:
                edit.accepted, edit.score = True, self.members[edit.child].mean
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
            self.evaluator.reused,
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
        return self.evaluator.scores.surely_better(best, rival, tried=len(self.members) - len(carried))


def attempt_of(rollout: Rollout, component: str, *, shows_feedback: bool = True) -> Attempt | None:
    """One component's part of a rollout; None if there is nothing to learn.

    A component that was never asked, such as a tool, has a part in the whole rollout where the grader has words for it.
    """
    words, turns = rollout.feedback.by_component.get(component), list(rollout.turns)
    own = [turn for turn in turns if turn.component == component or component in (turn.shown or ())]
    unasked = bool(turns) and not own
    if is_faulty(rollout) or (shows_feedback and words == "") or (unasked and not (shows_feedback and words)):
        return None
    shown = turns if unasked else own
    said = (rollout.feedback.text if words is None else words) if shows_feedback else ""
    return Attempt(
        question=excerpt("\n\n".join(turn.question for turn in shown), LONGEST_TEXT),
        answer=excerpt("\n\n".join(turn.answer for turn in shown), LONGEST_TEXT),
        feedback=excerpt(said, LONGEST_FEEDBACK, MOST_LINES),
        score=rollout.score,
    )


def _supporting(setting: str) -> list[str]:
    """The optimizers that support a setting, without those whose packages are not installed."""
    found = []
    for name in OPTIMIZER.registry.built_in:
        with suppress(FastSlowError):
            if setting in OPTIMIZER.registry.find(name).supports:
                found.append(name)
    return found
