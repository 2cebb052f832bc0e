"""A policy without a model that works through real handbooks: their messages, their grader and its words.

It follows a rule of its text that holds for the message, the first in the handbook's order, most of the time; otherwise it
guesses. A text with rules that do not hold misleads it now and then, and unless the text says in which form to answer it
often names no option. Everything that is reported is its exact expected reward.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fastslow.fast.reflection.lessons import line_key
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.tasks.families.handbook import FORM, HandbookOptions, HandbookTask
from fastslow.tasks.skills import Sections, library_of

DOMAINS = ("expenses", "triage", "access", "shipping")
COMPONENT = "system"
UNSEEN = 300
_SHOWN = re.compile(r"(?m)^The answer:\n(.*)$")


@dataclass(frozen=True)
class HandbookDials:
    rules: int = 11
    remarks: float = 0.3
    wrong: float = 0.0
    follow: float = 0.6
    """How often a rule that is in the text and holds is followed."""
    misled: float = 0.3
    """How often a text with rules, none of which holds, makes the policy name the option of one of them."""
    formless: float = 0.3
    """How often no option is named where the text does not say in which form to answer."""
    distracted: float = 0.0
    """How often each answer that a text shows is copied, whatever the message."""
    grip: int = 0
    """Lines of a text from which each further one makes every rule less likely to be followed: with n of them as `grip` / n;
    0 sets no limit."""
    skills: int = 0
    """With `fast.skills`: how many entries of a text stand in front of a message."""
    skew: float = 1.0
    """Guesses are uneven: the n-th option is named in proportion to 1 / n to this power."""


class HandbookWorld:
    """One handbook and its messages, by seed."""

    def __init__(self, dials: HandbookDials, seed: int) -> None:
        self.dials, self.seed = dials, seed
        self.task = HandbookTask(
            HandbookOptions(
                domain=DOMAINS[seed % 4],  # type: ignore[arg-type]
                rules=dials.rules,
                book=seed,
                remarks=dials.remarks,
                wrong=dials.wrong,
                train=100_000,
                validation=UNSEEN,
            )
        )
        self.seed_text = self.task.seed_text
        self.library = library_of(self.task, dials.skills) if dials.skills else None
        self.shown: dict[tuple[str, str], str] = {}
        """By text and problem: what stands in front of the message."""
        labels = list(self.task.book.domain.labels)
        random.Random(f"guesses/{seed}").shuffle(labels)
        weights = {label: 1 / (place + 1) ** dials.skew for place, label in enumerate(labels)}
        self.guesses = {label: weight / sum(weights.values()) for label, weight in weights.items()}

    @property
    def oracle_text(self) -> str:
        """All rules. As a list for skills, what every message needs stands above it."""
        if self.library is None:
            return f"{self.task.oracle_text}\n{FORM}"
        *rules, rest = [rule.text for rule in self.task.book.rules]
        return Sections((self.seed_text, FORM, rest), tuple(rules)).text

    def text_shown(self, text: str, example: Example) -> str:
        if self.library is None:
            return text
        key = text, example.id
        if key not in self.shown:
            asked = self.task.messages(example)
            self.shown[key] = self.library.over({COMPONENT: text}).shown(COMPONENT, asked)[COMPONENT]
        return self.shown[key]

    def problem(self, name: str, index: int) -> Example:
        return self.task.examples("train")[index]

    @cached_property
    def unseen(self) -> list[Example]:
        return [self.task.examples("validation")[index] for index in range(UNSEEN)]

    def reward(self, text: str, cycle: int = 0) -> float:
        return sum(self.answers(text, each).get(self.task.answer(each), 0.0) for each in self.unseen) / UNSEEN

    def answers(self, text: str, example: Example) -> Mapping[str, float]:
        """The chance of each option; what is missing to 1 is the chance that none is named."""
        dials = self.dials
        lines = frozenset(line_key(line) for line in self.text_shown(text, example).splitlines())
        follow = dials.follow * min(1.0, dials.grip / len(lines)) if dials.grip else dials.follow
        named = 1.0 if line_key(FORM) in lines else 1 - dials.formless
        present = [rule for rule in self.task.book.rules if line_key(rule.text) in lines]
        holding = next((rule for rule in present if rule.holds(example.data)), None)
        # A false rule has the words of a true one with another option.
        false = [self._label(line) for line in lines if self._is_false(line, example)]
        chances = dict.fromkeys(self.guesses, 0.0)
        if false or holding:
            for label in [*false, *([holding.label] if holding else [])]:
                chances[label] += follow / (len(false) + bool(holding))
            rest = 1 - follow
        elif present:
            for rule in present:
                chances[rule.label] += dials.misled / len(present)
            rest = 1 - dials.misled
        else:
            rest = 1.0
        shown = [label for answer in _SHOWN.findall(text) if (label := answer.strip().casefold()) in self.guesses]
        copied = 1 - (1 - dials.distracted) ** len(shown)
        return {
            label: (1 - copied) * named * (chances[label] + rest * guess)
            + copied * (shown.count(label) / len(shown) if shown else 0.0)
            for label, guess in self.guesses.items()
        }

    @cached_property
    def _frames(self) -> dict[str, int]:
        """The sentences of rules with their option left out, and the rule's number."""
        return {
            line_key(rule.text).replace(f"to {rule.label}", "to ", 1): n for n, rule in enumerate(self.task.book.rules)
        }

    def _is_false(self, line: str, example: Example) -> bool:
        label = self._label(line)
        number = self._frames.get(line.replace(f"to {label}", "to ", 1)) if label else None
        if number is None:
            return False
        rule = self.task.book.rules[number]
        return rule.label != label and rule.holds(example.data)

    def _label(self, line: str) -> str:
        found = [(line.find(f"to {label}"), label) for label in self.guesses if f"to {label}" in line]
        return min(found)[1] if found else ""


class HandbookPolicy:
    """Plays messages of a handbook; counts its rollouts."""

    def __init__(self, world: HandbookWorld) -> None:
        self.world, self.cycle, self.rollouts = world, 0, 0

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        self.rollouts += len(pairs)
        return [self._rollout(*pair, f"{seed}/{number}") for number, pair in enumerate(pairs)]

    def _rollout(self, example: Example, context: Context, draw: str) -> Rollout:
        chance = random.Random(f"{self.world.seed}/{draw}/{example.id}")
        chances = self.world.answers(context.texts[COMPONENT], example)
        left, answer = chance.random(), self._formless(example, chance)
        for label, part in chances.items():
            left -= part
            if left < 0:
                answer = label
                break
        question = self._question(example)
        text = context.texts[COMPONENT]
        shown = {COMPONENT: self.world.text_shown(text, example)} if self.world.library else None
        turn = Turn(COMPONENT, question, (), Completion((), ()), answer, shown)
        graded = self.world.task.grade(example, answer)
        return Rollout(example, context, self.cycle, (turn,), Feedback(graded.score, graded.text))

    def _formless(self, example: Example, chance: random.Random) -> str:
        """An answer that names two options, and perhaps repeats a part of the question."""
        words = self._question(example).split()
        start = chance.randrange(len(words))
        two = " and ".join(chance.sample(list(self.world.guesses), 2))
        return f"{' '.join(words[start : start + chance.randrange(6)])} {two}".strip()

    def _question(self, example: Example) -> str:
        return str(self.world.task.messages(example)[0]["content"])
