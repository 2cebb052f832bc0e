"""A policy without a model that must keep several conventions at once, and graders that speak in many ways.

Every problem falls under some of a world's conventions. The policy keeps one with the chance `base`, or `follow` where the
text says it. An answer is right if all of them are kept (or earns their share, where it is `graded`). Settings differ in
what the grader says, and in what else a line of a text may do: harm everywhere, as poison does, or lie.
`ConventionWorld.reward` is the exact expected reward of a text on problems that nobody has played.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.simulated_policy import COMPONENT, NAMES, NOTHING, TOPICS
from fastslow.records import Context, Example, Feedback, Rollout, Turn

FORMS = (
    "in capital letters", "as a number of cents", "without its first word", "in brackets", "as year, month and day",
    "with a dash before it", "with two decimals", "in quotation marks", "after a colon", "as a list", "without spaces",
    "twice",
)  # fmt: skip
POISON = "Think of a colour before anything else."
VERDICT = "Wrong."
_CHANGING = re.compile(r"[\d…]+")


@dataclass(frozen=True)
class ConventionDials:
    """What kind of task it is."""

    rules: int = 9
    together: int = 1
    """The conventions that each problem falls under."""
    fixed: int = 0
    """1 if the conventions of a problem always come together: as many groups as fit."""
    base: float = 0.1
    """Chance that a convention is kept without being told."""
    follow: float = 0.9
    """Chance that it is kept where the text says it."""
    graded: int = 0
    """1 if the reward is the share of the conventions that are kept."""
    says: str = "first"
    """Which of the broken conventions the grader names: the `first`, `one` of them, `all`, or `none`."""
    praise: int = 0
    """1 if the grader names a convention only where the answer is right."""
    numbers: int = 0
    """1 if a number of the problem stands in the sentence of every convention."""
    expected: int = 0
    """1 if the grader only says which word was expected and which was given."""
    verdict: int = 0
    """1 if every failure is also called wrong."""
    bad_line: float = 0.0
    """What a line of the seed text costs on every problem, as a factor of the chance."""
    poison: float = 0.0
    """Share of the failures with one more sentence, which costs 0.3 of the chance everywhere."""
    false: float = 0.0
    """Share of the conventions that the grader has wrong: following them breaks the true one."""
    lies: float = 0.0
    """Share of the grader's sentences that are false."""
    breaking: int = 0
    """1 if there is a sentence that, followed, makes every answer unreadable, so that nothing else is ever said."""
    drift: float = 0.0
    """What the weights learn from cycle to cycle, as a share of what is left."""


@dataclass(frozen=True)
class Convention:
    topic: str
    said: str
    lie: str
    false: bool
    word: str


class ConventionWorld:
    """The conventions and problems of one seed."""

    def __init__(self, dials: ConventionDials, seed: int) -> None:
        self.dials, self.seed = dials, seed
        chance = random.Random(f"conventions/{seed}")
        topics, forms = chance.sample(TOPICS, dials.rules), chance.sample(FORMS, min(dials.rules, len(FORMS)))
        number = " no. {number}" if dials.numbers else ""
        self.rules = [
            Convention(
                topic,
                f"The {topic}{number} is written {form}.",
                f"The {topic}{number} is written {chance.choice([each for each in FORMS if each != form])}.",
                chance.random() < dials.false and place > 0,
                form.split()[-1] + topic[::-1],
            )
            for place, (topic, form) in enumerate(zip(topics, forms, strict=True))
        ]
        self.seed_text = "Fill in the form."
        if dials.bad_line:
            self.seed_text += "\nNever look at the question twice."
        groups = dials.rules // dials.together
        self.groups = [tuple(range(place * dials.together, (place + 1) * dials.together)) for place in range(groups)]

    @property
    def oracle_text(self) -> str:
        """The seed text's good line and all true conventions."""
        return "\n".join(
            ["Fill in the form.", *(rule.said.format(number="…") for rule in self.rules if not rule.false)]
        )

    def problem(self, name: str, index: int) -> Example:
        chance = random.Random(f"{self.seed}/{name}/{index}")
        if self.dials.fixed:
            under = chance.choice(self.groups)
        else:
            under = tuple(sorted(chance.sample(range(len(self.rules)), self.dials.together)))
        number, person = chance.randint(1000, 9999), chance.choice(NAMES)
        topics = ", ".join(self.rules[rule].topic for rule in under)
        question = f"Form {number} of {person}, with: {topics}."
        return Example(
            f"simulated-{self.seed}/{name}/{index}", {"rules": under, "number": number, "question": question}
        )

    @cached_property
    def unseen(self) -> list[Example]:
        return [self.problem("test", index) for index in range(300)]

    def reward(self, text: str, cycle: int = 0) -> float:
        kept, factor = self.facts(text, cycle)
        total = 0.0
        for example in self.unseen:
            chances = [factor * kept[rule] for rule in example.data["rules"]]
            product = 1.0
            for each in chances:
                product *= each
            total += sum(chances) / len(chances) if self.dials.graded else product
        return total / len(self.unseen)

    def facts(self, text: str, cycle: int) -> tuple[list[float], float]:
        """The chance that each convention is kept, and a factor for all of them."""
        dials = self.dials
        lines = {_CHANGING.sub("", line.casefold()).replace("  ", " ").strip() for line in text.splitlines()}

        def held(sentence: str) -> bool:
            plain = _CHANGING.sub("", sentence.format(number="…")).casefold().replace("  ", " ").strip()
            return plain in lines

        learnt = 1 - (1 - dials.drift) ** cycle
        kept = []
        for rule in self.rules:
            chance = dials.base + learnt * (dials.follow - dials.base)
            if (held(rule.said) and not rule.false) or any(rule.topic in line and rule.word in line for line in lines):
                chance = dials.follow
            if held(rule.lie) or (held(rule.said) and rule.false):
                chance *= 0.2
            kept.append(chance)
        factor = 1.0
        if dials.bad_line and any("never look" in line for line in lines):
            factor *= 1 - dials.bad_line
        if dials.poison and POISON.casefold() in lines:
            factor *= 0.7
        if dials.breaking and BREAKING.casefold() in lines:
            factor = 0.0
        return kept, factor


