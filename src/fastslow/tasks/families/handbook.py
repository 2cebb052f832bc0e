r"""Handbooks: short messages go to the desk that an office's policy names, and only the grader knows the policy.

A policy is made from a domain and a number. The rule that decides is the first that holds, in this order: rules that go
before all others, exceptions to the rule of a kind, rules of a kind, and the rule for what no other names. Every sentence
says by itself when it gives way, so that the rules can be read in any order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Feedback, Message, Split
from fastslow.tasks.data import GeneratedOptions, GeneratedTask, draw_for
from fastslow.tasks.reading import has_box, last_boxed

DomainName = Literal["expenses", "triage", "access", "shipping"]


@dataclass(frozen=True)
class Flag:
    """Something that holds of a few messages: how a message says so, and how a rule does."""

    message: str
    rule: str


@dataclass(frozen=True)
class Domain:
    """One office."""

    noun: str
    """What arrives."""
    says: Sequence[str]
    """How a message is put; {who}, {kind} and {amount} are filled in."""
    kinds: Sequence[str]
    amount: str
    """What is counted, as a rule and a message say it after the number."""
    most: int
    """The largest number."""
    roles: Sequence[str]
    role_rule: str
    """How a rule says that a message is about a role."""
    flags: Sequence[Flag]
    labels: Sequence[str]


DOMAINS: dict[DomainName, Domain] = {
    name: Domain(**{**given, "flags": [Flag(*each) for each in given["flags"].items()]})
    for name, given in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
}
NAMES = (
    "Ilse", "Joren", "Mara", "Tobin", "Edda", "Pell", "Rosa", "Viggo", "Nadia", "Ansel", "Orla", "Bram", "Tilda", "Casimir",
    "Hedy", "Lorcan", "Saskia", "Emeric", "Yara", "Odin",
)  # fmt: skip


FORM = "Answer with one of the options, word for word, and nothing else."
_ANSWER_LINE = re.compile(r"^[^\w\n]*+answer[^\w\n]*:(.*)$", re.IGNORECASE | re.MULTILINE)

RARITY = 0.7
"""The r-th most frequent rule decides a share of the messages that is proportional to 1 / r to this power."""
FLAGGED = 0.06
"""How often a flag, or a role, that the deciding rule does not ask for stands in a message all the same."""
TRIES = 10_000


@dataclass(frozen=True)
class Rule:
    """When something goes where; what is None does not matter."""

    text: str
    label: str
    kind: str | None = None
    flag: int | None = None
    role: str | None = None
    above: int | None = None

    def holds(self, message: Mapping[str, Any]) -> bool:
        return (
            (self.kind is None or message["kind"] == self.kind)
            and (self.flag is None or self.flag in message["flags"])
            and (self.role is None or message["role"] == self.role)
            and (self.above is None or message["amount"] > self.above)
        )


class Handbook:
    """The rules of one office, first those that go before others."""

    def __init__(self, name: DomainName, rules: int, book: int) -> None:
        self.domain: Domain = DOMAINS[name]
        draw = random.Random(f"handbook/{name}/{rules}/{book}")
        first, exceptions, kinds = _shares(rules)
        named = draw.sample(self.domain.kinds, kinds)
        labels = {kind: draw.choice(self.domain.labels) for kind in named}
        self.rules = [
            *self._first(first, draw),
            *(self._exception(kind, labels[kind], draw) for kind in draw.sample(named, exceptions)),
            *(Rule(f"A {kind} goes to {labels[kind]}.", labels[kind], kind=kind) for kind in named),
        ]
        rest, what = draw.choice(self.domain.labels), f"{self.domain.noun.capitalize()}s about something"
        self.rules.append(Rule(f"{what} that no other rule names go to {rest}.", rest))
        order = draw.sample(range(len(self.rules)), len(self.rules))
        self.shares = [1 / (1 + order[index]) ** RARITY for index in range(len(self.rules))]

    def decides(self, message: Mapping[str, Any]) -> Rule:
        return next(rule for rule in self.rules if rule.holds(message))

    def message(self, draw: random.Random) -> dict[str, Any]:
        """A message that a rule decides which was drawn by its share."""
        (rule,) = draw.choices(self.rules, self.shares)
        for _ in range(TRIES):
            message = self._drawn(rule, draw)
            if self.decides(message) is rule:
                return message
        raise AssertionError(f"no message falls under: {rule.text}")

    def write(self, message: Mapping[str, Any]) -> str:
        domain = self.domain
        who = f"{message['name']}, {message['role']}," if message["role"] else message["name"]
        said = domain.says[message["way"]].format(
            who=who, kind=message["kind"], amount=f"{message['amount']} {domain.amount}"
        )
        # A role's closing comma is not needed before another mark.
        said = said.replace(",.", ".").replace(",:", ":").replace(",,", ",")
        flags = [domain.flags[index].message for index in message["flags"]]
        return " ".join([f"{domain.noun.capitalize()} {message['number']}: {said}", *flags])

    def _drawn(self, rule: Rule, draw: random.Random) -> dict[str, Any]:
        domain = self.domain
        role = draw.choice(domain.roles) if draw.random() < FLAGGED * len(domain.roles) else None
        flags = {index for index in range(len(domain.flags)) if draw.random() < FLAGGED}
        return {
            "number": draw.randint(1000, 9999),
            "name": draw.choice(NAMES),
            "way": draw.randrange(len(domain.says)),
            "kind": rule.kind or draw.choice(domain.kinds),
            "amount": draw.randint((rule.above or 0) + 1, domain.most),
            "role": rule.role or role,
            "flags": sorted(flags | ({rule.flag} if rule.flag is not None else set())),
        }

    def _first(self, count: int, draw: random.Random) -> list[Rule]:
        """Rules about flags, each of which gives way to those before it."""
        chosen = draw.sample(range(len(self.domain.flags)), count)
        rules = []
        for place, index in enumerate(chosen):
            label = draw.choice(self.domain.labels)
            earlier = [self.domain.flags[other].rule for other in chosen[:place]]
            but = f", but not those {' or '.join(earlier)}" if earlier else ""
            text = (
                f"All {self.domain.noun}s {self.domain.flags[index].rule} go to {label}, whatever they are about{but}."
            )
            rules.append(Rule(text, label, flag=index))
        return rules

    def _exception(self, kind: str, usual: str, draw: random.Random) -> Rule:
        label = draw.choice([label for label in self.domain.labels if label != usual])
        if draw.random() < 0.5:
            above = round(draw.uniform(0.3, 0.6) * self.domain.most / 10) * 10
            text = f"A {kind} goes to {label} and not to {usual} if it is more than {above} {self.domain.amount}."
            return Rule(text, label, kind=kind, above=above)
        role = draw.choice(self.domain.roles)
        text = f"A {kind} goes to {label} and not to {usual} if {self.domain.role_rule} {role}."
        return Rule(text, label, kind=kind, role=role)


def _shares(rules: int) -> tuple[int, int, int]:
    """How many rules go before all others, how many are exceptions, how many are about a kind; one more is for the rest."""
    first = min(4, max(1, rules // 8))
    exceptions = min(rules // 3, (rules - first - 1) // 2)
    return first, exceptions, rules - first - 1 - exceptions


class HandbookOptions(GeneratedOptions):
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
        said = rule.text
        if draw.random() < self.options.wrong:  # another desk in place of the rule's own
            other = draw.choice([label for label in self.book.domain.labels if label not in said])
            said = said.replace(f"to {rule.label}", f"to {other}", 1)
        return Feedback(0.0, "\n".join([*(remark if draw.random() < self.options.remarks else []), said]))


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
