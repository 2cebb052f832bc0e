"""Formats: a note becomes a record of fields, written by conventions of the house that only the grader knows.

A house is made from a number. It has at least one convention for every field that its records hold, and several for most. A
field is right when all of its conventions are kept and the rest of its value is as the note gives it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Feedback, Message, Split
from fastslow.tasks.data import GeneratedOptions, GeneratedTask, draw_for
from fastslow.tasks.families.formats.fields import FIELDS
from fastslow.tasks.families.formats.values import DOCUMENTS, Ways

FORM = "Write one line for each field in the form `field: value`, as in `colour: green`, and nothing else."
AS_GIVEN = "Keep everything else of the {} as the note gives it."
LONGEST = 100
"""Characters of a value that are read."""


class FormatsOptions(GeneratedOptions):
    conventions: int = Field(default=8, ge=5, le=15)
    """How many conventions the house has."""
    fields: int = Field(default=4, ge=1, le=8)
    """Fields of a record. The house has conventions for these, and for more fields where it has more than twice as many."""
    graded: bool = True
    """The reward is the share of fields that are right; without it, 1 where all are right and 0 otherwise."""
    feedback: Literal["rules", "values", "both", "none"] = "rules"
    """What is said of a wrong field: the conventions it breaks, the expected value, both, or nothing. The form of an answer
    is always told."""
    book: int = Field(default=0, ge=0)
    """Another number makes another house, with other conventions."""

    @model_validator(mode="after")
    def _enough(self) -> FormatsOptions:
        if self.conventions < self.fields:
            raise ValueError(
                f"conventions={self.conventions} leaves some of fields={self.fields} without one; "
                f"set conventions to {self.fields} or more, or lower fields"
            )
        return self


class Formats(GeneratedTask):
    """Write a note as a record, by conventions that only the grader knows."""

    Options = FormatsOptions
    options: FormatsOptions
    seed_text = f"Write the note as a record. {FORM}\nKeep values as the note gives them unless a rule says otherwise."

    def __init__(self, options: FormatsOptions) -> None:
        super().__init__(options)
        self.house = drawn_house(options.conventions, options.fields, options.book)

    @property
    def oracle_text(self) -> str:
        """The seed text, all conventions, and a record that is in no split."""
        shown = self._example("train", self.options.train)
        rules = [rule for name in self.house for rule in self.rules(name)]
        example = f"For example, this note:\n{self.messages(shown)[0]['content']}\nbecomes:\n{self.answer(shown)}"
        return "\n".join([self.seed_text, *rules, example])

    def rules(self, name: str) -> list[str]:
        return [FIELDS[name].aspects[aspect][way] for aspect, way in self.house[name].items()]

    def _example(self, split: Split, index: int) -> Example:
        options = self.options
        name = f"formats-{options.conventions}-{options.fields}-{options.book}-seed{options.seed}/{split}/{index}"
        draw = random.Random(name)
        return draw_for(split, lambda: Example(name, self._drawn(draw)), self.messages)

    def _drawn(self, draw: random.Random) -> dict[str, Any]:
        names = draw.sample(list(self.house), self.options.fields)
        return {
            "document": draw.choice(DOCUMENTS),
            "values": {name: FIELDS[name].draw(draw) for name in names},
            "ways": [draw.randrange(len(FIELDS[name].notes)) for name in names],
        }

    def messages(self, example: Example) -> list[Message]:
        values = example.data["values"]
        noted = [
            FIELDS[name].notes[way].format(FIELDS[name].write(value, {}))
            for (name, value), way in zip(values.items(), example.data["ways"], strict=True)
        ]
        question = f"{example.data['document']}: {'; '.join(noted)}\nFields: {', '.join(values)}"
        return [{"role": "user", "content": question}]

    def expected(self, example: Example) -> dict[str, str]:
        """The right value of each field."""
        return {name: FIELDS[name].write(value, self.house[name]) for name, value in example.data["values"].items()}

    def answer(self, example: Example) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.expected(example).items())

    def grade(self, example: Example, answer: str) -> Feedback:
        """The share of fields that are right, and what is wrong with the others: sentences that hold for every note."""
        expected = self.expected(example)
        given = read_fields(answer, list(expected))
        wrong = [name for name, value in expected.items() if given.get(name) != value]
        if not wrong:
            return Feedback(1.0, "Right.")
        lines = [] if len(given) == len(expected) else [FORM]
        for name in wrong:
            if name in given:
                lines += self._said(name, example.data["values"][name], given[name])
        share = 1 - len(wrong) / len(expected)
        return Feedback(share if self.options.graded else 0.0, "\n".join(lines), progress=share)

    def _said(self, name: str, value: Any, given: str) -> list[str]:
        if self.options.feedback == "none":
            return []
        house, aspects = self.house[name], FIELDS[name].aspects
        shown = [f"{name}: expected '{FIELDS[name].write(value, house)}', got '{one_line(given, LONGEST)}'"]
        if self.options.feedback == "values":
            return shown
        broken = broken_aspects(name, value, house, given)
        rules = [aspects[aspect][house[aspect]] for aspect in house if aspect in broken]
        rules += [] if set(broken) <= set(house) else [AS_GIVEN.format(name)]
        return rules if self.options.feedback == "rules" else [*shown, *rules]


def drawn_house(conventions: int, fields: int, book: int) -> dict[str, Ways]:
    """The conventions of a house, by field: one for each of its fields, the rest for any of them."""
    draw = random.Random(f"formats/{conventions}/{fields}/{book}")
    names = draw.sample(list(FIELDS), max(fields, (conventions + 1) // 2))
    chosen = {(name, draw.choice(list(FIELDS[name].aspects))) for name in names}
    left = [(name, aspect) for name in names for aspect in FIELDS[name].aspects if (name, aspect) not in chosen]
    chosen |= set(draw.sample(left, conventions - len(chosen)))
    return {
        name: {
            aspect: draw.choice(list(ways)) for aspect, ways in FIELDS[name].aspects.items() if (name, aspect) in chosen
        }
        for name in names
    }


def read_fields(answer: str, names: Sequence[str]) -> dict[str, str]:
    """The values that an answer gives; of two for the same field the last."""
    found = {}
    for line in answer.splitlines():
        head, colon, value = line.partition(":")
        name = head.strip(" \t*`-_#>\"'").casefold()
        if colon and name in names:
            found[name] = value.strip(" \t*`")
    return found


def broken_aspects(name: str, value: Any, house: Ways, given: str) -> list[str]:
    """The aspects in which a wrong value is not written as the house wants it; all of the house's where it cannot be told.

    A value that no way of writing leads to is compared by its shape, in which all numbers and all words are alike.
    """
    field = FIELDS[name]
    given = given[: LONGEST + 1]
    shape = _shape(given)
    exact, alike = [], []
    for ways in field.every_way():
        written = field.write(value, ways)
        differing = [aspect for aspect in field.aspects if ways.get(aspect) != house.get(aspect)]
        if written == given:
            exact.append(differing)
        elif _shape(written) == shape:
            alike.append(differing)
    return min(exact or alike, key=len, default=[]) or list(house)


def _shape(text: str) -> str:
    return re.sub(r"[a-z]+", "a", re.sub(r"[A-Z]+", "A", re.sub(r"[0-9]+", "0", text)))
