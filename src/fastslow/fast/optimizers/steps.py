"""What the optimizers implemented here share: steps within the budget, trials, scores, and requests for texts."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastslow.base.seeds import derive_seed
from fastslow.fast.optimizers.lines import GENERIC, Source, demonstration, lines_of, shown
from fastslow.fast.pool import Member
from fastslow.fast.reflection import Attempt, ReflectionFailed, Request, TextRequest
from fastslow.fast.reflection.lessons import fit, new_lessons
from fastslow.fast.scores import mean_score
from fastslow.fast.search import Search
from fastslow.records import Context, Rollout
from fastslow.tasks.base import Example

SHOWN = 3
"""Problems or demonstrations that a prompt shows, or that lines are taken from without a model."""
LIKELY = 0.25
"""The least weight of a line, relative to the largest, where several lines are taken at once."""


@dataclass(frozen=True)
class Trial:
    """How a context did on a minibatch, as far as its optimizer may know it."""

    context: Context
    scores: Mapping[str, float]
    """By problem id."""
    attempts: Mapping[str, Attempt]
    """By problem id: the first rollout of each problem in the current component, if that was asked at all."""

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores)

    @property
    def failed(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.score < 1]


class Steps(Search):
    """A search in steps. A step starts only if the rest of the budget covers it, so the budget is never exceeded."""

    @property
    @abstractmethod
    def price(self) -> int:
        """The rollouts that a step needs at least."""

    @abstractmethod
    def step(self) -> None:
        """Propose, try, score."""

    def search(self) -> None:
        while not self.finished() and self.price <= self.left:
            self.generations += 1
            self.progress(f"generation {self.generations}: {self.spent}/{self.budget} rollouts")
            self.step()

    @cached_property
    def chance(self) -> random.Random:
        return random.Random(derive_seed(self.seed, "search"))

    @property
    def component(self) -> str:
        """The component that this step edits; they take turns."""
        return self.components[(self.generations - 1) % len(self.components)]

    # The budget --------------------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        return self.budget - self.spent

    @property
    def trial_price(self) -> int:
        return min(self.recipe.minibatch, len(self.anchors)) * self.recipe.samples

    @property
    def score_price(self) -> int:
        return len(self.anchors) * self.recipe.samples

    # Playing -----------------------------------------------------------------------------------------------------------

    def minibatch(self) -> list[Example]:
        return self.chance.sample(self.anchors, min(self.recipe.minibatch, len(self.anchors)))

    def try_out(self, items: Sequence[tuple[Context, Sequence[Example]]]) -> list[Trial]:
        """Play contexts on a minibatch each, all as one batch."""
        trials = []
        for (context, batch), rollouts in zip(items, self.scoring.minibatches(items), strict=True):
            scores = {example.id: mean_score(drawn) for example, drawn in zip(batch, rollouts, strict=True)}
            attempts = {
                drawn[0].example.id: attempt
                for drawn in rollouts
                if (attempt := self.attempt(drawn[0], self.component)) is not None
            }
            trials.append(Trial(context, scores, attempts))
            edit = self.edits.get(context.id)
            if edit is not None and edit.after is None:  # later it is tried as a parent
                edit.after = trials[-1].mean
        return trials

    def score(self, contexts: Sequence[Context]) -> list[Member | None]:
        """Play contexts on all anchors, which makes them candidates for the population; None for one that lost a race."""
        return self.scoring.in_full(contexts) if contexts else []

    def ranked(self) -> list[Member]:
        """All scored contexts, best first, older ones before younger ones."""
        return sorted(self.members.values(), key=lambda member: -member.mean)

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> Sequence[Rollout]:
        played = super().play(pairs, purpose, seed)
        for rollout in played:
            for component in self.components:
                attempt = self.attempt(rollout, component)
                if attempt is not None:
                    self._seen(component, rollout.example.id, attempt)
        return played

    def _seen(self, component: str, problem: str, attempt: Attempt) -> None:
        self._questions.setdefault(component, {}).setdefault(problem, attempt.question)
        if attempt.score >= 1:
            self._solved.setdefault(component, {}).setdefault(problem, attempt)

    @cached_property
    def _questions(self) -> dict[str, dict[str, str]]:
        return {}

    @cached_property
    def _solved(self) -> dict[str, dict[str, Attempt]]:
        return {}

    def demonstrations(self) -> tuple[list[Attempt], list[str]]:
        """A few attempts of this cycle that scored 1, and a few problems, drawn at random for the current component."""
        solved = list(self._solved.get(self.component, {}).values())
        questions = list(self._questions.get(self.component, {}).values())
        return self._some(solved), self._some(questions)

    def _some(self, items: list[Any]) -> list[Any]:
        return self.chance.sample(items, min(SHOWN, len(items)))

    # Proposing ---------------------------------------------------------------------------------------------------------

    def text_request(self, prompt: str, by_hand: Callable[[random.Random], list[str]], fence: str) -> TextRequest:
        """A request for a context's text. Without a model it is a list of lines; the oldest after the first are dropped if it
        is too long."""

        def written(chance: random.Random) -> str:
            return self.fitted(by_hand(chance))

        return TextRequest(prompt, written, self.recipe.max_tokens, self.loop.count_tokens, fence)

    def fitted(self, lines: Sequence[str], kept: Collection[str] = ()) -> str:
        text = fit(lines, kept, self.loop.count_tokens, self.recipe.max_tokens)
        if not text or not text.strip():
            raise ReflectionFailed(f"no edit fits into {self.recipe.max_tokens} tokens")
        return text

    def write(
        self,
        parents: Sequence[Context],
        request: TextRequest,
        feedback: Sequence[str] = (),
        before: float | None = None,
    ) -> Context | None:
        """A new context with the requested text for the current component."""
        if before is None:
            before = self.members[parents[0].id].mean
        return self.child(
            parents, self.component, lambda seed: self.loop.reflector.write(request, seed), feedback, before
        )

    def lessons(self, text: str, attempts: Sequence[Attempt]) -> dict[str, float]:
        """Lines of the feedback on failed attempts that a text lacks and that are likely to be rules, with their weights."""
        found = new_lessons(
            Request(
                component=self.component,
                text=text,
                attempts=attempts,
                proposer="light",
                max_tokens=self.recipe.max_tokens,
                count_tokens=self.loop.count_tokens,
                seed=0,
            )
        )
        return {line: weight for line, weight in found.items() if weight >= LIKELY * max(found.values())}

    def plain_lines(self, solved: Sequence[Attempt], questions: Sequence[str]) -> dict[str, float]:
        """Lines to add without a model and without the grader's feedback: advice, demonstrations, problems."""
        return {
            **dict.fromkeys(GENERIC, 1.0),
            **{line: 1.0 for question in questions for line in shown(question)},
            **{demonstration(attempt): 3.0 for attempt in solved},
        }

    def population_lines(self, members: Sequence[Member]) -> Source:
        """The lines of scored texts, weighted by the best score of a text that has them."""
        found: dict[str, float] = {}
        for member in members:
            for line in lines_of(member.context.texts[self.component]):
                found[line] = max(found.get(line, 0.0), member.mean + 0.1)
        return found
