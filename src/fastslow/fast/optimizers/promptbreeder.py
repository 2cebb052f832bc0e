"""In the manner of Promptbreeder (Fernando et al. 2023, arXiv 2309.16797): texts evolve, and the words that mutate them too.

Keeps: units of a text and a mutation prompt; binary tournaments, in which the loser of two units drawn at random makes room
for a mutated copy of the winner; mutation operators drawn at random: by the unit's mutation prompt, from problems and a style
of thinking, from the list of the population, from a solved problem, by taking over another unit's text, and the mutation of
the mutation prompt before it is used. Scores are all it learns from.

Leaves out: two texts to a unit, few-shot examples, lineages as a source, the filter by embeddings. Fitness is the score on
all anchors and not on a batch, and the population that goes on is the best of all that was scored, not the survivors.

Without a model: a mutation prompt is made of the sentences in `SENTENCES`, each of which names an operation on lines, and is
done sentence by sentence; mutating it adds, drops or exchanges a sentence. New lines come from generic advice and from the
population, solved problems becoming a line where there are any.
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
from fastslow.fast.reflection import ReflectionFailed, Wish
from fastslow.fast.reflection.prompt import closing, fence_of, fenced, show_demonstrations
from fastslow.fast.search import TRIES

SENTENCES = {
    "Add one instruction that is missing.": ADD,
    "Leave out one instruction that does not help.": DROP,
    "Exchange one instruction for a better one.": EXCHANGE,
    "Bring the instructions into a better order.": MOVE,
}
"""What mutation prompts begin with, and what each sentence means where there is no model."""
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
    """A text that was scored, and the words that its copies are mutated by."""

    member: Member
    mutation: str


class Promptbreeder(Steps):
    reads_feedback = False

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
        mutation, wish = operator(winner)
        child = self.write([winner.member.context], wish)
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

    def _by_prompt(self, unit: Unit) -> tuple[str, Wish]:
        """The unit's mutation prompt, done to its text."""
        text = unit.member.context.texts[self.component]
        fence = fence_of([text, unit.mutation])
        prompt = f"{unit.mutation}\n\nThe instructions:\n{fenced(text, fence)}\n{self._closing(fence)}\n"
        return unit.mutation, self.wish(prompt, lambda chance: mutated(text, unit.mutation, self._lines, chance), fence)

    def _by_new_prompt(self, unit: Unit) -> tuple[str, Wish]:
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

        wish = Wish(prompt, by_hand, LONGEST_MUTATION, self.loop.count_tokens, fence)
        mutation = self.asked(lambda seed: self.loop.reflector.write(wish, seed))
        return self._by_prompt(Unit(unit.member, mutation or unit.mutation))

    def _by_style(self, unit: Unit) -> tuple[str, Wish]:
        """From problems and a style of thinking alone, or in the light of solved ones where there are some."""
        solved, questions = self.demonstrations()
        style, text = self.chance.choice(STYLES), unit.member.context.texts[self.component]
        fence = fence_of([text])
        prompt = f"""\
{show_demonstrations(solved, questions)}

{style} With this in mind, write instructions for a language model that is to solve problems of this kind.
{self._closing(fence)}
"""
        lines = {demonstration(attempt): 1.0 for attempt in solved} or self.plain_lines([], questions)
        return unit.mutation, self.wish(prompt, lambda chance: vary(lines_of(text), lines, chance), fence)

    def _by_list(self, unit: Unit) -> tuple[str, Wish]:
        """One more for the list of the population."""
        texts = [other.member.context.texts[self.component] for other in self.units]
        fence = fence_of(texts)
        told = "\n".join(f"{number}.\n{fenced(text, fence)}" for number, text in enumerate(texts, start=1))
        prompt = (
            f"Continue this list of instructions for the same task by one more.\n\n{told}\n{self._closing(fence)}\n"
        )
        text = unit.member.context.texts[self.component]
        lines = self.population_lines([other.member for other in self.units])

        def by_hand(chance: random.Random) -> list[str]:
            return vary(lines_of(text), lines, chance)

        return unit.mutation, self.wish(prompt, by_hand, fence)

    def _taken(self, unit: Unit) -> tuple[str, Wish]:
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
    """A text after what each sentence of a mutation prompt says, where it can be done; of unknown ones, any change."""
    before = lines = lines_of(text)
    for sentence in sentences(mutation):
        lines = change(SENTENCES[sentence], lines, source, chance) or lines
    return lines if lines != before else vary(before, source, chance)


def remutated(mutation: str, chance: random.Random) -> str:
    """A mutation prompt with one sentence more, fewer or other."""
    before = sentences(mutation)
    for _ in range(TRIES):
        after = vary(before or [next(iter(SENTENCES))], dict.fromkeys(SENTENCES, 1.0), chance)
        if after != before:
            return "\n".join(after)
    raise ReflectionFailed("the mutation prompt could not be changed")


def sentences(mutation: str) -> Sequence[str]:
    return [line for line in lines_of(mutation) if line in SENTENCES]
