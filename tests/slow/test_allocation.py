"""Which problems a step plays: spent where rewards differ, and sound updates from groups of any size."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.memory import RolloutCache
from fastslow.records import Context, Feedback, Rollout
from fastslow.rollouts.chances import Chances
from fastslow.rollouts.rounds import Group, Pending
from fastslow.slow import allocation
from fastslow.slow.allocation import Even, Informative, Plan
from fastslow.slow.update import advantages
from fastslow.tasks.base import Example

CONTEXTS = [Context({"system": text}) for text in ("one", "two")]


def examples(count: int) -> list[Example]:
    return [Example(f"p{index}", {}) for index in range(count)]


def answered(example: Example, context: Context, score: float) -> Rollout:
    return Rollout(example, context, 0, (), Feedback(score, ""))


def player(chances: dict[str, float], seed: int) -> Callable[[Sequence[tuple[Example, Context]], int], list[Rollout]]:
    draw = random.Random(seed)
    return lambda pairs, number: [
        answered(example, context, float(draw.random() < chances[example.id])) for example, context in pairs
    ]


def begin(pairs: Sequence[tuple[Example, Context]]) -> list[Pending]:
    return RolloutCache().begin(pairs, 0)


def play_rounds(plan: Plan, play: Callable[[Sequence[tuple[Example, Context]], int], Sequence[Rollout]]) -> list[Group]:
    """Plays a step by its plan, as the loop does."""
    for number, pending in enumerate(plan.rounds()):
        rollouts = play([(each.example, each.context) for each in pending], number)
        for each, rollout in zip(pending, rollouts, strict=True):
            each.rollout = rollout
        assert plan.take() == pending
    return plan.groups


def teaching(groups: Sequence[Group]) -> float:
    total = sum(len(group.rollouts) for group in groups)
    return sum(len(group.rollouts) for group in groups if group.informative) / total


def informative(
    count: int, size: int, rollouts: int, known: dict[str, tuple[float, float]] | None = None, floor: int = 1
) -> Plan:
    expected = {f"p{index}": (0.5, 0.5) for index in range(count)} | (known or {})
    return Informative(examples(count), CONTEXTS, size, expected, floor, rollouts, begin)


MOSTLY_DECIDED = {f"p{index}": (0.0, 0.02, 0.98, 0.5)[index % 4] for index in range(128)}


@pytest.mark.parametrize(("known", "least"), [("others", 0.3), ("these", 0.75)])
def test_rollouts_go_where_rewards_differ_and_there_are_as_many(known: str, least: float) -> None:
    """One problem in four is neither hard nor solved. Four earlier rollouts are known, of these problems or of others, which
    says less."""
    shares, even = [], []
    for seed in range(20):
        play, chances = player(MOSTLY_DECIDED, seed), Chances()
        seen = examples(128)[64:] if known == "others" else examples(64)
        chances.observe(play([(example, CONTEXTS[0]) for example in seen for _ in range(4)], 0))
        expected = chances.expect(MOSTLY_DECIDED, [context.id for context in CONTEXTS], 0)
        groups = play_rounds(Informative(examples(64), CONTEXTS, 8, expected, 2, 128, begin), play)
        assert sum(len(group.rollouts) for group in groups) == 128
        shares.append(teaching(groups))
        even.append(teaching(play_rounds(Even(examples(16), CONTEXTS, 8, begin), play)))
    assert np.mean(even) < 0.35
    assert np.mean(shares) > least


def test_a_group_grows_while_its_rewards_differ_up_to_twice_its_size() -> None:
    undecided = {f"p{index}": float(index < 2) / 2 for index in range(40)}
    sizes = Counter[int]()
    for seed in range(10):
        groups = play_rounds(informative(40, 8, 64), player(undecided, seed))
        assert sum(len(group.rollouts) for group in groups) == 64
        for group in groups:
            assert len(group.rollouts) <= (16 if group.informative else 8)
            sizes[len(group.rollouts)] += group.informative
    assert sizes[16] >= 10


def test_contexts_are_balanced_and_the_first_problems_are_played_whatever_is_known() -> None:
    solved = {f"p{index}": (9.0, 0.1) for index in range(3)}
    plan = informative(20, 8, 64, solved, floor=3)
    chances = {f"p{index}": 0.5 for index in range(20)}
    groups = play_rounds(plan, player(chances, 0))
    assert {"p0", "p1", "p2"} <= {group.example.id for group in groups}
    for group in groups:
        shares = Counter(rollout.context.id for rollout in group.rollouts)
        assert len(shares) == 2
        assert max(shares.values()) - min(shares.values()) <= 1


def test_even_groups_are_the_next_problems() -> None:
    groups = play_rounds(Even(examples(3), CONTEXTS, 4, begin), player({f"p{i}": 1.0 for i in range(3)}, 0))
    assert [group.example.id for group in groups] == ["p0", "p1", "p2"]
    assert [[CONTEXTS.index(r.context) for r in group.rollouts] for group in groups] == [[0, 0, 1, 1]] * 3


# Bias -----------------------------------------------------------------------------------------------------------------


def outcomes(make: Callable[[], Plan], chance: dict[tuple[str, str], float]) -> Iterator[tuple[float, list[Group]]]:
    """Every course that a step can take, with its probability: all scores of a round are tried, round by round."""

    def courses(earlier: list[list[float]]) -> Iterator[tuple[float, list[Group]]]:
        plan, asked = make(), list[tuple[Example, Context]]()

        def play(pairs: Sequence[tuple[Example, Context]], number: int) -> list[Rollout]:
            if number == len(earlier):
                asked.extend(pairs)
                raise StopIteration
            return [answered(*pair, score) for pair, score in zip(pairs, earlier[number], strict=True)]

        try:
            groups = play_rounds(plan, play)
        except StopIteration:
            odds = [chance[example.id, context.texts["system"]] for example, context in asked]
            for scores in itertools.product((0.0, 1.0), repeat=len(asked)):
                weight = math.prod(p if score else 1 - p for p, score in zip(odds, scores, strict=True))
                for rest, end in courses([*earlier, list(scores)]):
                    yield weight * rest, end
        else:
            yield 1.0, groups

    return courses([])


def expected_update(make: Callable[[], Plan], chance: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The expected update of each problem's chance under each context: the derivative of log p(score), times the advantage,
    averaged over the group."""
    found = dict.fromkeys(chance, 0.0)
    total = 0.0
    for weight, groups in outcomes(make, chance):
        total += weight
        for group in groups:
            scores = np.array([rollout.score for rollout in group.rollouts])
            weights = advantages(scores, np.zeros(len(scores), dtype=int), "group") / len(scores)
            for rollout, advantage in zip(group.rollouts, weights, strict=True):
                key = group.example.id, rollout.context.texts["system"]
                p = chance[key]
                found[key] += weight * advantage * (rollout.score - p) / (p * (1 - p))
    assert total == pytest.approx(1)
    return found


