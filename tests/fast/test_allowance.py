"""How the budget follows what the fast loop finds and what happens to reward."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from fastslow.fast.memory import LEAST_SHARE, PATIENCE, Allowance


def cycle(rate: float, seed: int, count: int = 64) -> list[float]:
    chance = random.Random(seed)
    return [float(chance.random() < rate) for _ in range(count)]


def shares(rates: Sequence[float], finds: Sequence[bool]) -> list[float]:
    """The share each cycle was given."""
    allowance, given = Allowance(), []
    for number, (rate, find) in enumerate(zip(rates, finds, strict=True)):
        allowance.observe(cycle(rate, number))
        given.append(allowance.share)
        allowance.conclude(find)
    return given


RISING = [0.1 + 0.1 * number for number in range(8)]


def test_while_children_win_all_of_the_budget_is_given() -> None:
    assert shares(RISING, [True] * 8) == [1.0] * 8


def test_it_halves_after_a_few_cycles_without_a_find_and_never_to_nothing() -> None:
    given = shares([0.05, *RISING], [True] + [False] * 8)
    assert given[: PATIENCE + 1] == [1.0] * (PATIENCE + 1)
    assert given[PATIENCE + 1 :] == [max(LEAST_SHARE, 0.5**number) for number in range(1, len(given) - PATIENCE)]
    assert given[-1] == LEAST_SHARE


def test_a_find_doubles_it() -> None:
    allowance = Allowance(share=0.25, idle=4)
    allowance.conclude(True)
    assert (allowance.share, allowance.idle) == (0.5, 0)


def test_a_drop_in_reward_gives_all_of_it_back() -> None:
    """As when the task changes: reward was 0.8 and is 0.1."""
    given = shares([0.2, 0.4, 0.6, 0.8, 0.8, 0.1], [False] * 6)
    assert given[-2] < 1.0
    assert given[-1] == 1.0


def test_a_stall_gives_it_back_once_and_again_only_after_progress() -> None:
    given = shares([0.5] * 12, [False] * 12)
    restored = [number for number in range(1, 12) if given[number] > given[number - 1]]
    assert len(restored) <= 1
    assert given[-1] == LEAST_SHARE  # a run that has converged stops searching
    allowance = Allowance(share=LEAST_SHARE, best=0.3, stalled=9, last=(0.3, 0.001))
    seen = []
    for _ in range(5):  # progress to 0.75, and a stall there
        allowance.observe([1.0] * 48 + [0.0] * 16)
        seen.append(allowance.share)
        allowance.share = LEAST_SHARE
    assert seen == [LEAST_SHARE, LEAST_SHARE, 1.0, LEAST_SHARE, LEAST_SHARE]


def test_noise_is_no_drop() -> None:
    allowance = Allowance(share=0.5)
    for seed in range(40):
        allowance.observe(cycle(0.5, seed))
        allowance.stalled = 0  # only drops are looked at
    assert allowance.share == 0.5


def test_too_little_to_see_changes_nothing() -> None:
    allowance = Allowance(share=0.5)
    allowance.observe([])
    allowance.observe([1.0])
    assert allowance == Allowance(share=0.5)


def test_budgets_are_whole_and_zero_stays_zero() -> None:
    assert [Allowance(share=share).budget(200) for share in (1.0, 0.5, LEAST_SHARE)] == [200, 100, 25]
    assert Allowance(share=LEAST_SHARE).budget(1) == 1
    assert Allowance().budget(0) == 0


def test_it_survives_the_disk() -> None:
    for allowance in (Allowance(), Allowance(0.25, 3, 1, 0.7, (0.65, 0.001))):
        assert Allowance.from_dict(json.loads(json.dumps(allowance.to_dict()))) == allowance
