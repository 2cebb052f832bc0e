"""A policy without a model that seldom does what it is told and mostly does what it is shown, as small models do.

A problem asks for some of eight marks, and only an answer with all of them right scores. The grader names the first mark
that is wrong. A mark that the text states is right with a chance of 0.1 to 0.4, and of 0.8 where an answer in the text shows
it as well. Where an earlier answer is shown with the grader's words, what it has right mostly stays, and what the grader
names is mended with the chance `mend`. Everything that is reported is its exact expected reward.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn

COMPONENT = "system"
UNSEEN = 300
NAMES = ("cargo", "lodge", "fjord", "quill", "ember", "grove", "comet", "delta", "perch", "sable", "tunic", "umber")
EARLIER = "An earlier answer to the question below was:\n"


@dataclass(frozen=True)
class ShownDials:
    rules: int = 8
    needed: int = 4
    """Marks that a problem asks for."""
    least: float = 0.1
    most: float = 0.4
    """The chances that marks which the text states alone are right lie between these."""
    shown: float = 0.8
    mend: float = 0.5
    """0 makes a second try no better than a first one."""
    keep: float = 0.9
    """How often a second try keeps what the earlier answer has right."""
    whole: int = 0
    """1: answers with a wrong mark show nothing."""


class ShownWorld:
    """The marks and problems of one world, by seed."""

    seed_text = "Mark the items of the list, in order."

    def __init__(self, dials: ShownDials, seed: int) -> None:
        self.dials, self.seed = dials, seed
        chance = random.Random(f"shown/{seed}")
        self.marks = {name: "".join(chance.sample("bdgklmnrtvz", 4)) for name in chance.sample(NAMES, dials.rules)}
        self.told = {name: chance.uniform(dials.least, dials.most) for name in self.marks}
        self.rules = {name: f"Every {name} is marked with the word {mark}." for name, mark in self.marks.items()}
        self._chances: dict[str, dict[str, float]] = {}

    @property
    def oracle_text(self) -> str:
        """All rules, and an answer that shows each."""
        shown = " ".join(f"{name}={mark}" for name, mark in self.marks.items())
        return "\n".join([self.seed_text, *self.rules.values(), f"Example: {shown}"])

    def problem(self, name: str, index: int) -> Example:
        some = set(random.Random(f"{self.seed}/{name}/{index}").sample(list(self.marks), self.dials.needed))
        needed = [each for each in self.marks if each in some]
        return Example(f"{name}/{index}", {"needed": needed, "question": f"List {index}: {', '.join(needed)}"})

    @cached_property
    def unseen(self) -> list[Example]:
        return [self.problem("unseen", index) for index in range(UNSEEN)]

    def reward(self, text: str, cycle: int = 0) -> float:
        chances = self.chances(text)
        return sum(math.prod(chances[name] for name in each.data["needed"]) for each in self.unseen) / UNSEEN

    def chances(self, text: str) -> Mapping[str, float]:
        """Of each mark: how often it is right under this text."""
        if text not in self._chances:
            body, again, tail = text.partition(EARLIER)
            told = {name for name, rule in self.rules.items() if rule in text}
            shown = self._shown(body if again and self.dials.mend else text)
            found = {name: self.told[name] if name in told else 0.0 for name in self.marks}
            found |= {name: self.dials.shown if name in told else 0.7 * self.dials.shown for name in shown}
            if again and self.dials.mend:
                earlier = tail.partition("\n")[0]
                for name, mark in self.marks.items():
                    if self.rules[name] in tail:
                        found[name] = max(found[name], self.dials.mend)
                    elif f"{name}={mark}" in earlier:
                        found[name] = self.dials.keep
            self._chances[text] = found
        return self._chances[text]

    def _shown(self, text: str) -> set[str]:
        """The marks that some answer in a text has right."""
        found = set()
        for line in text.splitlines():
            pairs = [pair.split("=") for pair in line.split() if pair.count("=") == 1]
            right = {name for name, mark in pairs if self.marks.get(name) == mark}
            if not self.dials.whole or len(right) == len(pairs):
                found |= right
        return found


class ShownPolicy:
    """Answers problems of a world; counts its rollouts."""

    def __init__(self, world: ShownWorld) -> None:
        self.world, self.cycle, self.rollouts = world, 0, 0

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        self.rollouts += len(pairs)
        return [self._rollout(*pair, f"{seed}/{number}") for number, pair in enumerate(pairs)]

    def _rollout(self, example: Example, context: Context, draw: str) -> Rollout:
        world, chance = self.world, random.Random(f"{self.world.seed}/{draw}")
        chances = world.chances(context.texts[COMPONENT])
        right = {name: chance.random() < chances[name] for name in example.data["needed"]}
        answer = " ".join(f"{name}={world.marks[name] if kept else 'plain'}" for name, kept in right.items())
        wrong = [world.rules[name] for name, kept in right.items() if not kept]
        turn = Turn(COMPONENT, example.data["question"], (), Completion((), ()), answer)
        return Rollout(example, context, self.cycle, (turn,), Feedback(float(not wrong), "".join(wrong[:1])))
