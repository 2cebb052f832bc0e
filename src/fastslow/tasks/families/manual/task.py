"""Manuals: requests about a small table are answered in a query language that is known by its error messages only.

The grader runs the expression. It says the first rule that is broken and nothing of what comes after it, so that a right
answer takes all the rules it needs at once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Feedback, Message, Split
from fastslow.tasks.data import GeneratedOptions, GeneratedTask, draw_for
from fastslow.tasks.families.manual.language import (
    MOST_CHARACTERS,
    MOST_STEPS,
    Fault,
    Kind,
    Language,
    Step,
    evaluate,
)
from fastslow.tasks.reading import last_fenced

INTRODUCTION = (
    "Answer the request with one expression of the house's own query language: "
    "it names the table, then the steps in order, the last of which gives the result."
)
FORM = "Write the expression on one line and nothing else."
SHORT = f"An expression has at most {MOST_STEPS} steps and {MOST_CHARACTERS} characters."
WHOLE = "Take one step for each part of the request, in its order, and no step that the request does not ask for."

TABLES: dict[str, tuple[tuple[str, str], str, tuple[str, ...], tuple[str, ...]]] = {
    "stock": (("weight", "price"), "colour", ("red", "blue", "green"),
              ("lamp", "kettle", "rug", "vase", "tent", "stool", "clock", "mirror", "drum", "ladder")),
    "crew": (("age", "pay"), "port", ("Brindle", "Dunmere", "Ossel"),
             ("Ilse", "Joren", "Mara", "Tobin", "Edda", "Rosa", "Viggo", "Nadia", "Ansel", "Orla")),
    "trips": (("miles", "stops"), "vehicle", ("van", "train", "ferry"),
              ("Varrow", "Pellham", "Corvin", "Tarn", "Holm", "Lisk", "Aldous", "Quill", "Marsh", "Haas")),
}  # fmt: skip
"""By name: columns of numbers, a column of words, these words, and what stands in the column `name`."""
PLANS: dict[int, tuple[tuple[Kind, ...], ...]] = {
    2: (("keep", "pick"), ("keep", "count"), ("keep", "total"), ("sort", "pick"), ("limit", "pick")),
    3: (("keep", "sort", "pick"), ("sort", "limit", "pick"), ("sort", "limit", "total"), ("keep", "keep", "pick"),
        ("keep", "keep", "count"), ("keep", "keep", "total")),
    4: (("keep", "sort", "limit", "pick"), ("keep", "sort", "limit", "total"), ("keep", "keep", "sort", "pick")),
}  # fmt: skip
UNUSED = 40
"""Requests that the two of the manual are chosen from."""
TRIES = 10_000
_LABEL = re.compile(r"^(?:answer|expression)\s*:\s*", re.IGNORECASE)


class ManualOptions(GeneratedOptions):
    rules: int = Field(default=8, ge=1, le=11)
    """How many of the eleven rules of the language the seed text leaves out."""
    steps: int = Field(default=3, ge=2, le=4)
    """Steps that a right expression takes, all of which must be right."""
    feedback: Literal["errors", "none"] = "errors"
    """Whether the interpreter's message is given. That an answer must hold an expression is always told."""
    told: bool = False
    """Put the whole manual in the seed text: then only the skill of using it is left to learn."""
    book: int = Field(default=0, ge=0)
    """Another number makes another language."""


