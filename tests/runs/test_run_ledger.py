from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from run_helpers import make_rollout

from fastslow.runs.ledger import PURPOSES, TRAINING, Entry, Ledger

COUNTS = ("rollouts", "calls", "prompt_tokens", "completion_tokens", "reused", "seconds", "cost")
# Eighths add and subtract without rounding, so the sums can be compared exactly.
eighths = st.integers(0, 10_000).map(lambda number: number / 8)
amounts = st.fixed_dictionaries(
    {},
    optional={name: st.integers(0, 10_000) for name in COUNTS[:5]}
    | dict.fromkeys(COUNTS[5:], eighths)
    | {"faults": st.dictionaries(st.sampled_from(["grader", "timeout", "truncated"]), st.integers(1, 5))},
)
bookings = st.lists(st.tuples(st.sampled_from(PURPOSES), amounts), max_size=30)


def booked(sequence: list[tuple[Any, dict[str, Any]]]) -> Ledger:
    ledger = Ledger()
    for purpose, amount in sequence:
        ledger.book(purpose, Entry(**amount))
    return ledger


@settings(deadline=None)
@given(bookings)
def test_it_adds_up(sequence: list[tuple[Any, dict[str, Any]]]) -> None:
    ledger = booked(sequence)
    for purpose in PURPOSES:
        mine = [amount for booked_for, amount in sequence if booked_for == purpose]
        for name in COUNTS:
            assert getattr(ledger[purpose], name) == sum(amount.get(name, 0) for amount in mine)
        faults: Counter[str] = Counter()
        for amount in mine:
            faults.update(amount.get("faults", {}))
        assert ledger[purpose].faults == dict(faults)
    training = [amount.get("rollouts", 0) for purpose, amount in sequence if purpose in TRAINING]
    assert ledger.training_rollouts == sum(training)
    assert ledger.total().calls == sum(amount.get("calls", 0) for _, amount in sequence)
    assert ledger.total(["slow", "rescore"]) == ledger["slow"] + ledger["rescore"]


@settings(deadline=None)
@given(bookings, bookings)
def test_since_is_what_came_after_and_adding_it_gives_the_whole(
    first: list[tuple[Any, dict[str, Any]]], second: list[tuple[Any, dict[str, Any]]]
) -> None:
    ledger = booked(first)
    snapshot = ledger.snapshot()
    for purpose, amount in second:
        ledger.book(purpose, Entry(**amount))
    assert snapshot == booked(first)
    assert ledger.since(snapshot) == booked(second)
    snapshot.add(ledger.since(snapshot))
    assert snapshot == ledger


@settings(deadline=None)
@given(bookings)
def test_it_survives_json(sequence: list[tuple[Any, dict[str, Any]]]) -> None:
    ledger = booked(sequence)
    assert Ledger.from_dict(json.loads(json.dumps(ledger.to_dict()))) == ledger
    assert Ledger.from_dict(json.loads(json.dumps(ledger.spent()))) == ledger
    assert all(any(entry.values()) for entry in ledger.spent().values())


def test_purposes_missing_in_a_file_are_empty() -> None:
    assert Ledger.from_dict({"slow": {"rollouts": 3}}).total() == Entry(rollouts=3)


def test_rollouts_are_booked_with_their_turns_and_faults() -> None:
    ledger = Ledger()
    ledger.book_rollouts("slow", [make_rollout(), make_rollout(turns=3)], seconds=1.5)
    ledger.book_rollouts("evaluation", [make_rollout()], seconds=0.5)
    assert ledger["slow"] == Entry(2, 4, 12, 8, 1.5, 0.0, {"grader": 2})
    assert ledger.training_rollouts == 2
    assert ledger.total().rollouts == 3
