"""A policy without a model that works through real formats and manuals: their problems, their graders and their words.

It behaves as a 1.5B model did there (docs/results.md): what a text says it does in 0.15 to 0.6 of its answers, what a right
answer in the text shows mostly, and a text of many rules without an example makes it break the form of an answer. A wrong
answer that stands in the text is imitated where it is right and where it is wrong. Where an earlier answer is shown with the
grader's words, what it has right mostly stays, and what the grader names is seldom mended; a corrected answer is mostly
copied. Everything that is reported is its exact expected reward.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.tasks.families.formats.fields import FIELDS
from fastslow.tasks.families.formats.task import Formats, FormatsOptions
from fastslow.tasks.families.manual.language import RULE_OF, Fault, Language
from fastslow.tasks.families.manual.task import TABLES, Manual, ManualOptions, read_expression

COMPONENT = "system"
UNSEEN = 200
EARLIER, AGAIN = "An earlier answer to the question below was:\n", "\nIt is wrong."
COPY = "The right answer to the question below is:\n"


@dataclass(frozen=True)
class FamilyDials:
    family: str = "manual"
    feedback: str = "both"
    """What a house of formats says."""
    follow: float = 1.0
    """How often what a text says is done, beside 0.15 to 0.6."""
    untold: float = 0.03
    shown: float = 0.88
    mend: float = 0.5
    keep: float = 0.9
    copied: float = 0.8
    """How often a corrected answer is copied."""
    broken: float = 0.3
    """How often a text of rules without an example makes an answer of no form."""


class FamilyWorld:
    """One book of a family, by seed. What an answer has to get right are *pieces*: by name, a chance under every text."""

    def __init__(self, dials: FamilyDials, seed: int) -> None:
        self.dials, self.seed = dials, seed
        self.task: Any
        if dials.family == "formats":
            said: Any = dials.feedback
            self.task = Formats(FormatsOptions(conventions=8, fields=4, book=seed, feedback=said, train=100_000))
            self.rules = {
                f"{name}/{aspect}": FIELDS[name].aspects[aspect][way]
                for name, ways in self.task.house.items()
                for aspect, way in ways.items()
            }
        else:
            self.task = Manual(ManualOptions(rules=8, steps=2, book=seed, train=100_000))
            self.rules = dict(self.task.language.rules)
        self.seed_text, self.oracle_text = self.task.seed_text, self.task.oracle_text
        draw = random.Random(f"family/{seed}")
        self.told = {piece: dials.follow * draw.uniform(0.15, 0.6) for piece in self.rules}
        self._chances: dict[str, dict[str, float]] = {}

    def problem(self, name: str, index: int) -> Example:
        return self.task._example("train" if name == "train" else "validation", index)  # type: ignore[no-any-return]

    @cached_property
    def unseen(self) -> list[Example]:
        return [self.problem("unseen", index) for index in range(UNSEEN)]

    def reward(self, text: str, cycle: int = 0) -> float:
        chances = self.chances(text)
        return sum(self.expected(each, chances) for each in self.unseen) / UNSEEN

    def expected(self, example: Example, chances: Mapping[str, float]) -> float:
        parts = self.pieces(example)
        whole = [math.prod(chances[piece] for piece in part) for part in parts]
        return (1 - chances["broken"]) * (math.fsum(whole) / len(whole) if self.dials.family == "formats" else whole[0])

    def pieces(self, example: Example) -> list[list[str]]:
        """What each part of an answer has to get right."""
        if self.dials.family == "formats":
            return [
                [f"{name}/{aspect}" for aspect in self.task.house[name]] or ["plain"] for name in example.data["values"]
            ]
        plan = [step.kind for step in example.data["steps"]]
        needed = ["start", "join", *(RULE_OF[kind] for kind in plan), "end", f"plan/{'-'.join(plan)}"]
        needed += ["compare"] if "keep" in plan else []
        needed += ["column"] if set(plan) & {"keep", "sort", "pick", "total"} else []
        needed += ["brackets"]
        return [needed]

    def chances(self, text: str) -> Mapping[str, float]:
        """How often each piece is right under a text."""
        if text not in self._chances:
            self._chances[text] = self._found(text)
        return self._chances[text]

    def _found(self, text: str) -> dict[str, float]:
        dials = self.dials
        body, again, tail = text.partition(EARLIER)
        right, wrong, broken = self._examples(body)
        found = {}
        for piece in self._all():
            told = self.rules.get(piece, "\n") in body
            chance = self.told.get(piece, 0.85) if told or piece not in self.rules else dials.untold
            if piece in right:
                chance = dials.shown if told or piece not in self.rules else 0.85 * dials.shown
            elif piece in wrong:
                chance = 0.3 * chance if not wrong[piece] else max(chance, 0.7 * dials.shown)
            found[piece] = chance
        rules = sum(rule in body for rule in self.rules.values())
        found["broken"] = 0.02 if right or (wrong and not broken) else dials.broken * min(1.0, rules / 6)
        if broken:
            found["broken"] = 0.95
        if again:
            earlier, _, words = tail.partition(AGAIN)
            had = self._read(earlier.strip())
            found["broken"] = 0.6 if had is None else 0.02
            for piece, kept in (had or {}).items():
                named = self.rules.get(piece, "\n") in words
                found[piece] = dials.mend if named else dials.keep if kept else found[piece]
        return found

    def _all(self) -> list[str]:
        if self.dials.family == "formats":
            return [*self.rules, "plain"]
        plans = ("keep-pick", "keep-count", "keep-total", "sort-pick", "limit-pick")
        return [*self.rules, *(f"plan/{plan}" for plan in plans)]

    def _examples(self, text: str) -> tuple[set[str], dict[str, bool], bool]:
        """The pieces that right answers in a text show; what wrong ones show, and whether one has no form."""
        right, wrong, broken = set[str](), dict[str, bool](), False
        blocks = re.split(r"(?m)^(?=Example of a |For example, )", text)
        for block in blocks[1:]:
            shown = block.partition("\nThe correction:")[0]
            answer = shown.partition("The answer:\n")[2] or shown.partition("becomes:\n")[2] or shown.partition("\n")[2]
            had = self._read(answer)
            if had is None:
                broken = True
            elif all(had.values()):
                right |= had.keys()
            else:
                wrong |= had
        return right, wrong, broken and not right

    def _read(self, answer: str) -> dict[str, bool] | None:
        """Which pieces an answer has right, whatever its problem; None without a form."""
        if self.dials.family == "formats":
            return self._read_record(answer)
        return self._read_expression(answer)

    def _read_record(self, answer: str) -> dict[str, bool] | None:
        found: dict[str, bool] = {}
        for line in answer.splitlines():
            name, _, value = line.partition(": ")
            if name not in self.task.house:
                continue
            for aspect in self.task.house[name]:
                found[f"{name}/{aspect}"] = self._kept[value].get(aspect, True) if value in self._kept else True
        return found or None

    _kept: dict[str, dict[str, bool]] = {}  # noqa: RUF012  by value that was written: which aspects it keeps

    def _read_expression(self, answer: str) -> dict[str, bool] | None:
        text = read_expression("\n".join(answer.strip().splitlines()[:1]))
        if text in self._written:
            return self._written[text]
        language: Language = self.task.language
        for table, ((one, two), words, _, _) in TABLES.items():
            columns = {"name": str, one: int, two: int, words: str}
            try:
                plan = [step.kind for step in language.read(text, table, columns, ["pick"])]
            except Fault:
                continue
            shown = ["start", "join", "end", "column", "brackets", *(RULE_OF[kind] for kind in plan)]
            return dict.fromkeys([*shown, *(["compare"] if "keep" in plan else []), f"plan/{'-'.join(plan)}"], True)
        return dict.fromkeys(["start"], False)

    _written: dict[str, dict[str, bool]] = {}  # noqa: RUF012

    def write(self, example: Example, right: Mapping[str, bool]) -> str:
        """An answer that has these pieces right."""
        if self.dials.family == "formats":
            lines = []
            for name, value in example.data["values"].items():
                ways = self.task.house[name]
                kept = {aspect: way for aspect, way in ways.items() if right[f"{name}/{aspect}"]}
                written = FIELDS[name].write(value, kept)
                self._kept[written] = {aspect: aspect in kept for aspect in ways}
                lines.append(f"{name}: {written}")
            return "\n".join(lines)
        text = self._expression(example, right)
        self._written[text] = dict(right)
        return text

    def _expression(self, example: Example, right: Mapping[str, bool]) -> str:
        language, table = self.task.language, example.data["table"]
        usual = {"keep": "filter", "sort": "sort", "limit": "limit", "pick": "select", "count": "count", "total": "sum"}
        parts = [language.start.format(table) if right["start"] else f"from {table}"]
        steps = list(example.data["steps"])
        plan = next(piece for piece in right if piece.startswith("plan/"))
        if not right[plan]:
            steps = steps[-1:]
        for step in steps:
            written = language._write_step(step)
            if not right.get("column", True):
                written = written.replace(language.mark, "")
            if not right["brackets"]:
                written = re.sub(r"[\[({](.*)[\])}]", lambda inside: " " + inside[1], written)
            if not right.get("compare", True):
                written = re.sub("|".join(language.comparisons.values()), "gt", written)
            if not right[RULE_OF[step.kind]]:
                written = written.replace(language.names[step.kind], usual[step.kind])
            parts.append((language.join if right["join"] else "::") + " " + written)
        return " ".join([*parts, language.end] if right["end"] else parts)


class FamilyPolicy:
    """Answers problems of a world; counts its rollouts."""

    def __init__(self, world: FamilyWorld) -> None:
        self.world, self.cycle, self.rollouts = world, 0, 0

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        self.rollouts += len(pairs)
        return [self._rollout(*pair, f"{seed}/{number}") for number, pair in enumerate(pairs)]

    def _rollout(self, example: Example, context: Context, draw: str) -> Rollout:
        world, chance = self.world, random.Random(f"{self.world.seed}/{draw}")
        text = context.texts[COMPONENT]
        copied = text.partition(COPY)[2].partition("\nWrite it exactly")[0]
        chances = world.chances(text.partition(COPY)[0])
        pieces = list(dict.fromkeys(piece for part in world.pieces(example) for piece in part))
        right = {piece: chance.random() < chances[piece] for piece in pieces}
        if copied and chance.random() < world.dials.copied:
            answer = copied.strip()
        elif chance.random() < chances["broken"]:
            answer = "#" + world.write(example, right).replace("\n", "; ").replace(": ", " ")
            right = {}
        else:
            answer = world.write(example, right)
        question = world.task.messages(example)[-1]["content"]
        feedback: Feedback = world.task.grade(example, answer)
        turn = Turn(COMPONENT, question, (), Completion((), ()), answer)
        return Rollout(example, context, self.cycle, (turn,), feedback)