class Manual(GeneratedTask):
    """Write a query in a made-up language that is known by its error messages only."""

    Options = ManualOptions
    options: ManualOptions

    def __init__(self, options: ManualOptions) -> None:
        super().__init__(options)
        self.language = Language(options.book)
        rules = self.language.rules
        hidden = random.Random(f"hidden/{options.book}").sample(list(rules), options.rules)
        known = [sentence for name, sentence in rules.items() if name not in hidden]
        self.seed_text = self.oracle_text if options.told else "\n".join([INTRODUCTION, FORM, *known])

    @property
    def oracle_text(self) -> str:
        """The whole manual, with two requests that are in no split: for a list and for a number."""
        lines = [INTRODUCTION, FORM, *self.language.rules.values(), WHOLE]
        unused = [self._example("train", self.options.train + index) for index in range(UNUSED)]
        for listed in (True, False):
            fitting = [each for each in unused if (each.data["steps"][-1].kind == "pick") is listed]
            # Where there is a choice, the list is one of all rows and the number is one of some.
            shown = min(fitting, key=lambda each: (each.data["steps"][0].kind == "keep") is listed)
            lines += [f"For example, for the table {shown.data['table']}: {asked(shown.data)}", self.answer(shown)]
        return "\n".join(lines)

    def _example(self, split: Split, index: int) -> Example:
        options = self.options
        name = f"manual-{options.book}-{options.steps}-seed{options.seed}/{split}/{index}"
        draw = random.Random(name)
        return draw_for(split, lambda: Example(name, drawn_problem(options.steps, draw)), self.messages)

    def messages(self, example: Example) -> list[Message]:
        rows = example.data["rows"]
        lines = [", ".join(map(str, row.values())) for row in rows]
        table = f"Table {example.data['table']} with the columns {', '.join(rows[0])}:\n" + "\n".join(lines)
        return [{"role": "user", "content": f"{table}\nRequest: {asked(example.data)}"}]

    def answer(self, example: Example) -> str:
        return self.language.write(example.data["table"], example.data["steps"])

    def grade(self, example: Example, answer: str) -> Feedback:
        """1 for an expression that gives what is asked for; otherwise a line on what was found first, and the rule for it."""
        rows, plan = example.data["rows"], example.data["steps"]
        text = read_expression(answer)
        if not text:
            return Feedback(0.0, f"The answer has no expression.\n{FORM}")
        try:
            columns = {column: type(value) for column, value in rows[0].items()}
            steps = self.language.read(text, example.data["table"], columns, [step.kind for step in plan])
            result = evaluate(rows, steps)
            if result == evaluate(rows, plan):
                return Feedback(1.0, "Right.")
            raise Fault("whole", f"The result is {one_line(result, 80)}, which was not asked for.", 1 + len(plan))
        except Fault as fault:
            rule = {"whole": WHOLE, "short": SHORT, **self.language.rules}[fault.rule]
            said = f"{fault.fact}\n{rule}" if self.options.feedback == "errors" else ""
            return Feedback(0.0, said, progress=min(fault.read, 1 + len(plan)) / (2 + len(plan)))


def read_expression(answer: str) -> str:
    """What the last fenced block holds, or else the last line that is not empty."""
    lines = [line for line in answer.splitlines() if line.strip("` \t")]
    text = " ".join((last_fenced(answer) or (lines[-1] if lines else "")).split())
    return _LABEL.sub("", text.strip("` ")).strip("` ")


def drawn_problem(length: int, draw: random.Random) -> dict[str, Any]:
    """A table and the steps of a request, each of which changes the result."""
    for _ in range(TRIES):
        table = draw.choice(list(TABLES))
        rows = _drawn_rows(table, draw)
        steps = _drawn_steps(table, rows, draw.choice(PLANS[length]), draw)
        result = evaluate(rows, steps)
        without = [[*steps[:index], *steps[index + 1 :]] for index in range(length - 1)]
        if result and all(evaluate(rows, rest) != result for rest in without):
            return {"table": table, "rows": rows, "steps": steps}
    raise TaskError(f"of {TRIES} requests none takes {length} steps")


def _drawn_rows(table: str, draw: random.Random) -> list[dict[str, Any]]:
    numbers, words, choices, names = TABLES[table]
    size = draw.randint(5, 7)
    columns = [draw.sample(range(1, 50), size) for _ in numbers]
    return [
        {"name": name, **dict(zip(numbers, values, strict=True)), words: draw.choice(choices)}
        for name, *values in zip(draw.sample(names, size), *columns, strict=True)
    ]


def _drawn_steps(table: str, rows: list[dict[str, Any]], plan: tuple[Kind, ...], draw: random.Random) -> list[Step]:
    numbers, words, choices, _ = TABLES[table]
    columns = draw.sample([*numbers, words], 3)
    steps = []
    for kind in plan:
        if kind == "keep":
            column = columns.pop()
            if column == words:
                steps.append(Step(kind, column, "equal", draw.choice(choices)))
            else:
                value = draw.choice(rows)[column]
                steps.append(Step(kind, column, draw.choice(("greater", "less")), value))
        elif kind == "sort":
            steps.append(Step(kind, draw.choice(numbers), draw.choice(("smallest", "largest"))))
        else:
            column = {"pick": "name", "total": draw.choice(numbers)}.get(kind, "")
            steps.append(Step(kind, column, value=draw.randint(2, 4) if kind == "limit" else 0))
    return steps


def asked(data: Mapping[str, Any]) -> str:
    *before, last = data["steps"]
    conditions = " and ".join(_said(step) for step in before if step.kind == "keep")
    rest = [_said(step) for step in before if step.kind != "keep"]
    rows = ", ".join([f"the rows {conditions}".strip(), *rest])
    wish = {"pick": f"List the {last.column} of", "count": "Count", "total": f"Add up the {last.column} of"}[last.kind]
    return f"{wish} {rows}."


def _said(step: Step) -> str:
    if step.kind == "keep":
        relation = {"greater": "is more than", "less": "is less than", "equal": "is"}[step.word]
        return f"whose {step.column} {relation} {step.value}"
    if step.kind == "sort":
        return f"sorted by {step.column}, {step.word} first"
    return f"only the first {step.value}"
