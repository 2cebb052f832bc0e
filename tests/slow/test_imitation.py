"""Supervised learning on solved rollouts: what an update holds, what is held back, and what an epoch takes."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from slow_helpers import make_rollouts

from fastslow.slow.update import build_imitation, epoch_batches, hold_back


def test_every_rollout_counts_the_same_whatever_its_length() -> None:
    rollouts = make_rollouts([1, 1, 1, 1], group=1, turns=[1, 2, 1, 3])
    update = build_imitation(rollouts, step=5)
    tokens = sum(len(row.turn.completion.ids) for row in update.rows)
    place = 0
    for rollout in rollouts:
        rows = update.rows[place : place + len(rollout.turns)]
        place += len(rollout.turns)
        shares = [row.advantage * len(row.turn.completion.ids) / tokens for row in rows]
        assert sum(shares) == pytest.approx(1 / len(rollouts))
    assert place == len(update.rows)


def test_graded_rollouts_count_by_their_scores() -> None:
    update = build_imitation(make_rollouts([1, 0.5, 0.8, 0], group=1, turns=[1, 2, 1, 1]), step=5)
    tokens = sum(rollout.completion_tokens for rollout in make_rollouts([1] * 4, group=1, turns=[1, 2, 1, 1]))
    shares = [row.advantage * len(row.turn.completion.ids) / tokens for row in update.rows]
    assert [shares[0], sum(shares[1:3]), *shares[3:]] == pytest.approx([1 / 4, 0.5 / 4, 0.8 / 4])


def test_rows_count_as_sampled_by_the_current_policy() -> None:
    """So that importance ratios are 1, with any sampler."""
    update = build_imitation(make_rollouts([1, 1], policy_step=2), step=9)
    assert {row.policy_step for row in update.rows} == {8}
    assert all(math.isnan(logprob) for row in update.rows for logprob in row.turn.completion.logprobs)


@pytest.mark.parametrize(
    ("problems", "share", "expected"), [(20, 0.1, 2), (3, 0.1, 1), (2, 0.9, 1), (1, 0.5, 0), (20, 0.0, 0)]
)
def test_problems_are_held_back_but_never_all(problems: int, share: float, expected: int) -> None:
    names = [str(number) for number in range(problems)]
    learnt, held_back = hold_back(names, share, seed=1)
    assert len(held_back) == expected
    assert sorted(learnt + held_back) == sorted(names)
    assert hold_back(names[::-1], share, seed=1) == (learnt, held_back)


def test_an_epoch_takes_one_rollout_of_every_problem_and_the_next_epoch_the_next() -> None:
    first, second, third = make_rollouts([1, 1, 1], group=1)
    solved = {"often": [first, second], "once": [third]}
    taken = [
        Counter(id(rollout) for batch in epoch_batches(solved, ["often", "once"], 2, epoch, 0) for rollout in batch)
        for epoch in range(3)
    ]
    assert taken == [Counter([id(first), id(third)]), Counter([id(second), id(third)]), Counter([id(first), id(third)])]


def test_batches_are_of_almost_equal_size() -> None:
    rollouts = make_rollouts([1] * 9, group=1)
    solved = {str(number): [rollout] for number, rollout in enumerate(rollouts)}
    sizes = [len(batch) for batch in epoch_batches(solved, list(solved), 4, 0, 0)]
    assert sizes == [3, 3, 3]