@pytest.mark.parametrize("chances", [(0.5, 0.5, 0.5), (0.1, 0.5, 0.9), (0.05, 0.3, 0.6), (0.95, 0.8, 0.02)])
def test_choosing_by_scores_keeps_the_direction_of_every_problem_s_update(chances: tuple[float, ...]) -> None:
    """By enumeration: whatever is stopped or extended, the expected update raises the chance of every problem under every
    context, and where each problem is played alike it differs from an even step's in length only."""
    chance = {
        (f"p{index}", text): min(0.98, p * factor)
        for index, p in enumerate(chances)
        for text, factor in (("one", 1.0), ("two", 1.3))
    }
    raised = set()
    for hard in ({}, {"p0": (0.4, 4.0), "p1": (0.4, 4.0)}):
        update = expected_update(lambda hard=hard: informative(3, 4, 8, hard), chance)
        assert all(value >= 0 for value in update.values())  # 0 for a problem that no course of the step opens
        raised |= {problem for (problem, _), value in update.items() if value > 0}
    assert raised == {"p0", "p1", "p2"}


def mixed_groups(p: float, *, left: bool) -> float:
    """The expected update of a group of four, written out; `left`: only if its first two rewards differ."""
    total = 0.0
    for outcome in itertools.product((0.0, 1.0), repeat=4):
        scores = np.array(outcome)
        if scores.std() and not (left and scores[0] == scores[1]):
            odds = np.where(scores, p, 1 - p).prod()
            weights = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-4) / 4
            total += odds * (weights * (scores - p)).sum() / (p * (1 - p))
    return total


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.9])
def test_of_a_group_that_is_left_early_the_update_is_shorter_and_no_other(
    p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left as soon as its first two rewards are equal, because others promise more (docs/rollouts.md)."""
    monkeypatch.setattr(allocation, "GROWTH", 1)
    known = {"p2": (3.0, 3.0), "p3": (3.0, 3.0)}
    chance = {(f"p{index}", text): 0.5 if index else p for index in range(4) for text in ("one", "two")}
    found = expected_update(lambda: informative(4, 4, 8, known), chance)
    assert found["p0", "one"] + found["p0", "two"] == pytest.approx(mixed_groups(p, left=True))
    even = expected_update(lambda: Even(examples(2), CONTEXTS, 4, begin), chance)
    assert even["p0", "one"] + even["p0", "two"] == pytest.approx(mixed_groups(p, left=False))


@given(data=st.data(), group=st.integers(1, 24))
@settings(deadline=None, max_examples=50)
def test_every_group_holds_exactly_its_share_of_each_context(data: st.DataObject, group: int) -> None:
    count = data.draw(st.sampled_from([k for k in range(1, group + 1) if group % k == 0]))
    contexts = [Context({"system": str(index)}) for index in range(count)]
    rows = [context.id for context in allocation.shared(contexts, group)]
    assert {identifier: rows.count(identifier) for identifier in rows} == {c.id: group // count for c in contexts}
