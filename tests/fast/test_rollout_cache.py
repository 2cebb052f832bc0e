"""Rollouts waiting to be trained on: each is claimed once, in order; and why that is fair."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.memory import RolloutCache
from fastslow.records import Completion, Context, Rollout, Turn
from fastslow.rollouts.stored import from_data, to_data
from fastslow.slow.update import advantages
from fastslow.tasks.base import Example, Feedback

EXAMPLES = [Example(name, {"question": name}) for name in "abc"]
CONTEXTS = [Context({"system": text}, ("parent",), 3) for text in ("one", "two")]


def rollout(example: int = 0, context: int = 0, policy_step: int = 0, number: int = 0) -> Rollout:
    turn = Turn("system", "why?", (1, 2), Completion((3, 4), (-0.1 / 3, -1e-9)), f"answer {number}")
    feedback = Feedback(0.1 + 0.2, "half right \udc80", {"system": "do better"})
    return Rollout(EXAMPLES[example], CONTEXTS[context], policy_step, (turn,), feedback, {"grader": 1})


drawn = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)), max_size=12)
asked = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12)


@settings(deadline=None)
@given(drawn, asked)
def test_a_rollout_is_claimed_once_for_its_own_problem_and_context(
    drawn: list[tuple[int, int, int]], asked: list[tuple[int, int]]
) -> None:
    cache = RolloutCache()
    added = [rollout(*key, number) for number, key in enumerate(drawn)]
    cache.add(added)
    begun = cache.begin([(EXAMPLES[e], CONTEXTS[c]) for e, c in asked], 5)
    for (example, context), each in zip(asked, begun, strict=True):
        assert (each.example, each.context, each.begun) == (EXAMPLES[example], CONTEXTS[context], 5)
        assert each.reused == (each.rollout is not None)
        if each.rollout is not None:
            assert (each.rollout.example, each.rollout.context) == (each.example, each.context)
            assert each.rollout in added
    taken = [each.rollout for each in begun if each.rollout is not None]
    assert len({id(found) for found in taken}) == len(taken)
    waiting = Counter((r.example.id, r.context.id) for r in added)
    wanted = Counter((EXAMPLES[e].id, CONTEXTS[c].id) for e, c in asked)
    assert Counter((r.example.id, r.context.id) for r in taken) == waiting & wanted
    for key in wanted:  # first come, first served
        mine = [r for r in taken if (r.example.id, r.context.id) == key]
        assert mine == [r for r in added if (r.example.id, r.context.id) == key][: len(mine)]


def test_only_what_a_cycle_can_ask_for_is_kept() -> None:
    cache = RolloutCache()
    cache.add(rollout(example, context) for example in range(3) for context in range(2))
    cache.keep(CONTEXTS[:1], EXAMPLES[1:])
    assert [(r.example.id, r.context.texts["system"]) for r in cache.rollouts] == [("b", "one"), ("c", "one")]
    assert len(cache.rollouts) == 2
    cache.clear()
    assert [each.rollout for each in cache.begin([(EXAMPLES[1], CONTEXTS[0])], 0)] == [None]


def test_rollouts_survive_the_disk_to_the_last_bit() -> None:
    first = rollout(1, 1, 4)
    several = [first, rollout(0, 0, 2), replace(first, turns=first.turns * 2), replace(first, turns=())]
    again = from_data(json.loads(json.dumps(to_data(several))), EXAMPLES)
    assert again == several
    assert [r.context.id for r in again] == [r.context.id for r in several]
    assert [r.context.parents for r in again] == [("parent",)] * 4


@pytest.mark.parametrize("std", ["none", "group"])
@pytest.mark.parametrize("tilt", [(1, 1, 1, 1), (0, 0.1, 0.5, 1), (0.01, 0.02, 0.3, 1)])
def test_choosing_by_score_does_not_turn_the_gradient(std: str, tilt: tuple[float, ...]) -> None:
    """All groups of three answers of a small policy, kept with a probability that rises with how many are right.

    The expected update over the kept groups is parallel to the gradient of the success rate, and points the same way.
    """
    logits = np.array([0.3, -0.5, 1.1, 0.0, -1.2])
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    policy = np.exp(logits) / np.exp(logits).sum()
    slopes = np.eye(5) - policy  # of log π(answer) by the logits
    truth = (policy * rewards) @ slopes
    expected = np.zeros(5)
    for answers in itertools.product(range(5), repeat=3):
        got = rewards[list(answers)]
        chance = np.prod(policy[list(answers)]) * tilt[int(got.sum())]
        weights = advantages(got[None, :], np.zeros((1, 3), dtype=np.int64), std)[0]  # type: ignore[arg-type]
        expected += chance * (weights @ slopes[list(answers)])
    cosine = expected @ truth / (np.linalg.norm(expected) * np.linalg.norm(truth))
    assert cosine == pytest.approx(1.0, abs=1e-12)
