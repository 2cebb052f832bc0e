"""A handbook: rules with an order of precedence, made from a domain and a number, and messages that they decide.

The rule that decides is the first that holds, in this order: rules that go before all others, exceptions to the rule of a
kind, rules of a kind, and the rule for what no other names. Every sentence says by itself when it gives way, so that the
rules can be read in any order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastslow.tasks.families.handbook.domains import DOMAINS, NAMES, Domain, DomainName

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
            *(self._of_kind(kind, labels[kind]) for kind in named),
            self._rest(draw),
        ]
        order = draw.sample(range(len(self.rules)), len(self.rules))
        self.shares = [1 / (1 + order[index]) ** RARITY for index in range(len(self.rules))]

    def decides(self, message: Mapping[str, Any]) -> Rule:
        """The rule that a message falls under."""
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
        """A message in words."""
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

    def _of_kind(self, kind: str, label: str) -> Rule:
        return Rule(f"A {kind} goes to {label}.", label, kind=kind)

    def _rest(self, draw: random.Random) -> Rule:
        label = draw.choice(self.domain.labels)
        return Rule(f"{self.domain.noun.capitalize()}s about something that no other rule names go to {label}.", label)


def _shares(rules: int) -> tuple[int, int, int]:
    """How many rules go before all others, how many are exceptions, how many are about a kind; one more is for the rest."""
    first = min(4, max(1, rules // 8))
    exceptions = min(rules // 3, (rules - first - 1) // 2)
    return first, exceptions, rules - first - 1 - exceptions
