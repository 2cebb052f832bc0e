"""Credit within a rollout: closed forms, and what it is worth in a small Markov decision process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fake_runs import recipe_of
from hypothesis import given
from hypothesis import strategies as st

from fastslow.base.errors import RecipeError
from fastslow.recipe import SlowRecipe
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.slow.credit import by_states, by_turns, returns, rewards_of, turn_advantages
from fastslow.slow.update import build_update

SEED = Context({"system": ""})


def play(
    score: float, turns: int, rewards: Sequence[float] = (), states: Sequence[str] = (), masked: Sequence[str] = ()
) -> Rollout:
    made = [Turn("system", f"q{place}", (1,), Completion((2, 3), (-1.0, -1.0)), "") for place in range(turns)]
    return Rollout(Example("one", {}), SEED, 0, made, Feedback(score, rewards=rewards, states=states, masked=masked))


def slow(**settings: Any) -> SlowRecipe:
    return SlowRecipe(**{"group": 2, "problems": 1, "std": "none", **settings})


def rows(rollouts: Sequence[Rollout], **settings: Any) -> list[float]:
    update, _ = build_update(rollouts, slow(group=len(rollouts), **settings), 1)
    return [round(row.advantage, 6) for row in update.rows]


def test_returns_are_discounted_sums_of_what_follows() -> None:
    assert returns([1.0, 2.0, 4.0], 1.0).tolist() == [7.0, 6.0, 4.0]
    assert returns([1.0, 2.0, 4.0], 0.5).tolist() == [3.0, 4.0, 4.0]
    assert returns([], 1.0).tolist() == []


def test_turns_are_compared_with_the_same_turns_of_the_group() -> None:
    found = by_turns([np.array([3.0, 1.0]), np.array([1.0, 0.0]), np.array([5.0])], [0, 0, 1], "none")
    assert [each.tolist() for each in found] == [[1.0, 0.5], [-1.0, -0.5], [0.0]]
    longer = by_turns([np.array([4.0, 2.0, 1.0]), np.array([2.0])], [0, 0], "none")
    assert [each.tolist() for each in longer] == [[1.0, 1.0, 1.0], [-1.0]]  # alone: as the turn before
    spread = by_turns([np.array([3.0]), np.array([1.0])], [0, 0], "group")
    assert spread[0][0] == pytest.approx(1 / (np.std([3, 1], ddof=1) + 1e-4))


def test_equal_states_are_compared_wherever_they_occur() -> None:
    states = [["a", "b", "a"], ["c", "a"], ["a"]]
    found = by_states([np.array([3.0, 5.0, 0.0]), np.array([9.0, 6.0]), np.array([8.0])], states, [0, 0, 1], "none")
    assert [each.tolist() for each in found] == [[0.0, 0.0, -3.0], [0.0, 3.0], [0.0]]


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=6), st.integers(1, 4), st.sampled_from(["group", "batch", "none"])
)
def test_a_score_at_the_end_alone_is_credited_as_the_rollout_is(scores: list[float], turns: int, std: Any) -> None:
    rollouts = [play(score, turns) for score in scores]
    update, signal = build_update(rollouts, slow(group=len(scores), std="none", credit="rollout"), 1)
    turned, other = build_update(rollouts, slow(group=len(scores), std="none", credit="turns"), 1)
    assert [row.advantage for row in turned.rows] == pytest.approx([row.advantage for row in update.rows])
    assert other.zero_variance == signal.zero_variance
    compared = [turn_advantages(rollouts, np.zeros(len(scores)), np.zeros(len(scores), int), "turns", 1.0, std)]
    assert all(np.isfinite(each).all() for found in compared for each in found)


def test_rewards_by_turn_and_states_reach_the_update() -> None:
    first, second = play(0.5, 2, rewards=(1.0, 0.0)), play(0.5, 2, rewards=(0.0, 1.0))
    assert rows([first, second]) == []  # equal scores: nothing to learn
    assert rows([first, second], credit="turns") == [0.0, -0.5, 0.0, 0.5]
    assert rows([first, second], credit="turns", discount=0.0) == [0.5, -0.5, -0.5, 0.5]
    there, back = play(1.0, 2, states=("a", "b")), play(0.0, 2, states=("b", "c"))
    assert rows([there, back], credit="states") == [0.5, 1.0, -1.0, -0.5]
    assert rows([play(1.0, 1), play(0.0, 1)], credit="states") == [1.0, -1.0]  # by default the same question
    with pytest.raises(RecipeError, match="gave 1 rewards for the 2 turns of problem 'one'"):
        rows([play(1.0, 2, rewards=(1.0,)), play(0.0, 2)], credit="turns")
    assert rewards_of(play(1.0, 0)) == []


def test_masked_turns_are_left_out_and_their_tokens_with_them() -> None:
    masked = [play(1.0, 2, masked=("", "truncated")), play(0.0, 2)]
    update, _ = build_update(masked, slow(), 1)
    assert [(row.turn.question, row.advantage) for row in update.rows] == [("q0", 0.5), ("q0", -0.5), ("q1", -0.5)]
    assert [row.scale for row in update.rows] == [1.0] * 3  # 6 tokens, of one problem
    assert not build_update([play(1.0, 1, masked=("format",)), play(0.0, 1, masked=("format",))], slow(), 1)[0].rows


def test_what_does_not_go_together_is_refused() -> None:
    for other in ({"feedback": "rank"}, {"rescue": "retry"}):
        with pytest.raises(ValueError, match=r"slow.credit=turns gives advantages to turns"):
            slow(credit="turns", **other)


LENGTH = 6


def gradients_of(credit: str, trials: int = 200) -> np.ndarray:
    """Estimates of the policy gradient of the action in each of some rooms, which are entered in a random order and of which
    each rewards its own action, a fair coin."""
    draw, found = np.random.default_rng(0), []
    for _ in range(trials):
        orders = draw.permuted(np.tile(np.arange(LENGTH), (8, 1)), axis=1)
        actions = draw.integers(0, 2, size=(8, LENGTH))
        scored = [
            play(row.mean(), LENGTH, (row / LENGTH).tolist(), [f"room {room}" for room in order])
            for row, order in zip(actions, orders, strict=True)
        ]
        update, _ = build_update(scored, slow(group=8, credit=credit, discount=0.0), 1)
        weights = np.reshape([row.advantage for row in update.rows] or np.zeros(8 * LENGTH), (8, LENGTH))
        gradient = np.zeros(LENGTH)
        np.add.at(gradient, orders, weights * (actions - 0.5) / 8)
        found.append(gradient)
    return np.array(found)


def test_credit_by_turns_and_by_states_gives_the_same_gradient_with_less_variance() -> None:
    whole, turns, states = (gradients_of(credit) for credit in ("rollout", "turns", "states"))
    expected = (
        7 / 8 / 4 / LENGTH
    )  # of a reward of 1 / LENGTH against the mean of eight; the coin's variance is a quarter
    assert np.allclose(whole.mean(0), expected, atol=0.02)
    assert np.allclose(turns.mean(0), expected, atol=0.01)
    assert np.allclose(states.mean(0), 2 * expected, atol=0.02)  # its own part is added to the rollout's
    assert turns.var(0).mean() < whole.var(0).mean() / 3
    assert (states / 2).var(0).mean() < whole.var(0).mean() / 2


@pytest.mark.parametrize(
    ("method", "slow"),
    [("distill", {}), ("rl", {"advantage": "best"}), ("rl", {"feedback": "rank"})],
)
def test_what_gives_advantages_to_rollouts_is_refused(method: str, slow: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"slow\.credit=turns"):
        recipe_of(method, slow={"credit": "turns", **slow})
