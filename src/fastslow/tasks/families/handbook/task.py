r"""Handbooks: short messages go to the desk that an office's policy names, and only the grader knows the policy."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from pydantic import Field

from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Feedback, Message, Options, Split
from fastslow.tasks.data.generated import GeneratedTask, draw_for
from fastslow.tasks.families.handbook.book import Handbook, Rule
from fastslow.tasks.families.handbook.domains import DomainName
from fastslow.tasks.reading.answers import has_box, last_boxed

FORM = "Answer with one of the options, word for word, and nothing else."
_ANSWER_LINE = re.compile(r"^\W*answer\W*:(.*)$", re.IGNORECASE | re.MULTILINE)


class HandbookOptions(Options):
    domain: DomainName = "expenses"
    """What the office deals with."""
    rules: int = Field(default=11, ge=5, le=40)
    """How many rules its policy has."""
    book: int = Field(default=0, ge=0)
    """Another number makes another policy for the same office."""
    remarks: float = Field(default=0.3, ge=0, le=1)
    """Share of wrong answers whose feedback also has a line about that message alone."""
    wrong: float = Field(default=0.0, ge=0, le=1)
    """Share of wrong answers for which the grader names a false rule: the right condition, another desk."""
    train: int = Field(default=2000, ge=1)
    """Training problems."""
    validation: int = Field(default=200, ge=1)
    """Validation problems."""
    test: int = Field(default=200, ge=1)
    """Test problems."""
    seed: int = 0
    """Another seed makes other messages under the same policy."""


class HandbookTask(GeneratedTask):
    """Say where a short message goes, by an office policy that only the grader knows."""

    Options = HandbookOptions
    named = "domain"
    options: HandbookOptions
    seed_text = "Decide where the message goes."

    def __init__(self, options: HandbookOptions) -> None:
        super().__init__(options)
        self.book = Handbook(options.domain, options.rules, options.book)

    @property
    def oracle_text(self) -> str:
        """The seed text and all rules."""
        return "\n".join([self.seed_text, *(rule.text for rule in self.book.rules)])

    def _example(self, split: Split, index: int) -> Example:
        options = self.options
        name = f"handbook-{options.domain}-{options.rules}-{options.book}-seed{options.seed}/{split}/{index}"
        draw = random.Random(name)
        return draw_for(split, lambda: Example(name, self.book.message(draw)), self.messages)

    def messages(self, example: Example) -> list[Message]:
        labels = ", ".join(self.book.domain.labels)
        question = f"{self.book.write(example.data)}\nWhere does it go? Answer with one of these words: {labels}."
        return [{"role": "user", "content": question}]

    def answer(self, example: Example) -> str:
        """The right option."""
        return self.book.decides(example.data).label

    def grade(self, example: Example, answer: str) -> Feedback:
        """1 for the right option; otherwise the rule that was broken, in words that hold for every message, and now and then
        a line about this one alone. The same answer to the same message gets the same words."""
        rule, given = self.book.decides(example.data), read_label(answer, self.book.domain.labels)
        if given == rule.label:
            return Feedback(1.0, "Right.")
        if given is None:
            return Feedback(0.0, f"The answer {one_line(answer, 80)!r} names no one option.\n{FORM}")
        draw = random.Random(f"{example.id}/{given}")
        noun = f"{self.book.domain.noun.capitalize()} {example.data['number']}"
        remark = [f"{noun} from {example.data['name']} does not go to {given}."]
        said = self._false(rule, draw) if draw.random() < self.options.wrong else rule.text
        return Feedback(0.0, "\n".join([*(remark if draw.random() < self.options.remarks else []), said]))

    def _false(self, rule: Rule, draw: random.Random) -> str:
        """A rule's sentence with another desk in place of its own."""
        other = draw.choice([label for label in self.book.domain.labels if label not in rule.text])
        return rule.text.replace(f"to {rule.label}", f"to {other}", 1)


def read_label(answer: str, labels: Sequence[str]) -> str | None:
    r"""The option that an answer gives: the one named in its last box, else after its last ANSWER:, else in its last line.
    Where more than one is named, or none, it gives none."""
    lines = [line for line in answer.splitlines() if line.strip()]
    if has_box(answer):
        part = last_boxed(answer) or ""
    elif after := _ANSWER_LINE.findall(answer):
        part = after[-1]
    else:
        part = lines[-1] if lines else ""
    named = {label for label in labels if re.search(rf"(?<!\w){re.escape(label)}(?!\w)", part, re.IGNORECASE)}
    return named.pop() if len(named) == 1 else None
