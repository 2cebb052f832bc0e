"""A grader that attacks what reads its words: readers take time in proportion to the text, optimizers a bounded time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from cycle_helpers import Stage, one_cycle, pool_of, problems
from hostile_shapes import SHAPES, grows_linearly, seconds, within
from optimizers.optimizer_helpers import each

from fastslow.base.text import hidden_characters, one_line, printable
from fastslow.discover.candidates import Unreadable, read_answer
from fastslow.discover.problem import Problem
from fastslow.fast.digest.classes import cut
from fastslow.fast.digest.model import Model
from fastslow.fast.digest.reading import label_words, parts_of, read_feedback
from fastslow.fast.digest.reports import told
from fastslow.fast.digest.transcript import Graded, Transcript
from fastslow.fast.digest.writing import Heard, Writer, read_lines
from fastslow.fast.optimizers.ace import Item, changed
from fastslow.fast.reflection import Attempt, Lessons, Request, TextRequest
from fastslow.fast.reflection.base import LONGEST_FEEDBACK, MOST_LINES, excerpt
from fastslow.fast.reflection.code import Code
from fastslow.fast.reflection.language_model import Unusable, read_text
from fastslow.fast.reflection.lessons import line_key, new_lessons
from fastslow.fast.reflection.prompt import show_attempts
from fastslow.recipe import FastRecipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Context, Example, Feedback, Rollout
from fastslow.runs.use import count_uses
from fastslow.tasks.families.handbook import read_label
from fastslow.tasks.reading import last_boxed, last_fenced, last_tagged

MEGABYTE = 1_000_000


def words(text: str) -> int:
    return len(text.split())


def asked(text: str) -> Request:
    return Request("system", "Answer.", [Attempt("q", "a", text, 0.0)], "light", 1000, words, 0)


def answered(text: str) -> object:
    try:
        return read_text(text, False, TextRequest("", lambda chance: "", 1000, words))
    except Unusable as problem:
        return problem


def edited(text: str) -> object:
    try:
        return Code().revised(text, "")
    except ValueError as problem:
        return problem


def program(text: str) -> object:
    try:
        return read_answer(text, "", PROBLEM, "either")
    except Unreadable as problem:
        return problem


PROBLEM = Problem("p", "Write.", "maximize", "", "", "", suffix=".txt")
LEAVING_OUT = "a…a…a…b\n(…,…,…)!"


def seen(text: str) -> dict[str, Any]:
    return {"example": "p", "context": "c", "score": 0.0, "feedback": text, "error": None, "components": ["system"]}


READERS: dict[str, Callable[[str], object]] = {
    "feedback": lambda text: read_feedback("system", text, "an answer", "a question"),
    "feedback that repeats the answer": lambda text: read_feedback("system", text, text, text),
    "parts": lambda text: parts_of("system", text),
    "reports": told,
    "values": lambda text: cut(("", ""), (), text, lambda word: True),
    "label": label_words,
    "key": line_key,
    "lessons": lambda text: new_lessons(asked(text)),
    "prompt": lambda text: show_attempts(asked(text).attempts),
    "lines of a model": lambda text: read_lines(text, [Heard("k", "t", 1, False)]),
    "answer of a model": answered,
    "changes of a model": lambda text: changed([Item("one")], f"{text}\nREMOVE {text}"),
    "edits of a model": edited,
    "program of a model": program,
    "use of a line": lambda text: count_uses([seen(text)], {"system": LEAVING_OUT}, {"c": {"system": LEAVING_OUT}}),
    "hidden characters": hidden_characters,
    "credentials": printable,
    "one line": one_line,
    "box": last_boxed,
    "fence": last_fenced,
    "tags": last_tagged,
    "label of an answer": lambda text: read_label(text, ["van", "rail"]),
}


@pytest.mark.parametrize("reader", READERS)
def test_reading_takes_time_in_proportion_to_the_text(reader: str) -> None:
    slow = [name for name, shape in SHAPES.items() if not grows_linearly(READERS[reader], shape)]
    # Once more, because another process may have been in the way.
    assert not [name for name in slow if not grows_linearly(READERS[reader], SHAPES[name])]


def test_a_long_feedback_is_read_from_both_ends() -> None:
    text = "\n".join(f"line {number}" for number in range(10_000))
    shown = excerpt(text, LONGEST_FEEDBACK, MOST_LINES).splitlines()
    assert len(shown) == MOST_LINES + 1
    assert (shown[0], shown[-1]) == ("line 0", "line 9999")
    assert excerpt("short\ntext", LONGEST_FEEDBACK, MOST_LINES) == "short\ntext"
    assert not new_lessons(asked("…"))
    assert not read_feedback("system", "…", "")


def test_a_model_that_writes_endless_numbers_is_read() -> None:
    assert changed([Item("one")], f"REMOVE {'1' * 5_000}") == [Item("one")]
    assert read_lines(f"[{'1' * 5_000}] A rule.", [Heard("k", "t", 1, False)]) == []


class Attacking(Stage):
    """A grader that writes `size` characters about every answer, each time another text of another shape."""

    def __init__(self, size: int) -> None:
        super().__init__(lambda texts, example: min(0.9, 0.02 * words(texts["system"])))
        self.size, self.count = size, itertools.count()
        self.texts = {name: shape(size) for name, shape in SHAPES.items()}

    def _rollout(self, example: Example, context: Context) -> Rollout:
        rollout, number = super()._rollout(example, context), next(self.count)
        own = "\n".join(f"Statement {number * 100 + line} of all." for line in range(100))
        text = list(self.texts.values())[number % len(self.texts)]
        said = (text, f"{own}\n{text}", f"{text}\n{own}")[number % 3]
        return Rollout(example, context, 0, rollout.turns, Feedback(rollout.score, said))


def cycle_under(optimizer: str, size: int) -> Any:
    recipe = FastRecipe(optimizer=optimizer, population=2, budget=80, max_tokens=200)
    stage = Attacking(size)
    return lambda text: one_cycle(recipe, Lessons(), stage.play, pool_of("Answer."), problems(12))


@each(*OPTIMIZER.registry.built_in)
def test_a_megabyte_of_feedback_takes_no_optimizer_longer_than_a_tenth_of_it(optimizer: str) -> None:
    """In proportion it would be ten times. The least of three, because a process has more to do than this test."""
    short = seconds(cycle_under(optimizer, MEGABYTE // 10), "")
    assert within(3 * short + 0.5, cycle_under(optimizer, MEGABYTE), "")
    assert short < 20


def heard(count: int) -> Transcript:
    """Distinct statements, four an answer, on 32 problems."""
    transcript = Transcript()
    for number in range(count // 4):
        text = "\n".join(f"Rule w{4 * number + line}x needs y{4 * number + line}z." for line in range(4))
        lines = read_feedback("system", text, "an answer")
        keys = tuple(tuple(part.key for part in line) for line in lines)
        row = Graded(f"p{number % 32}", frozenset(), 0, 0.0, 0, keys)
        transcript.add(row, itertools.chain(*lines), f"question q{number % 32}")
    return transcript


def test_the_time_of_digest_grows_with_the_statements_and_not_with_their_square() -> None:
    def judge(transcript: Transcript) -> None:
        transcript._read_at = -1
        Model(transcript.read(), Writer({"system": "Answer."}, 1000, words), 0)

    quarter, whole = heard(2_500), heard(10_000)
    assert within(9 * seconds(lambda _: judge(quarter), ""), lambda _: judge(whole), "")


def test_of_too_many_statements_those_of_most_problems_and_those_in_texts_are_weighed() -> None:
    transcript = heard(10_000)
    said = read_feedback("system", "Name the unit.", "")
    keys = tuple(tuple(part.key for part in line) for line in said)
    transcript.rows[0:0] = [Graded(f"p{number}", frozenset(), 0, 0.0, 0, keys) for number in range(2)]
    (first,) = (part.key for part in read_feedback("system", "Rule w0x needs y0z.", "")[0])
    transcript.rows.append(Graded("p0", frozenset({first}), 0, 1.0, 0))
    transcript.parts |= {part.key: part for line in said for part in line}
    statements = transcript.read().statements
    assert len(statements) == 2000
    assert {"system\nname the unit", first, "system\nrule w9999x needs y9999z"} <= statements.keys()
