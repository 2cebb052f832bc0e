"""What a helper does to the policy: the estimate, who is dropped, and how seldom by chance."""

from __future__ import annotations

import math
import random

import pytest

from fastslow.base.intervals import Z99, difference, interval
from fastslow.records import Context
from fastslow.slow.rescue.accounts import HELD, HOPELESS, LEAST, MEASURED, Account, Accounts, Probe


def test_the_interval_of_a_difference_is_newcombes() -> None:
    """Newcombe (1998), method 10, on his example (b): 9/10 against 3/10."""
    gap, low, high = difference(0.9, 10, 0.3, 10)
    assert (round(gap, 4), round(low, 4), round(high, 4)) == (0.6, 0.1705, 0.8090)
    gap, low, high = difference(0.0, 20, 0.0, 20)  # no width of 0 where nothing varies
    assert gap == 0
    assert -low == high == pytest.approx(interval(0.0, 20)[1])


def test_the_effect_is_the_difference_of_later_scores() -> None:
    account = Account(taught=[1.0, 0.5, 0.0, 0.5], held=[0.0, 0.5])
    assert account.effect == difference(0.5, 4, 0.25, 2, Z99)
    assert account.summary()["effect"] == 0.25
    assert Account(taught=[1.0]).effect is None


def test_a_teacher_that_hurts_is_dropped_and_the_numbers_are_said() -> None:
    account = Account(40, 40, 30, taught=[0.0] * 24, held=[1.0] * LEAST)
    assert account.judge() == account.dropped
    assert "by -1.00 [-1.00, -0.50]: 0.00 on 24 problems trained on, 1.00 on 8 held back" in account.dropped
    assert account.judge() == ""  # said once
    assert not account.measuring
    few = Account(40, 40, 30, taught=[0.0] * 24, held=[1.0] * (LEAST - 1))
    assert few.judge() == ""
    helps = Account(40, 40, 30, taught=[1.0] * 24, held=[0.0] * LEAST)
    assert helps.judge() == ""


def test_a_helper_that_never_succeeds_is_dropped() -> None:
    assert Account(HOPELESS - 1).judge() == ""
    assert Account(HOPELESS).judge() == f"it solved none of {HOPELESS} groups"
    assert Account(HOPELESS, 1).judge() == ""


@pytest.mark.parametrize("right", [0.1, 0.5, 0.8])
def test_a_harmless_teacher_is_seldom_dropped_although_it_is_judged_after_every_problem(right: float) -> None:
    chance, dropped = random.Random(0), 0
    for _ in range(300):
        account = Account()
        while account.measuring and not account.judge():
            kind = account.held if chance.random() < HELD else account.taught
            kind.append(float(chance.random() < right))
        dropped += bool(account.dropped)
    assert dropped / 300 <= 0.05


def test_a_harmful_one_is_dropped_most_of_the_time() -> None:
    chance, dropped = random.Random(0), 0
    for _ in range(200):
        account = Account()
        while account.measuring and not account.judge():
            if chance.random() < HELD:
                account.held.append(float(chance.random() < 0.6))
            else:
                account.taught.append(float(chance.random() < 0.2))
        dropped += bool(account.dropped)
        assert len(account.held) <= MEASURED
    assert dropped / 200 >= 0.8


def test_what_is_saved_is_what_is_restored() -> None:
    accounts = Accounts()
    accounts.of["a"] = Account(3, 2, 1, [0.5], [math.pi / 4], "it hurts")
    accounts.due.append(Probe(4, 17, Context({"prompt": "x"}, ("p",), 2), "a", True))
    accounts.step = {"failed": 1}
    again = Accounts.from_dict(accounts.to_dict())
    assert (again.of, again.due, again.step) == (accounts.of, accounts.due, accounts.step)
    assert accounts.copy().of["a"] is not accounts.of["a"]
