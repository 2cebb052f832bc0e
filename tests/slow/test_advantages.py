"""Advantages against brute force and against TRL's own formula."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.trainer.utils import nanstd

from fastslow.slow.update import advantages, baseline_groups, informative, prompt_mean_scale

repeatable = settings(deadline=None, max_examples=60)


@st.composite
def batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Rewards and context numbers, problems by rollouts, with equally many rollouts under each context."""
    problems, contexts, share = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    group = contexts * share
    reward = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1, width=32)
    rewards = draw(st.lists(reward, min_size=problems * group, max_size=problems * group))
    numbers = np.tile(np.repeat(np.arange(contexts), share), (problems, 1))
    return np.array(rewards, dtype=np.float64).reshape(problems, group), numbers


def brute_force(rewards: np.ndarray, contexts: np.ndarray, baseline: str, std: str) -> list[list[float]]:
    """The definition, rollout by rollout, in plain Python."""
    everything = rewards.flatten().tolist()
    result = []
    for row, numbers in zip(rewards.tolist(), contexts.tolist(), strict=True):
        line = []
        for reward, number in zip(row, numbers, strict=True):
            peers = [r for r, n in zip(row, numbers, strict=True) if baseline == "problem" or n == number]
            scale = {"group": statistics.stdev(peers), "batch": statistics.stdev(everything)}.get(std)
            centred = reward - sum(peers) / len(peers)
            line.append(centred if scale is None else centred / (scale + 1e-4))
        result.append(line)
    return result


def groups_of(contexts: np.ndarray, baseline: str) -> np.ndarray:
    problems = np.broadcast_to(np.arange(len(contexts))[:, None], contexts.shape)
    return baseline_groups(problems, contexts, baseline)


@pytest.mark.parametrize("std", ["group", "batch", "none"])
@pytest.mark.parametrize("baseline", ["problem", "prompt"])
@given(batch=batches())
@repeatable
def test_advantages_are_the_closed_form(batch, baseline: str, std: str) -> None:
    rewards, contexts = batch
    found = advantages(rewards, groups_of(contexts, baseline), std)
    np.testing.assert_allclose(found, brute_force(rewards, contexts, baseline, std), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("std", ["group", "batch", "none"])
@given(batch=batches())
@repeatable
def test_the_problem_baseline_is_trls_formula(batch, std: str) -> None:
    rewards, contexts = batch
    flat = torch.tensor(rewards.flatten(), dtype=torch.float64)
    group = rewards.shape[1]
    # As in trl/trainer/grpo_trainer.py: groups are contiguous rows, std with Bessel's correction, ε = 1e-4.
    mean = flat.view(-1, group).mean(dim=1).repeat_interleave(group)
    scale = {
        "group": nanstd(flat.view(-1, group), dim=1).repeat_interleave(group) + 1e-4,
        "batch": nanstd(flat) + 1e-4,
        "none": torch.ones(()),
    }[std]
    expected = ((flat - mean) / scale).view(-1, group).numpy()
    found = advantages(rewards, groups_of(contexts, "problem"), std)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@given(batch=batches())
@repeatable
def test_advantages_of_a_group_sum_to_zero_and_ignore_a_constant(batch) -> None:
    rewards, contexts = batch
    groups = groups_of(contexts, "prompt")
    found = advantages(rewards, groups, "group")
    for group in np.unique(groups):
        assert abs(found[groups == group].sum()) < 1e-6
    np.testing.assert_allclose(advantages(rewards + 3, groups, "group"), found, atol=1e-6)


@pytest.mark.parametrize("std", ["group", "batch", "none"])
@pytest.mark.parametrize("baseline", ["problem", "prompt"])
def test_equal_rewards_give_exactly_nothing(baseline: str, std: str) -> None:
    contexts = np.array([[0, 0, 1, 1], [0, 0, 1, 1]])
    groups = groups_of(contexts, baseline)
    for reward in (0.0, 0.1, 1.0):
        rewards = np.full((2, 4), reward)
        assert not advantages(rewards, groups, std).any()
        assert not informative(rewards, groups).any()


def test_baselines_compare_who_they_say() -> None:
    """One context is always right, the other always wrong: that is signal between contexts and none within them."""
    rewards = np.array([[1.0, 1.0, 0.0, 0.0]])
    contexts = np.array([[0, 0, 1, 1]])
    assert informative(rewards, groups_of(contexts, "problem")).all()
    assert not informative(rewards, groups_of(contexts, "prompt")).any()


@given(batch=batches(), baseline=st.sampled_from(["problem", "prompt"]))
@repeatable
def test_informative_is_having_a_different_peer(batch, baseline: str) -> None:
    rewards, contexts = batch
    found = informative(rewards, groups_of(contexts, baseline))
    for problem, row in enumerate(rewards):
        for index, number in enumerate(contexts[problem]):
            peers = {r for r, n in zip(row, contexts[problem], strict=True) if baseline == "problem" or n == number}
            assert found[problem, index] == (len(peers) > 1)


@st.composite
def token_batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[list[list[float]]]]:
    """Token counts, which rollouts are kept, and a loss for every token."""
    problems, group = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    tokens = np.array(draw(st.lists(st.integers(0, 6), min_size=problems * group, max_size=problems * group)))
    kept = np.array(draw(st.lists(st.booleans(), min_size=problems * group, max_size=problems * group)))
    tokens, kept = tokens.reshape(problems, group), kept.reshape(problems, group)
    value = st.floats(-2, 2, width=32)
    losses = [[draw(st.lists(value, min_size=n, max_size=n)) for n in row] for row in tokens.tolist()]
    return tokens, kept, losses


@given(batch=token_batches())
@repeatable
def test_the_scale_turns_a_token_mean_into_a_mean_over_problems(batch) -> None:
    tokens, kept, losses = batch
    problems = np.repeat(np.arange(len(tokens)), tokens.shape[1])
    scale = prompt_mean_scale(tokens.ravel(), kept.ravel(), problems).reshape(tokens.shape)
    per_problem = []
    for row, keep in zip(losses, kept, strict=True):
        of_problem = [loss for rollout, k in zip(row, keep, strict=True) if k for loss in rollout]
        if of_problem:
            per_problem.append(sum(of_problem) / len(of_problem))
    everything = [
        factor * loss
        for row, keep, factors in zip(losses, kept, scale, strict=True)
        for rollout, k, factor in zip(row, keep, factors, strict=True)
        if k
        for loss in rollout
    ]
    if per_problem:
        expected = sum(per_problem) / len(per_problem)
        assert sum(everything) / len(everything) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    else:
        assert not scale.any()
    assert np.isfinite(scale).all()
