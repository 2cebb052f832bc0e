"""Made-up query languages: a table is opened, steps are applied one after the other, and the last one gives the result.

A book number decides the words, marks and orders of a language. Its interpreter reads from left to right, without nesting,
and stops at the first thing that breaks a rule.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from operator import itemgetter
from typing import Any, Literal

from fastslow.base.text import one_line

Kind = Literal["keep", "sort", "limit", "pick", "count", "total"]
RuleName = Literal[
    "start", "join", "brackets", "column", "keep", "compare", "sort", "limit", "pick", "number", "end", "whole", "short"
]
Row = Mapping[str, Any]
RESULTS: tuple[Kind, ...] = ("pick", "count", "total")
MOST_CHARACTERS = 400
MOST_STEPS = 12
_clip = partial(one_line, limit=20)

STARTS = {
    "open {}": "the word `open` and the table's name",
    "use {}": "the word `use` and the table's name",
    "@{}": "`@` and the table's name, without a space",
    "<{}>": "the table's name between `<` and `>`",
}
JOINS = ("->", ">>", "|", "=>", "~", "then")
ENDS = ("!", ";;", "?", "end", "done")
BRACKETS = {"square": ("[", "]"), "curly": ("{", "}"), "round": ("(", ")")}
MARKS = {";": "semicolons", "/": "slashes", "&": "& signs"}
COLUMN_MARKS = ("#", "$", ":", "%")
COMPARISONS = (("over", "under", "is"), ("above", "below", "equals"), ("beats", "trails", "matches"))
DIRECTIONS = (("up", "down"), ("rising", "falling"), ("forth", "back"))
NAMES: dict[Kind, tuple[str, ...]] = {
    "keep": ("keep", "sift", "admit", "retain"),
    "sort": ("rank", "arrange", "queue", "stack"),
    "limit": ("crop", "front", "cap", "clip"),
    "pick": ("give", "tell", "emit", "utter"),
    "count": ("tally", "census", "howmany", "muster"),
    "total": ("amass", "pool", "gather", "heap"),
}
RULE_OF: dict[Kind, RuleName] = {
    "keep": "keep", "sort": "sort", "limit": "limit", "pick": "pick", "count": "number", "total": "number",
}  # fmt: skip
"""The rule that tells of a step."""
GUESSES: dict[str, Kind] = {
    **dict.fromkeys(("filter", "where", "having", "query", "if", "grep"), "keep"),
    **dict.fromkeys(("sort", "order", "orderby", "order_by", "sort_by", "sorted", "sort_values"), "sort"),
    **dict.fromkeys(("limit", "head", "take", "first", "top", "slice"), "limit"),
    **dict.fromkeys(("select", "project", "map", "get", "column", "columns", "pluck", "values", "pick"), "pick"),
    **dict.fromkeys(("count", "len", "length", "size"), "count"),
    **dict.fromkeys(("sum", "total", "add", "aggregate"), "total"),
}
"""What the steps are called elsewhere."""


@dataclass(frozen=True)
class Step:
    """One call: what it does, and to which column, by which comparison or direction, with which value."""

    kind: Kind
    column: str = ""
    word: str = ""
    value: int | str = 0


SHOWN: tuple[tuple[Kind, str, str, int], ...] = (
    ("keep", "depth", "greater", 30), ("sort", "depth", "smallest", 0), ("limit", "", "", 5), ("pick", "depth", "", 0),
    ("count", "", "", 0), ("total", "depth", "", 0),
)  # fmt: skip
"""The steps that the rules are shown by, of a table that no request is about."""


class Fault(Exception):
    """The first thing that breaks a rule, and how much was read before it: the start and whole steps."""

    def __init__(self, rule: RuleName, fact: str, read: int = 0) -> None:
        super().__init__(fact)
        self.rule, self.fact, self.read = rule, fact, read


class Language:
    """The words, marks and orders of one language."""

    def __init__(self, book: int) -> None:
        draw = random.Random(f"manual/{book}")
        self.start, self.join, self.end = draw.choice(list(STARTS)), draw.choice(JOINS), draw.choice(ENDS)
        self.brackets, self.between = draw.choice(list(BRACKETS)), draw.choice(list(MARKS))
        self.mark = draw.choice(COLUMN_MARKS)
        self.names = {kind: draw.choice(names) for kind, names in NAMES.items()}
        self.kinds = {name: kind for kind, name in self.names.items()}
        self.comparisons = dict(zip(("greater", "less", "equal"), draw.choice(COMPARISONS), strict=True))
        self.directions = dict(zip(("smallest", "largest"), draw.choice(DIRECTIONS), strict=True))
        orders = [order for order in permutations(("column", "comparison", "value")) if order[0] != "value"]
        self.keep_order = draw.choice(orders)
        self.sort_order = draw.choice([*permutations(("column", "direction"))])
        self.rules = self._rules()

    def _rules(self) -> dict[RuleName, str]:
        """A sentence for each rule, in the order in which a writer needs them, with a piece of an expression to go by."""
        names = {kind: f"`{name}`" for kind, name in self.names.items()}
        more, less, equal = (f"`{word}`" for word in self.comparisons.values())
        smallest, largest = (f"`{word}`" for word in self.directions.values())
        one, two, three = self.keep_order
        ways = f"{smallest} for smallest first or {largest} for largest first"
        first, second = ("the column" if part == "column" else ways for part in self.sort_order)
        left, right = BRACKETS[self.brackets]
        shown = {kind: f"`{self._write_step(Step(kind, column, word, value))}`" for kind, column, word, value in SHOWN}
        begun = self.start.format("rivers")
        return {
            "start": f"An expression begins with {STARTS[self.start]}, as in `{begun}`.",
            "join": f"Every step has `{self.join}` before it, as in `{begun} {self.join} {self._write_step(Step('count'))}`.",
            "brackets": f"What a step takes stands in {self.brackets} brackets right after its name, "
            f"with {MARKS[self.between]} between its parts, as in `step{left}one{self.between}two{right}`.",
            "column": f"A column's name always has `{self.mark}` right before it, as in `{self.mark}depth`.",
            "keep": f"Rows are chosen by {names['keep']}, which takes the {one}, the {two} and the {three}, in this order, "
            f"as in {shown['keep']}.",
            "compare": f"The comparisons are {more} for more than, {less} for less than and {equal} for equal to.",
            "sort": f"Rows are sorted by {names['sort']}, which takes {first}, and then {second}, as in {shown['sort']}.",
            "limit": f"The first rows alone are left by {names['limit']}, which takes their number, as in {shown['limit']}.",
            "pick": f"The values of one column are listed by {names['pick']}, which takes the column, as in {shown['pick']}.",
            "number": f"Rows are counted by {names['count']}, with empty brackets, as in {shown['count']}, "
            f"and a column is added up by {names['total']}, which takes the column, as in {shown['total']}.",
            "end": f"An expression ends with `{self.end}` after the step that gives the result, "
            f"as in `{self._write_step(Step('pick', 'depth'))} {self.end}`.",
        }

    def write(self, table: str, steps: Sequence[Step]) -> str:
        parts = [self.start.format(table), *(f"{self.join} {self._write_step(step)}" for step in steps), self.end]
        return " ".join(parts)

    def _write_step(self, step: Step) -> str:
        column = self.mark + step.column
        parts: dict[str, str]
        if step.kind == "keep":
            parts = {"column": column, "comparison": self.comparisons[step.word], "value": str(step.value)}
            taken = [parts[part] for part in self.keep_order]
        elif step.kind == "sort":
            parts = {"column": column, "direction": self.directions[step.word]}
            taken = [parts[part] for part in self.sort_order]
        else:
            taken = {"limit": [str(step.value)], "count": []}.get(step.kind, [column])
        left, right = BRACKETS[self.brackets]
        return f"{self.names[step.kind]}{left}{self.between.join(taken)}{right}"

    def read(self, text: str, table: str, columns: Mapping[str, type], needed: Sequence[Kind]) -> list[Step]:
        """The steps of an expression, or the first `Fault` in it. `needed` says which rule to name for an unknown step."""
        if len(text) > MOST_CHARACTERS:
            raise Fault("short", f"The expression has {len(text)} characters.")
        start, steps = self.start.format(table), list[Step]()
        if not text.startswith(start):
            raise Fault("start", f"The expression begins with '{_clip(text)}'.")
        rest = text[len(start) :].lstrip()
        while rest != self.end:
            parts = 1 + len(steps)
            if not rest:
                raise Fault("end", f"The expression ends with '{text[-20:]}'.", parts)
            if steps and steps[-1].kind in RESULTS:
                raise Fault("end", f"After the step that gives the result comes '{_clip(rest)}'.", parts)
            if not rest.startswith(self.join):
                raise Fault("join", f"The next step begins with '{_clip(rest)}'.", parts)
            if len(steps) == MOST_STEPS:
                raise Fault("short", f"The expression has more than {MOST_STEPS} steps.", parts)
            wanted = needed[min(len(steps), len(needed) - 1)]
            try:
                step, rest = self._read_step(rest[len(self.join) :].lstrip(), columns, wanted)
            except Fault as fault:
                raise Fault(fault.rule, f"{fault.fact} in '{_clip(rest)}'.", parts) from None
            steps.append(step)
        if not steps or steps[-1].kind not in RESULTS:
            raise Fault(RULE_OF[needed[-1]], "The expression ends before a step gives the result.", 1 + len(steps))
        return steps

    def _read_step(self, text: str, columns: Mapping[str, type], wanted: Kind) -> tuple[Step, str]:
        found = re.match(r"\w*", text)
        name = found[0] if found else ""
        kind = self.kinds.get(name)
        if kind is None:
            raise Fault(RULE_OF[GUESSES.get(name.lower(), wanted)], f"There is no step '{_clip(name)}'")
        left, right = BRACKETS[self.brackets]
        rest = text[len(name) :].lstrip()
        inside, closed, rest = rest[1:].partition(right) if rest.startswith(left) else ("", "", rest)
        if not closed:
            raise Fault("number" if kind == "count" else "brackets", f"What '{name}' takes cannot be read")
        parts = [part.strip() for part in inside.split(self.between)] if inside.strip() else []
        return self._call(kind, parts, columns), rest.lstrip()

    def _call(self, kind: Kind, parts: list[str], columns: Mapping[str, type]) -> Step:
        orders: dict[Kind, tuple[str, ...]] = {
            "keep": self.keep_order,
            "sort": self.sort_order,
            "limit": ("value",),
            "count": (),
        }
        order = orders.get(kind, ("column",))
        if len(parts) != len(order):
            divided = len(parts) == 1 < len(order) and re.search(r"[\s,;/&]", parts[0])
            rule: RuleName = "brackets" if divided else RULE_OF[kind]
            raise Fault(rule, f"'{self.names[kind]}' does not take '{_clip(self.between.join(parts))}'")
        given = dict(zip(order, parts, strict=True))
        column = self._column(given["column"], parts, kind, columns) if "column" in given else ""
        if kind == "keep":
            word = self._word(given["comparison"], self.comparisons, parts, "keep", "compare")
            value = given["value"].strip("'\"")
            if columns[column] is int:
                return Step(kind, column, word, _number(value, "keep"))
            if word != "equal":
                raise Fault("compare", f"'{given['comparison']}' compares numbers, and '{column}' has none")
            return Step(kind, column, word, value)
        if kind == "sort":
            return Step(kind, column, self._word(given["direction"], self.directions, parts, "sort", "sort"))
        if kind == "total" and columns[column] is not int:
            raise Fault("number", f"'{column}' has no numbers to add up")
        return Step(kind, column, value=_number(given["value"], "limit") if kind == "limit" else 0)

    def _column(self, part: str, parts: list[str], kind: Kind, columns: Mapping[str, type]) -> str:
        if part.startswith(self.mark) and part[len(self.mark) :] in columns:
            return part[len(self.mark) :]
        misplaced = any(other != part and other.startswith(self.mark) for other in parts)
        raise Fault(RULE_OF[kind] if misplaced else "column", f"'{_clip(part)}' is not read as a column")

    def _word(self, part: str, words: Mapping[str, str], parts: list[str], order: RuleName, unknown: RuleName) -> str:
        for meaning, word in words.items():
            if part == word:
                return meaning
        misplaced = any(word in parts for word in words.values())
        raise Fault(order if misplaced else unknown, f"'{_clip(part)}' cannot be read")


def evaluate(rows: Sequence[Row], steps: Sequence[Step]) -> list[Any] | int:
    for step in steps:
        if step.kind == "keep":
            rows = [row for row in rows if _holds(row[step.column], step)]
        elif step.kind == "sort":
            rows = sorted(rows, key=itemgetter(step.column), reverse=step.word == "largest")
        elif step.kind == "limit":
            rows = rows[: int(step.value)]
        elif step.kind == "count":
            return len(rows)
        elif step.kind == "total":
            return sum(row[step.column] for row in rows)
    return [row[steps[-1].column] for row in rows]


def _holds(found: Any, step: Step) -> bool:
    if step.word == "equal":
        return bool(found == step.value)
    return bool(found > step.value if step.word == "greater" else found < step.value)


def _number(text: str, rule: RuleName) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise Fault(rule, f"'{_clip(text)}' is not a whole number")
    return int(text)
