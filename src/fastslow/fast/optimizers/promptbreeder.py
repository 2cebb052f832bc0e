"""Promptbreeder (Fernando et al. 2023, arXiv 2309.16797): texts evolve together with the prompts that mutate them.

Keeps: units of a text and a mutation prompt; binary tournaments, in which the loser of two units drawn at random is replaced
by a mutated copy of the winner; mutation operators drawn at random: by the unit's mutation prompt, from problems and a style
of thinking, from the list of the population, from a solved problem, by taking over another unit's text, and by a mutation of
the mutation prompt before it is used. It learns from scores alone.

Leaves out: two texts per unit, few-shot examples, lineages as a source, the filter by embeddings. Fitness is the score on all
anchors and not on a batch, and the next population is the best of all that was scored, not the survivors.

Without a model: a mutation prompt consists of sentences from `SENTENCES`, each of which names an operation on lines, and the
operations are applied one after the other; mutating it adds, drops or exchanges a sentence. New lines come from generic
advice, from the population and from solved problems where there are any.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fastslow.fast.optimizers.lines import (
    ADD,
    DROP,
    EXCHANGE,
    GENERIC,
    MOVE,
    Source,
    change,
    demonstration,
    lines_of,
    vary,
)
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.pool import Member
from fastslow.fast.reflection import ReflectionFailed, TextRequest
from fastslow.fast.reflection.prompt import closing, fence_of, fenced, show_demonstrations
from fastslow.fast.search import TRIES

SENTENCES = {
    "Add one instruction that is missing.": ADD,
    "Leave out one instruction that does not help.": DROP,
    "Exchange one instruction for a better one.": EXCHANGE,
    "Bring the instructions into a better order.": MOVE,
}
"""The first mutation prompts, and the operation that each sentence means without a model."""
STYLES = (
    "How could the problem be made simpler?",
    "What must not be overlooked?",
    "How can the answer be checked?",
    "Which steps lead to the answer, one by one?",
    "What do all of these problems have in common?",
)
"""Styles of thinking for texts that are written from problems alone."""
LONGEST_MUTATION = 128
"""Tokens of a mutation prompt."""


@dataclass(frozen=True)
class Unit:
    """A scored text, and the prompt that mutates its copies."""

    member: Member
    mutation: str


class Promptbreeder(Steps):
    reads_feedback = False
    supports = frozenset({"race"})
    least_population = 2

    @property
    def price(self) -> int:
        return self.score_price

    def search(self) -> None:
        self.units = [
            Unit(
                member,
                str(self.notes.get(member.context.id, {}).get("mutation") or self.chance.choice(list(SENTENCES))),
            )
            for member in self.ranked()[: self.recipe.population]
        ]
        super().search()

    def step(self) -> None:
        pair = self.chance.sample(self.units, min(2, len(self.units)))
        pair.sort(key=lambda unit: unit.member.mean)
        loser, winner = pair[0], pair[-1]
        operator = self.chance.choice(
            [self._by_prompt, self._by_new_prompt, self._by_style, self._by_list, self._taken]
        )
        mutation, request = operator(winner)
        child = self.write([winner.member.context], request)
        if child is None:
            return
        self.notes[child.id] = {"mutation": mutation}
        (member,) = self.score([child])
        if member is None:
            return
        if len(self.units) == self.recipe.population:
            self.units.remove(loser)
        self.units.append(Unit(member, mutation))

    # Operators ---------------------------------------------------------------------------------------------------------

    def _by_prompt(self, unit: Unit) -> tuple[str, TextRequest]:
        """The unit's mutation prompt, applied to its text."""
        text = unit.member.context.texts[self.component]
        fence = fence_of([text, unit.mutation])
        prompt = f"{unit.mutation}\n\nThe instructions:\n{fenced(text, fence)}\n{self._closing(fence)}\n"
        return unit.mutation, self.text_request(
            prompt, lambda chance: mutated(text, unit.mutation, self._lines, chance), fence
        )

    def _by_new_prompt(self, unit: Unit) -> tuple[str, TextRequest]:
        """The mutation prompt is mutated and then used; where that fails, the old one is."""
        fence = fence_of([unit.mutation])
        prompt = f"""\
This says how to change the instructions of a language model:
{fenced(unit.mutation, fence)}
Write another such request, one that leads to better instructions.
{closing("the request", fence, LONGEST_MUTATION)}
"""

        def by_hand(chance: random.Random) -> str:
            return remutated(unit.mutation, chance)

        request = TextRequest(prompt, by_hand, LONGEST_MUTATION, self.count_tokens, fence)
        mutation = self.asked(lambda seed: self.reflector.write(request, seed))
        return self._by_prompt(Unit(unit.member, mutation or unit.mutation))

    def _by_style(self, unit: Unit) -> tuple[str, TextRequest]:
        """From problems and a style of thinking, with solved problems where there are some."""
        solved, questions = self.demonstrations()
        style, text = self.chance.choice(STYLES), unit.member.context.texts[self.component]
        fence = fence_of([text])
        prompt = f"""\
{show_demonstrations(solved, questions)}

{style} With this in mind, write instructions for a language model that is to solve problems of this kind.
{self._closing(fence)}
"""
        lines = {demonstration(attempt): 1.0 for attempt in solved} or self.plain_lines([], questions)
        return unit.mutation, self.text_request(prompt, lambda chance: vary(lines_of(text), lines, chance), fence)

    def _by_list(self, unit: Unit) -> tuple[str, TextRequest]:
        """One more text for the list of the population."""
        texts = [other.member.context.texts[self.component] for other in self.units]
        fence = fence_of(texts)
        shown = "\n".join(f"{number}.\n{fenced(text, fence)}" for number, text in enumerate(texts, start=1))
        prompt = (
            f"Continue this list of instructions for the same task by one more.\n\n{shown}\n{self._closing(fence)}\n"
        )
        text = unit.member.context.texts[self.component]
        lines = self.population_lines([other.member for other in self.units])

        def by_hand(chance: random.Random) -> list[str]:
            return vary(lines_of(text), lines, chance)

        return unit.mutation, self.text_request(prompt, by_hand, fence)

    def _taken(self, unit: Unit) -> tuple[str, TextRequest]:
        """Another unit's text, by its score, under this unit's mutation prompt."""
        weights = [other.member.mean + 0.1 for other in self.units]
        (other,) = self.chance.choices(self.units, weights)
        return self._by_prompt(Unit(other.member, unit.mutation))

    @property
    def _lines(self) -> Source:
        return {**dict.fromkeys(GENERIC, 0.2), **self.population_lines([unit.member for unit in self.units])}

    def _closing(self, fence: str) -> str:
        return closing("the new instructions", fence, self.recipe.max_tokens)


def mutated(text: str, mutation: str, source: Source, chance: random.Random) -> list[str]:
    """A text after the operations that a mutation prompt names; after any change where none of them can be made."""
    before = lines = lines_of(text)
    for sentence in sentences(mutation):
        lines = change(SENTENCES[sentence], lines, source, chance) or lines
    return lines if lines != before else vary(before, source, chance)


def remutated(mutation: str, chance: random.Random) -> str:
    """A mutation prompt with one sentence added, dropped, exchanged or moved."""
    before = sentences(mutation)
    for _ in range(TRIES):
        after = vary(before or [next(iter(SENTENCES))], dict.fromkeys(SENTENCES, 1.0), chance)
        if after != before:
            return "\n".join(after)
    raise ReflectionFailed("the mutation prompt could not be changed")


def sentences(mutation: str) -> Sequence[str]:
    return [line for line in lines_of(mutation) if line in SENTENCES]
