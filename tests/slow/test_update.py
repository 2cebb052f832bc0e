"""From rollouts to rows: what is trained on, with which weight, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_helpers import make_rollouts

from fastslow.engine.base import Update
from fastslow.recipe import SlowRecipe
from fastslow.records import Rollout
from fastslow.slow.update import Signal, build_update

repeatable = settings(deadline=None, max_examples=50)
TOKEN = {"group": 4, "loss": {"aggregation": "token"}, "std": "none"}


def trained(update: Update) -> list[int]:
    return [id(row.turn) for row in update.rows]


def turns(rollouts: list[Rollout]) -> list[int]:
    return [id(turn) for rollout in rollouts for turn in rollout.turns]


def test_groups_without_variance_are_left_out_and_not_refilled() -> None:
    rollouts = make_rollouts([1, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0, 0, 0, 1, 1, 1, 1, 1])
    update, signal = build_update(rollouts, SlowRecipe(**TOKEN), step=7)
    assert trained(update) == turns(rollouts[0:4] + rollouts[8:12])
    assert signal == Signal(0.5, 0.5)
    assert update.step == 7
    assert [row.advantage for row in update.rows] == [0.75, -0.25, -0.25, -0.25, -0.25, -0.25, -0.25, 0.75]


def test_advantages_may_seek_the_best_of_a_group_or_train_nothing() -> None:
    rollouts = make_rollouts([0.25, 1, 0, 0.5, 0.5, 0.5, 0.5, 0.5])
    update, signal = build_update(rollouts, SlowRecipe(**TOKEN, advantage="best"), step=7)
    assert [row.advantage for row in update.rows] == [0, 0.5, 0, 0]
    assert signal == Signal(0.5)
    assert not build_update(rollouts, SlowRecipe(**TOKEN, advantage="none"), step=7)[0].rows
    entropic, _ = build_update(rollouts, SlowRecipe(**TOKEN, advantage="entropic"), step=7)
    assert sum(row.advantage for row in entropic.rows) == pytest.approx(0)


def test_with_the_prompt_baseline_a_group_is_what_shares_a_context() -> None:
    # Two contexts: varied under the first and equal under the second, then equal under both but apart.
    rollouts = make_rollouts([1, 0, 1, 1, 1, 1, 0, 0], contexts=2)
    assert [r.context.id for r in rollouts[:2]] == [rollouts[0].context.id] * 2 != [rollouts[2].context.id] * 2
    update, signal = build_update(rollouts, SlowRecipe(**TOKEN, baseline="prompt"), step=1)
    assert trained(update) == turns(rollouts[0:2])
    assert [row.advantage for row in update.rows] == [0.5, -0.5]
    assert signal.zero_variance == 0.75
    both, signal = build_update(rollouts, SlowRecipe(**TOKEN, baseline="problem"), step=1)
    assert trained(both) == turns(rollouts)
    assert signal.zero_variance == 0.0


@pytest.mark.parametrize("baseline", ["problem", "prompt"])
@pytest.mark.parametrize("aggregation", ["problem", "token"])
def test_a_batch_of_equal_rewards_gives_no_rows(baseline: str, aggregation: str) -> None:
    slow = SlowRecipe(group=4, baseline=baseline, loss={"aggregation": aggregation})
    update, signal = build_update(make_rollouts([1.0] * 8, contexts=2), slow, step=1)
    assert list(update.rows) == []
    assert signal == Signal(1.0, 0.0)


def test_every_ask_of_a_rollout_is_a_row_with_that_rollouts_advantage() -> None:
    rollouts = make_rollouts([1, 0, 0, 0, 0, 1, 1, 1], turns=[1, 2, 3, 1, 4, 1, 2, 1], policy_step=5)
    update = build_update(rollouts, SlowRecipe(**TOKEN), step=6)[0]
    assert trained(update) == turns(rollouts)
    expected = [a for a, n in zip([0.75, -0.25, -0.25, -0.25, -0.75, 0.25, 0.25, 0.25],
                                  [1, 2, 3, 1, 4, 1, 2, 1], strict=True) for _ in range(n)]  # fmt: skip
    assert [row.advantage for row in update.rows] == expected
    assert {row.policy_step for row in update.rows} == {5}


def test_rollouts_that_asked_nothing_count_in_the_group_but_are_no_rows() -> None:
    """A prompt that does not fit scores 0 without a single token: the others are compared with it all the same."""
    rollouts = make_rollouts([1, 1, 0, 0, 1, 0, 0, 0], turns=[1, 1, 0, 0, 1, 1, 1, 0])
    update, signal = build_update(rollouts, SlowRecipe(**TOKEN), step=1)
    assert trained(update) == turns(rollouts)
    assert [row.advantage for row in update.rows] == [0.5, 0.5, 0.75, -0.25, -0.25]
    assert signal.zero_variance == 0.0


@pytest.mark.parametrize("credit", ["turns", "states"])
def test_a_rollout_without_turns_has_no_advantage_of_its_turns(credit: str) -> None:
    rollouts = make_rollouts([1, 0, 0, 0.5], turns=[1, 2, 0, 1])
    _, signal = build_update(rollouts, SlowRecipe(**TOKEN, credit=credit), step=1)
    assert signal.advantages is not None
    assert signal.advantages[2] == 0.0
    assert any(signal.advantages)


def test_only_rollouts_without_tokens_give_no_rows() -> None:
    update = build_update(make_rollouts([1, 0, 0, 0], turns=0), SlowRecipe(group=4), step=1)[0]
    assert list(update.rows) == []


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12),
    counts=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    baseline=st.sampled_from(["problem", "prompt"]),
    std=st.sampled_from(["group", "batch", "none"]),
)
@repeatable
def test_problem_aggregation_is_the_mean_over_problems_of_their_token_means(rewards, counts, baseline, std) -> None:
    """With a loss of 1 per token the token mean of the weights must equal the mean over problems, token by token."""
    rollouts = make_rollouts(rewards, contexts=2, turns=counts)
    settings = {"group": 4, "baseline": baseline, "std": std}
    update = build_update(rollouts, SlowRecipe(**settings), step=1)[0]
    problem_of = {id(turn): index // 4 for index, rollout in enumerate(rollouts) for turn in rollout.turns}
    tokens: dict[int, int] = {}
    for row in update.rows:
        problem = problem_of[id(row.turn)]
        tokens[problem] = tokens.get(problem, 0) + len(row.turn.completion.ids)
    total = sum(tokens.values())
    for row in update.rows:
        wanted = row.advantage / (len(tokens) * tokens[problem_of[id(row.turn)]])
        assert row.advantage * row.scale / total == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@given(rewards=st.lists(st.sampled_from([0.0, 1.0]), min_size=24, max_size=24), contexts=st.sampled_from([1, 2, 4]))
@repeatable
def test_zero_variance_is_the_fraction_of_groups_whose_rewards_are_equal(rewards, contexts: int) -> None:
    rollouts = make_rollouts(rewards, group=8, contexts=contexts)
    for baseline, size in (("problem", 8), ("prompt", 8 // contexts)):
        update, signal = build_update(rollouts, SlowRecipe(group=8, baseline=baseline), step=1)
        equal = [len(set(rewards[start : start + size])) == 1 for start in range(0, 24, size)]
        assert signal.zero_variance == pytest.approx(np.mean(equal))
        assert len(update.rows) == size * (len(equal) - sum(equal))
