"""Formats: conventions, records, reading, blame, feedback."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastslow.base.errors import RecipeError
from fastslow.recipe import build_recipe
from fastslow.tasks.base import Example
from fastslow.tasks.data import split_of
from fastslow.tasks.families.formats.fields import FIELDS
from fastslow.tasks.families.formats.task import AS_GIVEN, FORM, Formats, FormatsOptions, read_fields
from fastslow.tasks.registry import build_task

houses = st.builds(
    lambda conventions, fields, **rest: FormatsOptions(
        conventions=max(conventions, fields), fields=fields, train=300, **rest
    ),
    conventions=st.integers(5, 15),
    fields=st.integers(1, 8),
    book=st.integers(0, 200),
    seed=st.integers(0, 3),
    graded=st.booleans(),
    feedback=st.sampled_from(["rules", "values", "both", "none"]),
)


def noted(example: Example, **changed: str) -> str:
    """The record as the note gives it, with some values changed."""
    values = {name: FIELDS[name].write(value, {}) for name, value in example.data["values"].items()}
    return record(values | changed)


def record(values: dict[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())


@settings(max_examples=60, deadline=None)
@given(houses, st.integers(0, 299))
def test_the_right_record_scores_one_and_tells_nothing(options: FormatsOptions, index: int) -> None:
    task = Formats(options)
    example = task.examples("train")[index]
    assert len(example.data["values"]) == options.fields
    assert task.grade(example, task.answer(example)).score == 1
    assert task.grade(example, f"Here it is.\n\n{task.answer(example)}\n").score == 1


@settings(max_examples=60, deadline=None)
@given(houses)
def test_a_house_has_as_many_conventions_as_asked_and_one_for_every_field(options: FormatsOptions) -> None:
    task = Formats(options)
    rules = [rule for name in task.house for rule in task.rules(name)]
    assert len(set(rules)) == options.conventions
    assert all(task.rules(name) for name in task.house)
    assert len(task.house) >= options.fields
    assert [line for line in task.oracle_text.splitlines() if line in rules] == rules


@settings(max_examples=150, deadline=None)
@given(houses, st.integers(0, 299), st.data())
def test_breaking_one_convention_brings_exactly_its_sentence(
    options: FormatsOptions, index: int, data: st.DataObject
) -> None:
    task = Formats(options.model_copy(update={"feedback": "rules"}))
    example = task.examples("train")[index]
    name = data.draw(st.sampled_from(list(example.data["values"])))
    aspect = data.draw(st.sampled_from(list(task.house[name])))
    rule = FIELDS[name].aspects[aspect][task.house[name][aspect]]
    kept = {other: way for other, way in task.house[name].items() if other != aspect}
    expected = task.expected(example)
    broken = FIELDS[name].write(example.data["values"][name], kept)
    assume(broken != expected[name])  # a day of two digits shows nothing of a rule for others
    feedback = task.grade(example, record(expected | {name: broken}))
    assert feedback.text == rule
    assert feedback.progress == 1 - 1 / options.fields
    assert feedback.score == (feedback.progress if options.graded else 0)


@pytest.mark.parametrize("name", FIELDS)
def test_every_way_of_every_aspect_can_be_seen_and_is_told_apart(name: str) -> None:
    field = FIELDS[name]
    task = Formats(FormatsOptions())
    for aspect, ways in field.aspects.items():
        for way, rule in ways.items():
            task.house = {name: {aspect: way}}
            values = [field.draw(random.Random(seed)) for seed in range(40)]
            seen = [value for value in values if field.write(value, {aspect: way}) != field.write(value, {})]
            assert len(seen) >= 5, (aspect, way)
            for value in seen:
                example = Example("x", {"values": {name: value}})
                assert task.grade(example, noted(example)).text == rule


@settings(max_examples=80, deadline=None)
@given(houses, st.text() | st.text(alphabet="date:amount vendr\n*`/0123456789€'", max_size=400))
def test_any_answer_is_graded(options: FormatsOptions, answer: str) -> None:
    task = Formats(options)
    example = task.examples("train")[0]
    name = next(iter(example.data["values"]))
    for text in (answer, f"{name}: {answer}"):
        assert 0 <= task.grade(example, text).score <= 1


@pytest.mark.parametrize("answer", ["date: " + "1" * 10**6, ":" * 10**6, "\n" * 10**6, "`*" * 10**6 + "date: 1"])
def test_long_answers_take_no_time_and_are_not_repeated(answer: str) -> None:
    for feedback in ("rules", "both"):
        task = Formats(FormatsOptions(fields=8, conventions=15, feedback=feedback))
        start = time.process_time()
        said = task.grade(task.examples("train")[0], answer)
        assert time.process_time() - start < 3
        assert len(said.text) < 3000


@settings(max_examples=60, deadline=None)
@given(houses, st.integers(0, 299))
def test_rules_never_show_the_values(options: FormatsOptions, index: int) -> None:
    task = Formats(options.model_copy(update={"feedback": "rules"}))
    example = task.examples("train")[index]
    for answer in (noted(example), "", record(dict.fromkeys(example.data["values"], "?"))):
        text = task.grade(example, answer).text
        assert task.answer(example) not in text
        assert not [value for value in task.expected(example).values() if len(value) > 3 and value in text]
        general = {"Right.", FORM, *(AS_GIVEN.format(name) for name in FIELDS)}
        general |= {rule for name in task.house for rule in task.rules(name)}
        assert set(text.splitlines()) <= general


def house(**options: Any) -> tuple[Formats, Example]:
    task = Formats(FormatsOptions(**options))
    task.house = {
        "date": {"order": "YMD", "month": "number", "joint": "/", "digits": "two"},
        "amount": {"unit": "cents", "thousands": "", "currency": "code"},
    }
    values = {"date": (7, 3, 2024), "amount": (125_000, 0)}
    return task, Example("x", {"document": "Order", "values": values, "ways": [0, 0]})


def test_a_record_by_hand() -> None:
    task, example = house()
    question = "Order: dated 7 March 2024; total of 1,250.00 euros\nFields: date, amount"
    assert task.messages(example) == [{"role": "user", "content": question}]
    assert task.answer(example) == "date: 2024/03/07\namount: 125000 EUR"


@pytest.mark.parametrize(
    ("date", "said"),
    [
        ("2024/3/7", ["Write the day of the date with two digits, and so the month where it is a number."]),
        ("2024-03-07", ["Put slashes between the parts of the date."]),
        ("07/03/2024", ["Write the year of the date first, then the month, then the day."]),
        ("2024/March/07", ["Write the month of the date as a number."]),
        ("24/03/07", [AS_GIVEN.format("date")]),
        ("2025-04-08", ["Put slashes between the parts of the date."]),  # another date in a known form
    ],
)
def test_blame(date: str, said: list[str]) -> None:
    task, example = house()
    assert task.grade(example, f"date: {date}\namount: 125000 EUR").text.splitlines() == said


@pytest.mark.parametrize("date", ["2024/03/08", "soon", "", "2024, in March"])
def test_where_the_fault_cannot_be_told_all_conventions_of_the_field_are(date: str) -> None:
    task, example = house()
    assert task.grade(example, f"date: {date}\namount: 125000 EUR").text.splitlines() == task.rules("date")


@pytest.mark.parametrize(
    ("feedback", "said"),
    [
        ("rules", ["Write the amount without a thousands separator."]),
        ("values", ["amount: expected '125000 EUR', got '125,000 EUR'"]),
        (
            "both",
            [
                "amount: expected '125000 EUR', got '125,000 EUR'",
                "Write the amount without a thousands separator.",
            ],
        ),
        ("none", []),
    ],
)
def test_modes_of_feedback(feedback: str, said: list[str]) -> None:
    task, example = house(feedback=feedback)
    graded = task.grade(example, "date: 2024/03/07\namount: 125,000 EUR")
    assert (graded.score, graded.text.splitlines()) == (0.5, said)
    assert task.grade(example, "I cannot do that.").text == FORM
    assert FORM in task.seed_text


def test_all_or_nothing() -> None:
    task, example = house(graded=False)
    graded = task.grade(example, "date: 2024/03/07")
    assert (graded.score, graded.progress, graded.text) == (0, 0.5, FORM)


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ("date: 1/2\namount: 5 EUR", {"date": "1/2", "amount": "5 EUR"}),
        ("- **Date:** 1/2", {"date": "1/2"}),
        ("`date: 1:30`", {"date": "1:30"}),
        ("date: 1\nNo:\ndate: 2", {"date": "2"}),
        ("update: 1\nthe date: 2\ndate 3", {}),
        ("date:", {"date": ""}),
    ],
)
def test_reading(answer: str, values: dict[str, str]) -> None:
    assert read_fields(answer, ["date", "amount"]) == values


def test_options_alone_decide_what_is_asked_and_graded() -> None:
    one, two = (Formats(FormatsOptions(book=2)) for _ in range(2))
    assert one.oracle_text == two.oracle_text != Formats(FormatsOptions(book=3)).oracle_text
    assert list(one.examples("test"))[:20] == list(two.examples("test"))[:20]
    assert list(one.examples("test"))[:5] != list(Formats(FormatsOptions(book=2, seed=1)).examples("test"))[:5]


def test_splits_are_apart_and_the_worked_record_is_in_none() -> None:
    task = Formats(FormatsOptions(train=200))
    shown = set()
    for split in ("train", "validation", "test"):
        questions = [json.dumps(task.messages(example)) for example in task.examples(split)]
        assert all(split_of(task.messages(example)) == split for example in task.examples(split))
        assert not shown & set(questions)
        shown |= set(questions)
    assert not [each for each in shown if json.loads(each)[0]["content"] in task.oracle_text]


def test_by_name() -> None:
    task = build_task(build_recipe({"model": "none", "task": {"name": "formats", "conventions": 10}}))
    assert isinstance(task, Formats)
    with pytest.raises(RecipeError, match="conventions=16"):
        build_task(build_recipe({"model": "none", "task": {"name": "formats", "conventions": 16}}))
    with pytest.raises(RecipeError, match="set conventions to 7 or more, or lower fields"):
        build_task(build_recipe({"model": "none", "task": {"name": "formats", "conventions": 5, "fields": 7}}))
