"""How far statements reach and how far they are believed."""

from __future__ import annotations

import math

import pytest

from fastslow.fast.digest.journal import Journal, Row, Said
from fastslow.fast.digest.support import (
    FALSE_AGAIN,
    TRUE_AGAIN,
    TRUSTED,
    find_rivals,
    singletons_return,
    support,
    truth,
)


def add(journal: Journal, problem: str, question: str, *said: str, cycle: int = 0) -> None:
    keys = tuple(f"system\n{line}" for line in said)
    statements = [Said(key, line) for key, line in zip(keys, said, strict=True)]
    journal.add(Row(problem, frozenset(), 0, float(not said), cycle, keys), statements, question)


def test_truth_is_bayes_rule() -> None:
    assert truth(0, 0) == pytest.approx(TRUSTED)
    true, false = TRUSTED * TRUE_AGAIN * (1 - TRUE_AGAIN) ** 2, (1 - TRUSTED) * FALSE_AGAIN * (1 - FALSE_AGAIN) ** 2
    assert truth(1, 2) == pytest.approx(true / (true + false))


def test_statements_made_once_return_as_often_as_others_of_their_kind_have() -> None:
    assert singletons_return({}) == 0.5
    assert singletons_return({1: 3, 2: 4, 5: 2}) == pytest.approx(6.5 / 10)
    assert singletons_return({1: 99}) == pytest.approx(0.5 / 100)


def test_a_topic_is_the_words_that_a_statement_shares_with_its_questions() -> None:
    journal = Journal()
    add(journal, "1", "please pay the invoice", "an invoice goes to amber")
    add(journal, "2", "please pay this invoice", "an invoice goes to amber")
    add(journal, "3", "please pay invoices soon")
    add(journal, "4", "please stamp the visa", "a visa goes to birch")
    for number in range(5, 9):
        add(journal, str(number), "please help")
    found = support(journal, 0)
    assert found["system\nan invoice goes to amber"].own == {"1", "2"}
    assert found["system\nan invoice goes to amber"].related == {"3"}
    assert found["system\na visa goes to birch"].related == set()


def test_what_was_said_long_ago_counts_less() -> None:
    journal = Journal()
    add(journal, "old", "x", "old rule", cycle=0)
    add(journal, "older", "x", "old rule", cycle=0)
    add(journal, "new", "y", "new rule", cycle=6)
    add(journal, "newer", "y", "new rule", cycle=6)
    found = support(journal, 6)
    assert found["system\nold rule"].share == pytest.approx(0.25 * found["system\nnew rule"].share)


def test_rivals_are_made_in_place_of_each_other() -> None:
    journal = Journal()
    add(journal, "1", "x", "true", "remark")
    add(journal, "1", "x", "false")
    rivals = find_rivals(journal)
    assert rivals["system\nfalse"] == {"system\ntrue", "system\nremark"}
    assert rivals["system\ntrue"] == {"system\nfalse"}


def test_a_statement_that_is_not_made_again_is_believed_less() -> None:
    journal = Journal()
    add(journal, "1", "x", "slip")
    for _ in range(4):
        add(journal, "1", "x", "rule")
    add(journal, "2", "x", "rule")
    found = support(journal, 0)
    assert found["system\nslip"].truth < 0.6 < TRUSTED < found["system\nrule"].truth
    assert math.isclose(found["system\nrule"].share, 1.0)
