"""Credit within a rollout: what each of its turns is trained with.

`turns` compares what a turn and those after it were rewarded with (its return) with the returns of the same turn of the other
rollouts of the group. `states` adds to the rollout's advantage what a turn's return differs by from those of the other turns
of the group that were asked in an equal state (the step-level part of GiGPO, arXiv 2505.10978). Returns are discounted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastslow.base.errors import RecipeError
from fastslow.base.text import one_line
from fastslow.records import Rollout

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Std = Literal["group", "batch", "none"]
T = TypeVar("T")
EPSILON = 1e-4
"""TRL's, so that one update equals stock TRL's."""


def returns(rewards: Sequence[float], discount: float) -> Floats:
    """Of each turn: its reward and, discounted, those of the turns after it."""
    found = np.array(rewards, dtype=np.float64)
    for place in reversed(range(len(found) - 1)):
        found[place] += discount * found[place + 1]
    return found


def rewards_of(rollout: Rollout) -> Sequence[float]:
    """The rewards of a rollout's turns; where the task names none, its score comes with the last."""
    count = len(rollout.turns)
    given = _one_each(rollout, rollout.feedback.rewards, "gave {} rewards")
    return given or [0.0] * (count - 1) + [rollout.score] * bool(count)


def states_of(rollout: Rollout) -> Sequence[str]:
    """The states in which a rollout's turns were asked; where the task names none, what was new in each question."""
    given = _one_each(rollout, rollout.feedback.states, "named {} states")
    return given or [f"{turn.component}\n{turn.question}" for turn in rollout.turns]


def _one_each(rollout: Rollout, given: Sequence[T], what: str) -> Sequence[T]:
    """What a task gave for the turns of a rollout: nothing, or one for each."""
    count = len(rollout.turns)
    if given and len(given) != count:
        raise RecipeError(
            f"the task {what.format(len(given))} for the {count} turns of problem '{one_line(rollout.example.id, 60)}'; "
            "expected one for each turn"
        )
    return given


def by_turns(returns_N: Sequence[Floats], groups_N: Sequence[int], std: Std) -> list[Floats]:
    """The advantage of each turn of each rollout. A turn that no other rollout of the group has reached has the advantage of
    the one before it."""
    places = defaultdict(list)
    for number, (group, found) in enumerate(zip(groups_N, returns_N, strict=True)):
        for turn in range(len(found)):
            places[group, turn].append((number, turn))
    result = _compared(returns_N, list(places.values()), std)
    for (_, turn), alone in sorted(places.items(), key=lambda item: item[0][1]):
        if turn and len(alone) == 1:
            result[alone[0][0]][turn] = result[alone[0][0]][turn - 1]
    return result


def by_states(
    returns_N: Sequence[Floats], states_N: Sequence[Sequence[str]], groups_N: Sequence[int], std: Std
) -> list[Floats]:
    """What each turn's return differs by from those of the group's turns in an equal state; 0 where there is no other."""
    places = defaultdict(list)
    for number, (group, states) in enumerate(zip(groups_N, states_N, strict=True)):
        for turn, state in enumerate(states):
            places[group, state].append((number, turn))
    return _compared(returns_N, list(places.values()), std)


def _compared(returns_N: Sequence[Floats], alike: Sequence[Sequence[tuple[int, int]]], std: Std) -> list[Floats]:
    """Returns less the mean of those that they are compared with, and divided as `slow.std` says."""
    result = [np.zeros_like(found) for found in returns_N]
    for places in alike:
        values = np.array([returns_N[number][turn] for number, turn in places])
        if not np.ptp(values):  # means of equal numbers are rounded
            continue
        centred = values - values.mean()
        if std == "group" and len(values) > 1:
            centred /= values.std(ddof=1) + EPSILON
        for (number, turn), value in zip(places, centred.tolist(), strict=True):
            result[number][turn] = value
    everything = np.concatenate([[], *returns_N])
    if std == "batch" and len(everything) > 1:
        result = [found / (everything.std(ddof=1) + EPSILON) for found in result]
    return result


def turn_advantages(
    rollouts: Sequence[Rollout],
    advantages_N: Floats,
    groups_N: Integers,
    credit: Literal["turns", "states"],
    discount: float,
    std: Std,
) -> list[Floats]:
    """The advantage of each turn of each rollout, whose own, as a whole, are given."""
    returns_N = [returns(rewards_of(rollout), discount) for rollout in rollouts]
    groups = groups_N.tolist()
    if credit == "turns":
        return by_turns(returns_N, groups, std)
    compared = by_states(returns_N, [states_of(rollout) for rollout in rollouts], groups, std)
    return [whole + found for whole, found in zip(advantages_N, compared, strict=True)]
