"""Manuals: languages, expressions, error messages, requests."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import RecipeError
from fastslow.recipe import build_recipe
from fastslow.tasks.base import Example
from fastslow.tasks.data import split_of
from fastslow.tasks.families.manual.language import BRACKETS, MARKS, MOST_STEPS, NAMES, Language, Step, evaluate
from fastslow.tasks.families.manual.task import FORM, SHORT, WHOLE, Manual, ManualOptions, read_expression
from fastslow.tasks.registry import build_task

manuals = st.builds(
    ManualOptions,
    rules=st.integers(1, 11),
    steps=st.integers(2, 4),
    told=st.booleans(),
    book=st.integers(0, 200),
    seed=st.integers(0, 3),
    train=st.just(300),
)


@settings(max_examples=60, deadline=None)
@given(manuals, st.integers(0, 299))
def test_the_right_expression_scores_one_and_takes_as_many_steps_as_asked(options: ManualOptions, index: int) -> None:
    task = Manual(options)
    example = task.examples("train")[index]
    assert len(example.data["steps"]) == options.steps
    for answer in (task.answer(example), f"So:\n```\n{task.answer(example)}\n```", f"Answer: `{task.answer(example)}`"):
        assert task.grade(example, answer).score == 1


@settings(max_examples=60, deadline=None)
@given(manuals, st.integers(0, 299))
def test_every_step_of_a_request_is_needed(options: ManualOptions, index: int) -> None:
    task = Manual(options)
    example = task.examples("train")[index]
    steps = example.data["steps"]
    for left_out in range(len(steps)):
        rest = steps[:left_out] + steps[left_out + 1 :]
        feedback = task.grade(example, task.language.write(example.data["table"], rest))
        assert feedback.score == 0
        if left_out < len(steps) - 1:
            assert feedback.text.splitlines()[1] == WHOLE


def broken(task: Manual, example: Example) -> dict[str, str]:
    """Expressions that are right but for one rule, by its name."""
    language, right = task.language, task.answer(example)
    left, _ = BRACKETS[language.brackets]
    other_left = next(pair[0] for pair in BRACKETS.values() if pair[0] != left)
    other_mark = next(mark for mark in MARKS if mark != language.between)
    kinds = {step.kind for step in example.data["steps"]}
    first = {kind: next(step for step in example.data["steps"] if step.kind == kind) for kind in kinds}
    table = example.data["table"]
    found = {
        "start": right.replace(language.start.format(table), f"from {table}", 1),
        "join": right.replace(f" {language.join} ", " && ", 1),
        "brackets": right.replace(left, other_left, 1),
        "end": right.removesuffix(language.end) + ".",
    }
    if language.mark in right:
        found["column"] = right.replace(language.mark, "", 1)
    if "keep" in kinds:
        found["compare"] = right.replace(language.comparisons[first["keep"].word], ">", 1)
        found["keep"] = right.replace(language.names["keep"], "where", 1)
        divided = language._write_step(first["keep"])
        found["brackets by marks"] = right.replace(divided, divided.replace(language.between, other_mark))
    for kind in kinds & {"sort", "limit", "pick"}:
        found[kind] = right.replace(language.names[kind], "foo", 1)
    for kind in kinds & {"count", "total"}:
        found["number"] = right.replace(language.names[kind], {"count": "len", "total": "sum"}[kind], 1)
    return found


@settings(max_examples=120, deadline=None)
@given(manuals, st.integers(0, 299))
def test_breaking_one_rule_brings_exactly_its_sentence(options: ManualOptions, index: int) -> None:
    task = Manual(options)
    example = task.examples("train")[index]
    for name, answer in broken(task, example).items():
        feedback = task.grade(example, answer)
        assert feedback.score == 0
        fact, rule = feedback.text.splitlines()
        assert rule == task.language.rules[name.split()[0]], (name, answer, fact)
        assert 0 <= feedback.progress < 1


@settings(max_examples=60, deadline=None)
@given(manuals, st.integers(0, 299))
def test_one_message_at_a_time_which_never_shows_the_expression(options: ManualOptions, index: int) -> None:
    task = Manual(options)
    example = task.examples("train")[index]
    said = [task.language.rules[name] for name in task.language.rules]
    for answer in (*broken(task, example).values(), "SELECT name FROM stock", task.answer(example)[:-9], "?"):
        fact, rule = task.grade(example, answer).text.splitlines()
        assert task.answer(example) not in f"{fact}\n{rule}"
        assert rule in said
        assert not [other for other in said if other in fact]


def test_errors_come_in_reading_order_and_closer_answers_count_as_closer() -> None:
    task = Manual(ManualOptions())
    example = task.examples("train")[0]
    language, table = task.language, example.data["table"]
    start, steps = language.start.format(table), [language._write_step(step) for step in example.data["steps"]]
    answers = ["foo"] + [f" {language.join} ".join([start, *steps[:count], "foo"]) for count in range(len(steps))]
    answers += [task.answer(example).removesuffix(language.end), task.answer(example)]
    progress = [task.grade(example, answer).progress for answer in answers[:-1]]
    assert progress == sorted(progress)
    assert progress[0] == 0 < progress[1] < progress[-1] < 1


@settings(max_examples=100, deadline=None)
@given(
    manuals, st.text() | st.text(alphabet="openstckaf@<>->|~[](){};/&#$:%!? 0123456789'\"`\n", max_size=500), st.data()
)
def test_any_answer_is_graded(options: ManualOptions, answer: str, data: st.DataObject) -> None:
    task = Manual(options)
    example = task.examples("train")[0]
    right = task.answer(example)
    cut, end = sorted(data.draw(st.tuples(st.integers(0, len(right)), st.integers(0, len(right)))))
    for text in (answer, right[:cut] + answer, right[:cut] + answer + right[end:]):
        assert task.grade(example, text).score in (0, 1)


@pytest.mark.parametrize("answer", ["(" * 10**6, "a " * 10**6, "```" * 10**6, "answer:" * 10**6, "\n" * 10**6])
def test_long_answers_take_no_time_and_are_not_repeated(answer: str) -> None:
    task = Manual(ManualOptions())
    start = time.process_time()
    said = task.grade(task.examples("train")[0], answer)
    assert time.process_time() - start < 3
    assert len(said.text) < 300


def test_the_interpreter_has_bounds() -> None:
    task = Manual(ManualOptions())
    example = task.examples("train")[0]
    table = example.data["table"]
    many = [Step("limit", value=5)] * (MOST_STEPS + 1)
    assert task.grade(example, task.language.write(table, many)).text.splitlines()[1] == SHORT
    assert task.grade(example, task.answer(example) + "x" * 400).text.splitlines()[1] == SHORT
    big = task.language.write(table, [Step("limit", value=10**12), Step("pick", "name")])
    assert task.grade(example, big).text.splitlines()[1] == task.language.rules["limit"]


ROWS = [
    {"name": "lamp", "weight": 7, "colour": "red"},
    {"name": "rug", "weight": 9, "colour": "blue"},
    {"name": "vase", "weight": 2, "colour": "red"},
]


@pytest.mark.parametrize(
    ("steps", "result"),
    [
        ([Step("pick", "name")], ["lamp", "rug", "vase"]),
        ([Step("keep", "weight", "greater", 2), Step("pick", "name")], ["lamp", "rug"]),
        ([Step("keep", "weight", "less", 7), Step("pick", "name")], ["vase"]),
        ([Step("keep", "weight", "equal", 7), Step("count")], 1),
        ([Step("keep", "colour", "equal", "red"), Step("total", "weight")], 9),
        ([Step("sort", "weight", "smallest"), Step("pick", "name")], ["vase", "lamp", "rug"]),
        ([Step("sort", "weight", "largest"), Step("limit", value=2), Step("pick", "weight")], [9, 7]),
        ([Step("limit", value=0), Step("total", "weight")], 0),
    ],
)
def test_what_steps_give(steps: list[Step], result: object) -> None:
    assert evaluate(ROWS, steps) == result
    language = Language(0)
    columns = {name: type(value) for name, value in ROWS[0].items()}
    assert language.read(language.write("stock", steps), "stock", columns, ["pick"]) == steps


def language_by_hand() -> Manual:
    task = Manual(ManualOptions())
    language = task.language
    language.start, language.join, language.end = "open {}", "->", "!"
    language.brackets, language.between, language.mark = "square", ";", "#"
    language.names = {kind: names[0] for kind, names in NAMES.items()}
    language.kinds = {name: kind for kind, name in language.names.items()}
    language.comparisons = {"greater": "over", "less": "under", "equal": "is"}
    language.directions = {"smallest": "up", "largest": "down"}
    language.keep_order, language.sort_order = ("comparison", "column", "value"), ("column", "direction")
    language.rules = language._rules()
    return task


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ("open stock -> keep[over;#weight;2] -> give[#name] !", None),
        ("open stock->keep [ over; #weight ;2]->give[#name]!", None),
        ("open stock -> rank[#weight;down] -> crop[2] -> rank[#weight;up] -> give[#name] !", None),  # another way
        ("open stock -> keep[is;#colour;'red'] -> give[#name] !", "whole"),
        ("stock -> keep[over;#weight;2] -> give[#name] !", "start"),
        ("open crew -> give[#name] !", "start"),
        ("open stock !", "pick"),
        ("open stock", "end"),
        ("open stock -> keep[over;#weight;2] !", "pick"),
        ("open stock -> give[#name] -> crop[2] !", "end"),
        ("open stock -> give[#name]", "end"),
        ("open stock -> give[#name];", "end"),
        ("open stock.filter(weight > 2)", "join"),
        ("open stock -> filter(weight > 2) -> give[#name] !", "keep"),
        ("open stock -> select[#name] !", "pick"),
        ("open stock -> [#name] !", "keep"),
        ("open stock -> keep(weight > 2) -> give[#name] !", "brackets"),
        ("open stock -> keep[#weight over 2] -> give[#name] !", "brackets"),
        ("open stock -> keep[over;#weight;2 -> give", "brackets"),
        ("open stock -> keep[over;weight;2] -> give[#name] !", "column"),
        ("open stock -> keep[over;#mass;2] -> give[#name] !", "column"),
        ("open stock -> keep[#weight;over;2] -> give[#name] !", "keep"),
        ("open stock -> keep[over;#weight] -> give[#name] !", "keep"),
        ("open stock -> keep[over;#weight;two] -> give[#name] !", "keep"),
        ("open stock -> keep[>;#weight;2] -> give[#name] !", "compare"),
        ("open stock -> keep[over;#colour;red] -> give[#name] !", "compare"),
        ("open stock -> rank[down;#weight] -> give[#name] !", "sort"),
        ("open stock -> rank[#weight;desc] -> give[#name] !", "sort"),
        ("open stock -> rank[#weight] -> give[#name] !", "sort"),
        ("open stock -> rank[#weight, down] -> give[#name] !", "brackets"),
        ("open stock -> crop[-1] -> give[#name] !", "limit"),
        ("open stock -> crop[] -> give[#name] !", "limit"),
        ("open stock -> give[] !", "pick"),
        ("open stock -> tally[#name] !", "number"),
        ("open stock -> amass[#name] !", "number"),
        ("open stock -> tally[] !", "whole"),
        ("open stock -> tally !", "number"),
    ],
)
def test_errors_by_hand(answer: str, rule: str | None) -> None:
    task = language_by_hand()
    steps = [Step("keep", "weight", "greater", 2), Step("pick", "name")]
    example = Example("x", {"table": "stock", "rows": ROWS, "steps": steps})
    feedback = task.grade(example, answer)
    assert feedback.score == (rule is None)
    if rule:
        assert feedback.text.splitlines()[1] == {"whole": WHOLE, **task.language.rules}[rule]


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        ("open stock -> give[#name]", "The expression ends with '"),
        ("open stock -> tally[] -> give[#name] !", "After the step that gives the result comes '-> give[#name] !'."),
    ],
)
def test_an_expression_that_goes_on_too_long_is_not_said_to_lack_its_end(answer: str, fact: str) -> None:
    steps = [Step("keep", "weight", "greater", 2), Step("pick", "name")]
    feedback = language_by_hand().grade(Example("x", {"table": "stock", "rows": ROWS, "steps": steps}), answer)
    assert feedback.text.startswith(fact)


def test_a_request_by_hand() -> None:
    steps = [
        Step("keep", "colour", "equal", "red"), Step("keep", "weight", "less", 8), Step("sort", "weight", "smallest"),
        Step("limit", value=1), Step("pick", "name"),
    ]  # fmt: skip
    example = Example("x", {"table": "stock", "rows": ROWS, "steps": steps})
    task = language_by_hand()
    assert task.messages(example)[0]["content"].splitlines() == [
        "Table stock with the columns name, weight, colour:",
        "lamp, 7, red",
        "rug, 9, blue",
        "vase, 2, red",
        "Request: List the name of the rows whose colour is red and whose weight is less than 8, "
        "sorted by weight, smallest first, only the first 1.",
    ]
    assert task.answer(example) == (
        "open stock -> keep[is;#colour;red] -> keep[under;#weight;8] -> rank[#weight;up] -> crop[1] -> give[#name] !"
    )


def test_feedback_can_be_turned_off() -> None:
    task = Manual(ManualOptions(feedback="none"))
    example = task.examples("train")[0]
    assert task.grade(example, "SELECT name").text == ""
    assert FORM in task.grade(example, " \n ").text.splitlines()
    assert task.grade(example, task.answer(example)).score == 1


@settings(max_examples=40, deadline=None)
@given(manuals)
def test_the_seed_text_leaves_out_as_many_rules_as_asked(options: ManualOptions) -> None:
    task = Manual(options)
    lines = task.seed_text.splitlines()
    left_out = [rule for rule in task.language.rules.values() if rule not in lines]
    assert len(left_out) == (0 if options.told else options.rules)
    assert set(task.language.rules.values()) <= set(task.oracle_text.splitlines())
    assert (task.seed_text == task.oracle_text) is options.told
    assert FORM in lines


def test_options_alone_decide_what_is_asked_and_graded() -> None:
    one, two = (Manual(ManualOptions(book=2)) for _ in range(2))
    assert one.oracle_text == two.oracle_text != Manual(ManualOptions(book=3)).oracle_text
    assert list(one.examples("test"))[:20] == list(two.examples("test"))[:20]
    assert list(one.examples("test"))[:5] != list(Manual(ManualOptions(book=2, seed=1)).examples("test"))[:5]
    assert len({str(Language(book).rules) for book in range(50)}) == 50


def test_splits_are_apart() -> None:
    task = Manual(ManualOptions(train=200))
    for split in ("train", "validation", "test"):
        assert all(split_of(task.messages(example)) == split for example in task.examples(split))


@pytest.mark.parametrize(
    ("answer", "expression"),
    [
        ("open stock !", "open stock !"),
        ("I think so:\n\n`open stock !`\n", "open stock !"),
        ("Expression: open stock !", "open stock !"),
        ("```text\nopen stock\n  !\n```\nDone.", "open stock !"),
        ("open stock !\n```", "open stock !"),
        ("", ""),
    ],
)
def test_reading(answer: str, expression: str) -> None:
    assert read_expression(answer) == expression


def test_by_name() -> None:
    task = build_task(build_recipe({"model": "none", "task": {"name": "manual", "steps": 2}}))
    assert isinstance(task, Manual)
    with pytest.raises(RecipeError, match="steps=5"):
        build_task(build_recipe({"model": "none", "task": {"name": "manual", "steps": 5}}))
