"""Conventions that a grader tells in the words of other programs: test runners, compilers, validators, reviewers.

Each seed takes one kind of report. Every problem falls under two of nine conventions; the policy keeps one with the chance
`base`, or `follow` where one line of its text has all the words that matter of it. Reports show what the answer had beside
what was wanted, where in a file it was, what passed, and how many failed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.simulated_conventions import ConventionDials, ConventionPolicy, ConventionWorld
from benchmarks.simulated_policy import NAMES
from fastslow.records import Context, Example, Feedback, Rollout

FIELDS = ("status", "kind", "mode", "lang", "unit", "zone", "level", "tier", "due")
WANTED = ("OPEN", "invoice", "express", "en", "kg", "Europe/Berlin", "L3", "A", "later")
GIVEN = ("open", "bill", "fast", "english", "kilo", "Berlin", "high", "gold", "now")
RULES = (
    "must be rounded to cents", "must name the quarter", "must hold the page count", "must be sorted by date",
    "must be in capitals", "must stand on a line of its own", "must be the clerk's", "must come before the amount",
    "must not be empty",
)  # fmt: skip
CALLS = (
    "TypeError: load() takes a path, not a list", "ValueError: scale() needs a factor above 0",
    "TypeError: merge() missing 1 required keyword-only argument: 'on'", "RuntimeError: draw() must come after begin()",
    "KeyError: pick() knows columns by their lower-case names", "PermissionError: save() writes below out/ only",
    "ValueError: parse() wants ISO dates", "TypeError: send() argument 'to' must be a list of names",
    "AttributeError: count() is a method of Table, not of Row",
)  # fmt: skip
ADVICE = (
    "Refunds above the limit go to finance first", "A complaint is answered within one day",
    "Never promise a date for spare parts", "Warranty claims need the serial number", "Minors are told to ask a parent",
    "A caller from abroad gets the email form", "Broken seals are never taken back",
    "A second reminder costs five euros", "Gift cards cannot be paid out",
)  # fmt: skip
SCHEMA = (
    "does not match '^[A-Z]{2}$'", "is not one of ['USD', 'EUR', 'CHF']", "is not of type 'number'",
    "is too short, at least 14 characters", "is not of type 'integer'", "is greater than the maximum of 99.5",
    "does not match '^[a-z ]+$'", "is not a 'date-time'", "is not unique",
)  # fmt: skip


@dataclass(frozen=True)
class ReportDials:
    """What kind of task it is."""

    base: float = 0.15
    follow: float = 0.9
    together: int = 2
    says: str = "first"
    """Which of the broken conventions are told: the `first`, or `all`."""


Report = Callable[[int, str, random.Random], str]
"""What is said of a convention, given what the answer had."""


def _tests(rule: int, given: str, chance: random.Random) -> str:
    name, wanted = FIELDS[rule], WANTED[rule]
    return (
        f"    def test_{name}(answer):\n>       assert answer['{name}'] == '{wanted}'\nE       AssertionError: assert "
        f"'{given}' == '{wanted}'\n\ntest_answer_{chance.randint(1, 900)}.py:{chance.randint(5, 90)}: AssertionError\n"
        f"1 failed, {chance.randint(1, 8)} passed in 0.{chance.randint(10, 99)}s"
    )


def _compiler(rule: int, given: str, chance: random.Random) -> str:
    line, name, wanted = chance.randint(3, 80), GIVEN[rule], FIELDS[rule]
    return (
        f"main.c:{line}:{chance.randint(2, 40)}: error: implicit declaration of function '{name}'; did you mean '{wanted}'?\n"
        f" {line:4} |     {given}\n      |           ^~~~~~"
    )


def _traceback(rule: int, given: str, chance: random.Random) -> str:
    where = f'  File "answer_{chance.randint(1000, 9999)}.py", line {chance.randint(2, 60)}, in <module>'
    return f"Traceback (most recent call last):\n{where}\n    {given}\n{CALLS[rule]}"


def _difference(rule: int, given: str, chance: random.Random) -> str:
    start, name = chance.randint(1, 30), FIELDS[rule]
    return (
        f'--- expected\n+++ got\n@@ -{start},3 +{start},3 @@\n   "id": {chance.randint(1000, 9999)},\n'
        f'-  "{name}": "{WANTED[rule]}",\n+  "{name}": "{given}",\n   "name": "{chance.choice(NAMES)}"'
    )


def _checklist(rule: int, given: str, chance: random.Random) -> str:
    others = [f"[x] {each}" for each in chance.sample(FIELDS[:rule] + FIELDS[rule + 1 :], 3)]
    others.insert(chance.randint(0, 3), f"[ ] {FIELDS[rule]}: {RULES[rule]} (got {given})")
    return "\n".join([f"{chance.randint(3, 6)} of 7 checks passed in 0.{chance.randint(10, 99)} s", *others])


def _pydantic(rule: int, given: str, chance: random.Random) -> str:
    return (
        f"1 validation error for Order\n{FIELDS[rule]}\n  Value {RULES[rule]} [type=value_error, input_value='{given}', "
        f"input_type=str]\n    For further information visit https://errors.pydantic.dev/2.{chance.randint(1, 9)}/v/error"
    )


def _json(rule: int, given: str, chance: random.Random) -> str:
    error = {"field": FIELDS[rule], "message": RULES[rule], "value": given}
    return json.dumps({"ok": False, "score": 0, "id": chance.randint(1000, 9999), "errors": [error]})


def _prose(rule: int, given: str, chance: random.Random) -> str:
    opening = chance.choice(("Thanks for the quick answer, {}.", "Good tone, {}.", "The greeting to {} is fine."))
    closing = chance.choice(
        ("Please mind that next time.", "Otherwise well done.", f"See ticket {chance.randint(1, 999)}.")
    )
    return f"{opening.format(chance.choice(NAMES))} However: {ADVICE[rule]}. {closing}"


REPORTS: dict[str, tuple[Report, Callable[[int], Sequence[str]]]] = {
    "tests": (_tests, lambda rule: (FIELDS[rule], WANTED[rule])),
    "compiler": (_compiler, lambda rule: (GIVEN[rule], FIELDS[rule])),
    "traceback": (_traceback, lambda rule: (CALLS[rule].split(": ", 1)[1],)),
    "difference": (_difference, lambda rule: (FIELDS[rule], WANTED[rule])),
    "checklist": (_checklist, lambda rule: (FIELDS[rule], RULES[rule])),
    "pydantic": (_pydantic, lambda rule: (FIELDS[rule], RULES[rule])),
    "json": (_json, lambda rule: (FIELDS[rule], RULES[rule])),
    "schema": (
        lambda rule, given, chance: f"$.orders[{chance.randint(0, 9)}].{FIELDS[rule]}: '{given}' {SCHEMA[rule]}",
        lambda rule: (FIELDS[rule], SCHEMA[rule]),
    ),
    "two rules a field": (
        lambda rule, given, chance: f"{FIELDS[rule // 2]}: {RULES[rule]}, not {given}",
        lambda rule: (FIELDS[rule // 2], RULES[rule]),
    ),
    "linter": (
        lambda rule, given, chance: (
            f"answer.js\n  {chance.randint(1, 90)}:{chance.randint(1, 40)}  error  It {RULES[rule]}  {FIELDS[rule]}\n\n"
            "✖ 1 problem (1 error, 0 warnings)"
        ),
        lambda rule: (RULES[rule],),
    ),
    "prose": (_prose, lambda rule: (ADVICE[rule],)),
    "echo": (
        lambda rule, given, chance: f"For this the answer is not {given}.\n{ADVICE[rule]}.",
        lambda rule: (ADVICE[rule],),
    ),
}


class ReportWorld(ConventionWorld):
    """The conventions, the problems and the kind of report of one seed."""

    def __init__(self, dials: ReportDials, seed: int) -> None:
        super().__init__(ConventionDials(together=dials.together, base=dials.base, follow=dials.follow), seed)
        self.says = dials.says
        self.kind = list(REPORTS)[seed % len(REPORTS)]
        self.order = random.Random(f"reports/{seed}").sample(range(len(self.rules)), len(self.rules))

    @property
    def oracle_text(self) -> str:
        words = REPORTS[self.kind][1]
        return "\n".join([self.seed_text, *(" ".join(words(rule)) for rule in self.order)])

    def facts(self, text: str, cycle: int) -> tuple[list[float], float]:
        lines, words = text.casefold().splitlines(), REPORTS[self.kind][1]
        held = [any(all(word.casefold() in line for word in words(rule)) for line in lines) for rule in self.order]
        return [self.dials.follow if each else self.dials.base for each in held], 1.0


class ReportPolicy(ConventionPolicy):
    """Plays problems of a world; an answer has the values that the reports about it name."""

    world: ReportWorld

    def _rollout(self, example: Example, context: Context, draw: str) -> Rollout:
        played = super()._rollout(example, context, draw)
        chance, world = random.Random(f"report/{self.world.seed}/{draw}/{example.id}"), self.world
        broken = [int(each) for each in played.feedback.text.split() if each.isdigit()]
        told = broken if world.says == "all" else broken[:1]
        given = {rule: f"{GIVEN[rule]} {chance.randint(10, 9999)}" for rule in told}
        words = [REPORTS[world.kind][0](world.order[rule], given[rule], chance) for rule in told]
        (turn,) = played.turns
        answer = "\n".join([turn.answer, *given.values()])
        feedback = Feedback(played.score, "\n".join(words) or "All good.")
        return replace(played, turns=(replace(turn, answer=answer),), feedback=feedback)

    def _words(
        self,
        example: Example,
        under: Sequence[int],
        broken: list[int],
        factor: float,
        given: str,
        chance: random.Random,
    ) -> list[str]:
        return [str(rule) for rule in broken]
