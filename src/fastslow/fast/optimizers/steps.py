"""The skeleton of the published optimizers: steps within the budget, trials, scores, requests, and texts without a model.

A request for a text can be answered in two ways: a reflection model reads the prompt, and without one (`lessons`) a function
returns the lines of the text, made of no more than the prompt shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from fastslow.base.world import derive_seed
from fastslow.fast.evaluator import Evaluator, Item
from fastslow.fast.optimizers.base import Optimizer
from fastslow.fast.optimizers.lines import Source, lines_of
from fastslow.fast.pool import Member, Pool, mean_score
from fastslow.fast.reflection import Attempt, ReflectionFailed, Reflector, TextRequest
from fastslow.fast.reflection.lessons import fit, new_lessons
from fastslow.fast.reflection.prompt import closing, fenced
from fastslow.records import Context, Example, Rollout
from fastslow.runs.ledger import Purpose

SHOWN = 3
"""Problems or demonstrations that a prompt shows, or that lines are taken from without a model."""
LIKELY = 0.25
"""The least weight of a line, relative to the largest, where several lines are taken at once."""

ByHand = Callable[[random.Random], Sequence[str]]
"""Writes the lines of a text without a model; raises `ReflectionFailed` where it cannot."""


@dataclass(frozen=True)
class Trial:
    """How a context did on a minibatch, as far as its optimizer may know it; scores and attempts by problem id."""

    context: Context
    scores: Mapping[str, float]
    attempts: Mapping[str, Attempt]
    """The first rollout of each problem in the current component, if that was asked at all."""

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores)

    @property
    def failed(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.score < 1]

    @property
    def feedback(self) -> list[str]:
        return [attempt.feedback for attempt in self.failed]


class Steps(Optimizer):
    """A search in steps. A step starts only if the rest of the budget covers it, so the budget is never exceeded."""

    trials: ClassVar[int] = 0
    """The minibatches that a step plays at least, beside scoring a text on all anchors."""

    def open(self, evaluator: Evaluator, reflector: Reflector, carried: Pool) -> None:
        super().open(evaluator, reflector, carried)
        self.chance = random.Random(derive_seed(self.seed, "search"))
        self.batch_size = min(self.recipe.minibatch, len(self.anchors))
        self.trial_price = self.batch_size * self.recipe.samples
        self.score_price = len(self.anchors) * self.recipe.samples
        self.price = self.trials * self.trial_price + self.score_price
        """The rollouts that a step needs at least."""
        self.seen: dict[tuple[str, bool], dict[str, Attempt]] = {}
        """By component, right or not, and problem: the first attempt, and the first right one."""

    def search(self) -> None:
        self.current = self.ranked()[0].context
        self.begin()
        while not self.finished() and self.price <= self.left:
            self.generations += 1
            self.progress(f"generation {self.generations}: {self.spent}/{self.budget} rollouts")
            self.step()

    def begin(self) -> None:
        """Take up what the notes of the carried contexts say."""

    def step(self) -> None:
        """Propose, try, score: one text, unless an optimizer says otherwise."""
        self.score(self.brood(1))

    def brood(self, count: int) -> list[Context]:
        """So many proposals, or fewer where one fails."""
        children: list[Context] = []
        while len(children) < count and (child := self.propose()) is not None:
            children.append(child)
        return children

    def propose(self) -> Context | None:
        """A new context, by `write`."""
        raise NotImplementedError

    @property
    def left(self) -> int:
        return self.budget - self.spent

    @property
    def component(self) -> str:
        """The component that this step edits; they take turns."""
        return self.components[(self.generations - 1) % len(self.components)]

    def text(self, context: Context) -> str:
        return context.texts[self.component]

    # Playing -----------------------------------------------------------------------------------------------------------

    def saw(self, rollouts: Sequence[Rollout], purpose: Purpose) -> None:
        for rollout, component in product(rollouts, self.components):
            if (attempt := self.attempt(rollout, component)) is not None:
                for right in {False, attempt.score >= 1}:
                    self.seen.setdefault((component, right), {}).setdefault(rollout.example.id, attempt)

    def demonstrations(self) -> tuple[list[Attempt], list[str]]:
        """A few attempts of this cycle that scored 1, and a few problems, drawn at random for the current component."""
        solved, seen = (list(self.seen.get((self.component, right), {}).values()) for right in (True, False))
        return some(solved, self.chance), [attempt.question for attempt in some(seen, self.chance)]

    def minibatch(self) -> list[Example]:
        return self.chance.sample(self.anchors, self.batch_size)

    def try_out(self, items: Sequence[Item]) -> list[Trial]:
        """Play contexts on a minibatch each, all as one batch."""
        trials = []
        for (context, _), rollouts in zip(items, self.evaluator.minibatches(items), strict=True):
            scores = {drawn[0].example.id: mean_score(drawn) for drawn in rollouts}
            first = {drawn[0].example.id: self.attempt(drawn[0], self.component) for drawn in rollouts}
            attempts = {problem: attempt for problem, attempt in first.items() if attempt is not None}
            trials.append(Trial(context, scores, attempts))
            edit = self.edits.get(context.id)
            if edit is not None and edit.after is None:  # later it is tried as a parent
                edit.after = trials[-1].mean
        return trials

    def score(self, contexts: Sequence[Context]) -> list[Member]:
        """Play contexts on all anchors, which makes them candidates for the population."""
        return self.evaluator.in_full(contexts) if contexts else []

    def ranked(self) -> list[Member]:
        """All scored contexts, best first, older ones before younger ones."""
        return sorted(self.members.values(), key=lambda member: -member.mean)

    # Proposing ---------------------------------------------------------------------------------------------------------

    def text_request(
        self, what: str, prompt: str, fence: str, by_hand: ByHand, longest: int = 0, kept: Collection[str] = ()
    ) -> TextRequest:
        """A request for a context's text, which without a model loses its oldest lines after the first where it is too long,
        but none of `kept`; or, with `longest`, for another text of at most so many tokens."""
        most, kind = longest or self.recipe.max_tokens, self.evaluator.kind(self.component)

        def written(chance: random.Random) -> str:
            lines = by_hand(chance)
            if longest:
                return "\n".join(lines)
            known = {line for context in self.contexts.values() for line in lines_of(self.text(context))}
            text = fit(
                [line if line in known else kind.written(line) for line in lines],
                {*kept, *map(kind.written, kept)},
                self.count_tokens,
                most,
            )
            if not text or not text.strip():
                raise ReflectionFailed(f"no edit fits into {most} tokens")
            return text

        form = "" if longest or not kind.form else f"\n{kind.form}"
        asked = f"{prompt}{form}\n{closing(what, fence, most)}\n"
        return TextRequest(asked, written, most, self.count_tokens, fence)

    def ask(self, request: TextRequest) -> str | None:
        return self.asked(lambda seed: self.reflector.write(request, seed))

    def write(self, parents: Sequence[Context], request: TextRequest, trial: Trial | None = None) -> Context | None:
        """A new context with the requested text for the current component, written after a trial or after scores alone."""
        feedback = trial.feedback if trial else []
        before = trial.mean if trial else self.members[parents[0].id].mean
        return self.child(parents, self.component, lambda seed: self.reflector.write(request, seed), feedback, before)

    def lessons(self, text: str, attempts: Sequence[Attempt]) -> dict[str, float]:
        """Lines of the feedback on failed attempts that a text lacks and that are likely to be rules, with their weights."""
        found = new_lessons(self.request(Context({self.component: text}), self.component, attempts, 0))
        return {line: weight for line, weight in found.items() if weight >= LIKELY * max(found.values())}

    def population_lines(self, members: Sequence[Member]) -> Source:
        """The lines of scored texts, weighted by the best score of a text that has them."""
        found: dict[str, float] = {}
        for member in members:
            for line in lines_of(self.text(member.context)):
                found[line] = max(found.get(line, 0.0), member.mean + 0.1)
        return found


def listed(heads: Iterable[str], texts: Iterable[str], fence: str, gap: str = "\n\n") -> str:
    """Texts as a prompt shows several of them, each fenced under its head."""
    return gap.join(f"{head}\n{fenced(text, fence)}" for head, text in zip(heads, texts, strict=False))


def some(items: Sequence[Any], chance: random.Random) -> list[Any]:
    return chance.sample(items, min(SHOWN, len(items)))
