"""How far statements reach and how far they are believed."""

from __future__ import annotations

import math

import pytest

from fastslow.fast.digest.journal import Journal, Row, Said
from fastslow.fast.digest.support import (
    FALSE_AGAIN,
    RIVAL,
    TRUE_AGAIN,
    TRUSTED,
    Support,
    rival_truth,
    singletons_return,
    support,
    truth,
)
from fastslow.fast.digest.topics import Topics
from fastslow.fast.digest.words import Order


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
    found = support(journal, Order(journal), 0)
    assert found["system\nan invoice goes to amber"].own == {"1", "2"}
    assert found["system\nan invoice goes to amber"].related == {"3"}
    assert found["system\na visa goes to birch"].related == set()


def test_what_was_said_long_ago_counts_less() -> None:
    journal = Journal()
    add(journal, "old", "x", "old rule", cycle=0)
    add(journal, "older", "x", "old rule", cycle=0)
    add(journal, "new", "y", "new rule", cycle=6)
    add(journal, "newer", "y", "new rule", cycle=6)
    found = support(journal, Order(journal), 6)
    assert found["system\nold rule"].share == pytest.approx(0.25 * found["system\nnew rule"].share)


def test_of_statements_that_differ_in_their_labels_one_is_true() -> None:
    journal = Journal()
    rules = {label: f"a visa goes to {label}" for label in ("amber", "birch")}
    journal.frames = {f"system\n{text}": [("system", "a", "visa", "goe", "to", "")] for text in rules.values()}
    for number in range(4):
        add(journal, str(number), "x", rules["birch" if number == 3 else "amber"])
    found = {label: support(journal, Order(journal), 0)[f"system\n{text}"] for label, text in rules.items()}
    assert found["birch"].truth < 0.1
    assert found["amber"].truth > 0.8
    assert found["birch"].related == {"0", "1", "2"}
    assert rival_truth(3, [1]) == pytest.approx(RIVAL**3 / (RIVAL**3 + RIVAL))
    assert rival_truth(3, []) == 1


def test_a_number_that_only_its_own_question_has_marks_a_remark() -> None:
    journal = Journal()
    for number in range(6):
        add(journal, str(number), f"message {number}", f"message {number} was late", "pay 30 at once")
    found = support(journal, Order(journal), 0)
    assert found["system\nmessage 3 was late"].returns == pytest.approx(0.5 / 7)
    assert found["system\npay 30 at once"].returns == 1


def test_a_statement_that_is_not_made_again_is_believed_less() -> None:
    """Where the grader says both at once, it would have come to the one that it does not repeat."""
    journal = Journal()
    add(journal, "1", "x", "slip", "rule")
    for _ in range(4):
        add(journal, "1", "x", "rule")
    add(journal, "2", "x", "rule")
    found = support(journal, Order(journal), 0)
    assert found["system\nslip"].truth < 0.6 < TRUSTED < found["system\nrule"].truth
    assert math.isclose(found["system\nrule"].share, 1.0)


def test_a_statement_that_the_grader_did_not_come_to_is_believed_as_before() -> None:
    journal = Journal()
    add(journal, "1", "x", "later")
    for _ in range(4):
        add(journal, "1", "x", "earlier")
    assert support(journal, Order(journal), 0)["system\nlater"].truth > 0.8


def test_of_the_problems_of_a_topic_a_part_is_direct() -> None:
    def part(share: float, related: float) -> float:
        return Support(frozenset(), frozenset(), share, 1.0, related, 1.0, True).direct

    assert part(0.3, 0.1) == pytest.approx(0.75)
    assert part(0.0, 0.0) == 0.0


def test_one_question_has_no_telling_words() -> None:
    """A word tells problems apart if few questions have it: of one problem that cannot be known."""
    assert Topics({"a": frozenset({"ferry"})}).rarity == {}
    assert Topics({"a": frozenset({"ferry"}), "b": frozenset(), "c": frozenset(), "d": frozenset()}).rarity.keys() == {
        "ferry"
    }
