"""Promptbreeder (Fernando et al. 2023, arXiv 2309.16797): texts evolve together with the prompts that mutate them.

Keeps: units of a text and a mutation prompt; binary tournaments, in which the loser of two units drawn at random is replaced
by a mutated copy of the winner; mutation operators drawn at random: by the unit's mutation prompt, from problems and a style
of thinking, from the list of the population, from a solved problem, by taking over another unit's text, and by a mutation of
the mutation prompt before it is used. It learns from scores alone.

Fitness is the score on all anchors, and the next population is the best of all that was scored, not the survivors.

Without a model: a mutation prompt consists of sentences from `SENTENCES`, each of which names an operation on lines, and the
operations are applied one after the other; mutating it adds, drops or exchanges a sentence. New lines come from generic
advice, from the population and from solved problems where there are any.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from fastslow.fast.optimizers import lines as by_lines
from fastslow.fast.optimizers.lines import GENERIC, Source, demonstration, lines_of, plain_lines, varied, vary
from fastslow.fast.optimizers.steps import Steps, listed
from fastslow.fast.pool import Member
from fastslow.fast.reflection import TextRequest
from fastslow.fast.reflection.prompt import fence_of, fenced, show_demonstrations

SENTENCES = {
    "Add one instruction that is missing.": by_lines.ADD,
    "Leave out one instruction that does not help.": by_lines.DROP,
    "Exchange one instruction for a better one.": by_lines.EXCHANGE,
    "Bring the instructions into a better order.": by_lines.MOVE,
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
WANTED = "the new instructions"


@dataclass(frozen=True)
class Unit:
    """A scored text, and the prompt that mutates its copies."""

    member: Member
    mutation: str


class Promptbreeder(Steps):
    reads_feedback = False
    least_population = 2

    def begin(self) -> None:
        self.units: list[Unit] = []
        for member in self.ranked()[: self.recipe.population]:
            mutation = self.notes.get(member.context.id, {}).get("mutation") or self.chance.choice(list(SENTENCES))
            self.units.append(Unit(member, str(mutation)))

    def step(self) -> None:
        pair = self.chance.sample(self.units, min(2, len(self.units)))
        pair.sort(key=lambda unit: unit.member.mean)
        loser, winner = pair[0], pair[-1]
        operators = [self._by_prompt, self._by_new_prompt, self._by_style, self._by_list, self._taken]
        mutation, request = self.chance.choice(operators)(winner)
        child = self.write([winner.member.context], request)
        if child is None:
            return
        self.notes[child.id] = {"mutation": mutation}
        (member,) = self.score([child])
        if len(self.units) == self.recipe.population:
            self.units.remove(loser)
        self.units.append(Unit(member, mutation))

    # Operators: the mutation prompt of the child, and the request for its text -----------------------------------------

    def _by_prompt(self, unit: Unit) -> tuple[str, TextRequest]:
        """The unit's mutation prompt, applied to its text."""
        text = self.text(unit.member.context)
        fence = fence_of([text, unit.mutation])
        prompt = f"{unit.mutation}\n\nThe instructions:\n{fenced(text, fence)}"
        source = {**dict.fromkeys(GENERIC, 0.2), **self.population_lines([unit.member for unit in self.units])}
        return unit.mutation, self.text_request(
            WANTED, prompt, fence, lambda chance: mutated(text, unit.mutation, source, chance)
        )

    def _by_new_prompt(self, unit: Unit) -> tuple[str, TextRequest]:
        """The mutation prompt is mutated and then used; where that fails, the old one is."""
        fence = fence_of([unit.mutation])
        prompt = f"""\
This says how to change the instructions of a language model:
{fenced(unit.mutation, fence)}
Write another such request, one that leads to better instructions."""
        request = self.text_request(
            "the request", prompt, fence, lambda chance: [remutated(unit.mutation, chance)], LONGEST_MUTATION
        )
        mutation = self.ask(request)
        return self._by_prompt(replace(unit, mutation=mutation or unit.mutation))

    def _by_style(self, unit: Unit) -> tuple[str, TextRequest]:
        """From problems and a style of thinking, with solved problems where there are some."""
        solved, questions = self.demonstrations()
        style, text = self.chance.choice(STYLES), self.text(unit.member.context)
        prompt = f"""\
{show_demonstrations(solved, questions)}

{style} With this in mind, write instructions for a language model that is to solve problems of this kind."""
        lines = {demonstration(attempt): 1.0 for attempt in solved} or plain_lines([], questions)
        return unit.mutation, self.text_request(WANTED, prompt, fence_of([text]), varied(text, lines))

    def _by_list(self, unit: Unit) -> tuple[str, TextRequest]:
        """One more text for the list of the population."""
        members = [other.member for other in self.units]
        texts = [self.text(member.context) for member in members]
        fence = fence_of(texts)
        shown = listed([f"{number + 1}." for number in range(len(texts))], texts, fence, gap="\n")
        prompt = f"Continue this list of instructions for the same task by one more.\n\n{shown}"
        by_hand = varied(self.text(unit.member.context), self.population_lines(members))
        return unit.mutation, self.text_request(WANTED, prompt, fence, by_hand)

    def _taken(self, unit: Unit) -> tuple[str, TextRequest]:
        """Another unit's text, by its score, under this unit's mutation prompt."""
        (other,) = self.chance.choices(self.units, [other.member.mean + 0.1 for other in self.units])
        return self._by_prompt(replace(unit, member=other.member))


def mutated(text: str, mutation: str, source: Source, chance: random.Random) -> list[str]:
    """A text after the operations that a mutation prompt names; after any change where none of them can be made."""
    before = lines = lines_of(text)
    for sentence in sentences(mutation):
        lines = by_lines.change(SENTENCES[sentence], lines, source, chance) or lines
    return lines if lines != before else vary(before, source, chance)


def remutated(mutation: str, chance: random.Random) -> str:
    """A mutation prompt with one sentence added, dropped, exchanged or moved."""
    return "\n".join(vary(sentences(mutation) or list(SENTENCES)[:1], dict.fromkeys(SENTENCES, 1.0), chance))


def sentences(mutation: str) -> list[str]:
    return [line for line in lines_of(mutation) if line in SENTENCES]
