"""Handbooks: rules, precedence, messages, grading."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import RecipeError
from fastslow.recipe import build_recipe
from fastslow.tasks.data import split_of
from fastslow.tasks.families.handbook import DOMAINS, FORM, Handbook, HandbookOptions, HandbookTask, Rule, read_label
from fastslow.tasks.registry import build_task

handbooks = st.builds(
    HandbookOptions,
    domain=st.sampled_from(sorted(DOMAINS)),
    rules=st.integers(5, 40),
    book=st.integers(0, 50),
    seed=st.integers(0, 3),
)


@settings(max_examples=30, deadline=None)
@given(handbooks, st.integers(0, 500))
def test_the_grader_agrees_with_the_rules(options: HandbookOptions, index: int) -> None:
    task = HandbookTask(options)
    example = task.examples("train")[index]
    rule = task.book.decides(example.data)
    assert task.grade(example, f"I think so.\nANSWER: {rule.label}").score == 1
    for label in set(task.book.domain.labels) - {rule.label}:
        feedback = task.grade(example, f"ANSWER: {label}")
        assert feedback.score == 0
        assert feedback.text.splitlines()[-1] == rule.text
    assert rule.text in task.oracle_text.splitlines()


@settings(max_examples=20, deadline=None)
@given(handbooks)
def test_a_policy_has_as_many_rules_as_asked_and_each_decides_some_messages(options: HandbookOptions) -> None:
    book = Handbook(options.domain, options.rules, options.book)
    assert len({rule.text for rule in book.rules}) == options.rules
    draw = random.Random(0)
    for rule in book.rules:
        assert any(book.decides(book._drawn(rule, draw)) is rule for _ in range(2000)), rule.text


@settings(max_examples=20, deadline=None)
@given(handbooks, st.integers(0, 300))
def test_precedence(options: HandbookOptions, index: int) -> None:
    """Rules on flags come first, then exceptions, then kinds; what holds of a message but comes later does not decide."""
    book = HandbookTask(options).book
    message = HandbookTask(options).examples("train")[index].data
    holding = [rule for rule in book.rules if rule.holds(message)]
    decided = book.decides(message)

    def place(rule: Rule) -> int:
        if rule.flag is not None:
            return 0
        return 3 if rule.kind is None else 1 if rule.role or rule.above is not None else 2

    assert place(decided) == min(place(rule) for rule in holding)


def test_a_flag_beats_the_kind_and_an_exception_beats_its_rule() -> None:
    book = HandbookTask(HandbookOptions(rules=11)).book
    kind = next(rule for rule in book.rules if rule.kind and rule.above is not None)
    usual = next(rule for rule in book.rules if rule.kind == kind.kind and rule.above is None and not rule.role)
    first = book.rules[0]
    plain = {"kind": kind.kind, "amount": kind.above, "role": None, "flags": []}
    assert book.decides(plain) is usual
    assert book.decides({**plain, "amount": plain["amount"] + 1}) is kind
    assert book.decides({**plain, "amount": plain["amount"] + 1, "flags": [first.flag]}) is first


def test_options_alone_decide_what_is_asked_and_graded() -> None:
    one, two = (HandbookTask(HandbookOptions(domain="triage", rules=9, book=2)) for _ in range(2))
    other = HandbookTask(HandbookOptions(domain="triage", rules=9, book=3))
    assert one.oracle_text == two.oracle_text != other.oracle_text
    assert list(one.examples("test"))[:20] == list(two.examples("test"))[:20]
    example = one.examples("train")[0]
    assert one.grade(example, "ANSWER: red") == two.grade(example, "ANSWER: red")


def test_splits_are_apart() -> None:
    task = HandbookTask(HandbookOptions(train=200))
    for split in ("train", "validation", "test"):
        assert all(split_of(task.messages(example)) == split for example in task.examples(split))


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("ANSWER: ledger", "ledger"),
        ("It is audit.\n**Answer:** Ledger.", "ledger"),
        (r"ANSWER: audit, or rather \boxed{ledger}", "ledger"),
        ("ANSWER: audit\nNo.\nANSWER: ledger", "ledger"),
        ("So it goes to ledger.", "ledger"),
        ("ANSWER: ledger or audit", None),
        ("ANSWER: ledgers", None),
        (r"ANSWER: ledger \boxed{", None),
        ("ledger\nI do not know.", None),
        ("", None),
    ],
)
def test_reading_an_answer(answer: str, label: str | None) -> None:
    assert read_label(answer, ("ledger", "audit")) == label


def test_an_answer_without_an_option_is_told_the_form() -> None:
    task = HandbookTask(HandbookOptions())
    assert FORM in task.grade(task.examples("train")[0], "Hello").text.splitlines()


def test_remarks_and_false_rules_come_as_often_as_asked() -> None:
    task = HandbookTask(HandbookOptions(remarks=0.5, wrong=0.25))
    said = []
    for example in task.examples("train")[:600]:
        wrong = next(label for label in task.book.domain.labels if label != task.answer(example))
        said.append((task.book.decides(example.data), task.grade(example, f"ANSWER: {wrong}").text.splitlines()))
    assert sum(len(lines) == 2 for _, lines in said) / len(said) == pytest.approx(0.5, abs=0.07)
    false = [(rule, lines[-1]) for rule, lines in said if lines[-1] != rule.text]
    assert len(false) / len(said) == pytest.approx(0.25, abs=0.06)
    assert all(f"to {rule.label}" not in line.partition(" and not ")[0] for rule, line in false)


def test_by_name() -> None:
    task = build_task(build_recipe({"model": "none", "task": {"name": "handbook/access", "rules": 7}}))
    assert isinstance(task, HandbookTask)
    assert len(task.book.rules) == 7
    with pytest.raises(RecipeError, match="rules=41"):
        build_task(build_recipe({"model": "none", "task": {"name": "handbook/access", "rules": 41}}))