BREAKING = "Leave out the names of the fields."
UNREADABLE = "The fields cannot be told apart."


class ConventionPolicy:
    """Plays problems of a world; counts its rollouts."""

    def __init__(self, world: ConventionWorld) -> None:
        self.world, self.cycle, self.rollouts = world, 0, 0
        self._known: dict[tuple[str, int], tuple[list[float], float]] = {}

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        self.rollouts += len(pairs)
        return [self._rollout(*pair, f"{seed}/{number}") for number, pair in enumerate(pairs)]

    def _rollout(self, example: Example, context: Context, draw: str) -> Rollout:
        dials, world = self.world.dials, self.world
        chance = random.Random(f"{world.seed}/{draw}/{example.id}")
        known = (context.id, self.cycle)
        if known not in self._known:
            self._known[known] = world.facts(context.texts[COMPONENT], self.cycle)
        kept, factor = self._known[known]
        under = example.data["rules"]
        right = [chance.random() < factor * kept[rule] for rule in under]
        broken = [rule for rule, good in zip(under, right, strict=True) if not good]
        score = sum(right) / len(right) if dials.graded else float(not broken)
        given = chance.choice(world.rules).word
        said = self._words(example, under, broken, factor, given, chance)
        answer = f"{'Done' if not broken else 'Perhaps'}, with {given} in the last field of all that were to be filled"
        turn = Turn(COMPONENT, example.data["question"], (), NOTHING, answer)
        return Rollout(example, context, self.cycle, (turn,), Feedback(score, "\n".join(said)))

    def _words(
        self,
        example: Example,
        under: Sequence[int],
        broken: list[int],
        factor: float,
        given: str,
        chance: random.Random,
    ) -> list[str]:
        dials, rules = self.world.dials, self.world.rules
        number = example.data["number"]
        if not broken:
            return (
                ["Right.", *(rules[rule].said.format(number=number) for rule in under)] if dials.praise else ["Right."]
            )
        if dials.breaking and not factor:
            return [UNREADABLE]
        said = [VERDICT] if dials.verdict or dials.praise else []
        if dials.poison and chance.random() < dials.poison:
            said.append(POISON)
        if dials.breaking and chance.random() < 0.3:
            said.append(BREAKING)
        if dials.praise or dials.says == "none":
            return said or [VERDICT]
        named = {"first": broken[:1], "one": [chance.choice(broken)], "all": broken}[dials.says]
        for each in named:
            rule = rules[each]
            if dials.expected:
                said.append(f"Field {rule.topic}: expected '{rule.word}', got '{given}'.")
            else:
                sentence = rule.lie if chance.random() < dials.lies else rule.said
                said.append(sentence.format(number=number))
        return said
