"""What words add to the gradient: bonuses and their bounds, when words are trusted, which rollouts are distilled."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_helpers import make_rollouts

from fastslow.recipe import SlowRecipe
from fastslow.records import Context, Feedback, Rollout
from fastslow.slow.update import advantages, build_update
from fastslow.slow.words import LATEST, LEAST, SPREAD, Trust, failed, told

CHAIN = np.sign(np.subtract.outer(np.arange(4), np.arange(4))).astype(np.int8)
"""Each of four rollouts got further than the one before it."""
NOTHING = np.zeros((4, 4), dtype=np.int8)


def ranked(rewards: list[float], *further: np.ndarray, trust: Trust | None = None, **slow: Any) -> Any:
    rollouts = make_rollouts(rewards, contexts=slow.pop("contexts", 1))
    recipe = SlowRecipe(group=4, **slow)
    return build_update(rollouts, recipe, 1, ranks=(trust or Trust(), further)), rollouts, recipe


def test_the_bonus_is_the_share_got_ahead_of_less_the_share_behind() -> None:
    numbers = Trust(0.2).bonus([CHAIN, CHAIN], np.array([0.0] * 4 + [0, 0, 0, 1.0]), np.repeat([0, 1], 4))
    np.testing.assert_allclose(numbers[:4], SPREAD / 2 * 0.2 * np.array([-1, -1 / 3, 1 / 3, 1]))
    assert not numbers[4:].any()


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_bonuses_stay_below_the_smallest_difference_and_advantages_below_those_of_rewards(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 8))
    upper = np.triu(np.array(data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=size**2, max_size=size**2)))
                    .reshape(size, size), 1)  # fmt: skip
    smallest = data.draw(st.floats(1e-3, 1))
    trust, groups_N = Trust(smallest), np.zeros(size, dtype=np.int64)
    equal = np.full(size, data.draw(st.sampled_from([0.0, 0.1, 1.0])))
    std = data.draw(st.sampled_from(["group", "batch", "none"]))
    bonus_N = trust.bonus([(upper - upper.T).astype(np.int8)], equal, groups_N)
    assert np.ptp(bonus_N) <= SPREAD * smallest + 1e-12
    assert bonus_N.sum() == pytest.approx(0, abs=1e-12)
    better = data.draw(st.integers(1, size - 1))
    rewards_N = np.where(np.arange(size) < better, smallest, 0.0)
    gap = np.ptp(advantages(rewards_N, groups_N, std))
    assert np.ptp(trust.advantages(bonus_N, rewards_N, groups_N, std)) <= gap


@pytest.mark.parametrize("std", ["group", "batch", "none"])
@pytest.mark.parametrize("aggregation", ["problem", "token"])
def test_groups_whose_rewards_differ_keep_their_advantages_and_their_gradient(std: str, aggregation: str) -> None:
    rewards = [1, 0, 0, 0, 0, 0, 0, 0, 0.5, 0.5, 0, 1, 1, 1, 1, 1]
    slow = {"std": std, "loss": {"aggregation": aggregation}}
    (update, signal), rollouts, recipe = ranked(rewards, CHAIN, CHAIN, CHAIN, NOTHING, trust=Trust(0.5), **slow)
    today, before = build_update(rollouts, recipe, 1)
    mine = [row for row in update.rows if id(row.turn) in {id(each.turn) for each in today.rows}]
    assert [row.advantage for row in mine] == [row.advantage for row in today.rows]
    assert signal.advantages[:4] + signal.advantages[8:12] == before.advantages[:4] + before.advantages[8:12]
    assert len(update.rows) == len(today.rows) + 4
    # With the mean over problems, the default, a row's part of the loss is the same too.
    tokens = [sum(len(row.turn.completion.ids) for row in each.rows) for each in (update, today)]
    np.testing.assert_allclose([row.scale / tokens[0] for row in mine], [row.scale / tokens[1] for row in today.rows])
    assert signal.zero_variance == signal.words["gradient_by_reward"] == 0.5
    assert signal.words["gradient_by_words"] == 0.25
    assert signal.words["words_bonus"] == pytest.approx(np.mean([1, 1 / 3] * 2) * SPREAD / 2 * 0.5 / 4)


def test_ranked_groups_weigh_as_a_mean_over_all_problems_of_the_step() -> None:
    (update, _), rollouts, _ = ranked([0.0] * 12, CHAIN, NOTHING, CHAIN)
    tokens = sum(len(row.turn.completion.ids) for row in update.rows)
    for start in (0, 8):
        turns = {id(turn) for rollout in rollouts[start : start + 4] for turn in rollout.turns}
        own = [row for row in update.rows if id(row.turn) in turns]
        assert sum(len(row.turn.completion.ids) * row.scale for row in own) / tokens == pytest.approx(1 / 3)


def test_with_the_prompt_baseline_rollouts_are_ranked_among_those_of_their_context() -> None:
    (update, signal), _, _ = ranked([0, 0, 0, 1], CHAIN, contexts=2, baseline="prompt", std="none")
    assert signal.advantages == [-SPREAD / 2, SPREAD / 2, -0.5, 0.5]
    assert len(update.rows) == 4


def test_without_differences_nothing_changes_at_all() -> None:
    rewards = [1, 0, 0, 0, 1, 1, 0, 0]
    (update, signal), rollouts, recipe = ranked(rewards, CHAIN, CHAIN)
    assert (update, signal) == build_update(rollouts, recipe, 1)


def test_the_gradient_of_a_bandit_is_the_known_one_plus_that_of_the_words() -> None:
    """A softmax policy over four answers. In expectation over groups, an update without std has the gradient of the expected
    reward, times (G − 1) / G. Words add theirs in equal groups only."""
    reward, stage = np.array([0.0, 0.0, 0.0, 1.0]), np.array([0, 1, 2, 3])
    logits = np.array([1.0, 0.5, 0.0, -0.5])
    policy = np.exp(logits) / np.exp(logits).sum()
    slope = np.eye(4) - policy  # of log π(a), by a
    by_reward, by_words, expected_words = np.zeros(4), np.zeros(4), np.zeros(4)
    pairs = [(a, b) for a in range(4) for b in range(4)]
    for a, b in pairs:
        chance, group = policy[a] * policy[b], np.array([a, b])
        further = np.sign(np.subtract.outer(stage[group], stage[group])).astype(np.int8)
        rewards_N, groups_N = reward[group], np.zeros(2, dtype=np.int64)
        bonus_N = Trust(1.0).bonus([further], rewards_N, groups_N)
        by_reward += chance * advantages(rewards_N, groups_N, "none") @ slope[group]
        by_words += chance * bonus_N @ slope[group]
        if reward[a] == reward[b]:
            expected_words += chance * SPREAD / 2 * np.sign(stage[a] - stage[b]) * (slope[a] - slope[b])
    np.testing.assert_allclose(by_reward, 2 * 0.5 * (policy * (reward - policy @ reward)))
    np.testing.assert_allclose(by_words, expected_words)
    assert by_words[2] > 0 > by_words[0]


# Trust -------------------------------------------------------------------------------------------------------------------


def agreeing(*values: float) -> Trust:
    return Trust(1.0, values)


def test_words_count_until_enough_groups_speak_and_then_only_if_they_predict() -> None:
    assert agreeing(*[1.0] * (LEAST - 1)).known is None
    assert agreeing(*[-1.0] * (LEAST - 1)).known is None
    assert agreeing(*[1.0] * LEAST).known is True
    assert agreeing(*[-1.0] * LEAST).known is False
    equal, groups_N = np.zeros(4), np.zeros(4, dtype=np.int64)
    assert not agreeing(*[-1.0] * LEAST).bonus([CHAIN], equal, groups_N).any()
    assert agreeing().bonus([CHAIN], equal, groups_N).any()


@pytest.mark.parametrize("values", [(-1.0, 1.0), (-1.0, -0.5, 0.0, 0.5, 1.0)])
@pytest.mark.parametrize("groups", [LEAST, 40, LATEST])
def test_a_coin_passes_rarely(values: tuple[float, ...], groups: int) -> None:
    draw = random.Random(5)
    passed = sum(agreeing(*(draw.choice(values) for _ in range(groups))).known is True for _ in range(2000))
    assert passed <= 0.012 * 2000


def test_agreement_is_of_pairs_with_different_rewards_that_words_decide() -> None:
    rollouts = make_rollouts([0, 0, 0.5, 1.0])
    assert Trust().after(rollouts, [CHAIN]) == Trust(0.5, (1.0,))
    assert Trust().after(rollouts, [-CHAIN]) == Trust(0.5, (-1.0,))
    assert Trust().after(rollouts, [NOTHING]) == Trust(0.5)
    mixed = NOTHING.copy()
    mixed[3, 0], mixed[0, 3] = 1, -1  # agrees
    mixed[1, 2], mixed[2, 1] = 1, -1  # does not
    mixed[0, 1], mixed[1, 0] = 1, -1  # of equal rewards
    assert Trust(0.25).after(rollouts, [mixed]) == Trust(0.25, (0.0,))
    assert Trust().after(make_rollouts([0.0] * 4), [CHAIN]) == Trust()


def test_words_that_lie_are_dropped_and_come_back_when_they_are_true() -> None:
    trust, seen, draw = Trust(), [], random.Random(1)
    for step in range(600):
        rewards = [float(draw.random() < 0.5) for _ in range(4)]
        truth = np.sign(np.subtract.outer(rewards, rewards)).astype(np.int8)
        noise = np.triu(np.array([draw.choice([-1, 1]) for _ in range(16)]).reshape(4, 4), 1)
        signs = truth if step < 100 or step >= 300 else (noise - noise.T).astype(np.int8)
        trust = trust.after(make_rollouts(rewards), [signs])
        seen.append(trust.known)
    assert seen[99] is True
    assert seen[299] is False
    assert seen[599] is True
    assert len(trust.agreements) == LATEST
    assert Trust.from_data(trust.to_data()) == trust


# Distillation ------------------------------------------------------------------------------------------------------------


def test_who_failed_and_how_much_the_group_disagrees() -> None:
    rewards_N = np.array([1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.2, 0.4, 0.6, 0.8])
    failed_N, weight_N = failed(rewards_N, np.repeat(range(6), 4))
    assert failed_N.astype(int).tolist() == [0, 0, 1, 1, 0, 1, 1, 1, *[1] * 4, *[0] * 4, *[1] * 4, 1, 1, 0, 0]
    np.testing.assert_allclose(weight_N[::4], [1, np.sqrt(3) / 2, 1, 1, 1, 2 * np.sqrt(0.05)])


def test_failures_with_words_are_distilled_and_the_others_keep_the_policy_loss() -> None:
    rollouts = make_rollouts([1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1], turns=[1, 2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1])
    prompts = [[(7, 8)] * len(rollout.turns) for rollout in rollouts]
    prompts[3] = prompts[4] = None  # nothing was said of these
    update, signal = build_update(rollouts, SlowRecipe(group=4), 1, prompts=prompts)
    kind = {id(row.turn): bool(row.teacher_prompt) for row in update.rows}
    found = [{kind.get(id(turn)) for turn in rollout.turns} for rollout in rollouts]
    assert found == [{False}, {True}, {True}, {False}, {None}, {True}, {True}, {True}, *[{None}] * 4]
    today = {id(row.turn): row for row in build_update(rollouts, SlowRecipe(group=4), 1)[0].rows}
    assert all(row.advantage == today[id(row.turn)].advantage for row in update.rows if not row.teacher_prompt)
    assert signal.words == {"distilled": 5 / 12}
    # A mean over the tokens of each of the two problems, weighed by how much its group disagrees.
    tokens = sum(len(row.turn.completion.ids) for row in update.rows)
    taught = {id(row.turn): row.advantage for row in update.rows if row.teacher_prompt}
    first, second = (sum(r.completion_tokens for r in each) for each in (rollouts[:4], rollouts[5:8]))
    assert taught[id(rollouts[1].turns[1])] == pytest.approx(np.sqrt(3) / 2 * tokens / (2 * first))
    assert taught[id(rollouts[6].turns[0])] == pytest.approx(tokens / (2 * second))
    plain = build_update(rollouts, SlowRecipe(group=4, loss={"aggregation": "token"}), 1, prompts=prompts)[0]
    weights = sorted({row.advantage for row in plain.rows if row.teacher_prompt})
    assert weights == pytest.approx([np.sqrt(3) / 2, 1.0])


def said(feedback: Feedback, **texts: str) -> Rollout:
    return replace(make_rollouts([0.0])[0], context=Context(texts), feedback=feedback)


def test_the_teacher_reads_the_context_and_what_was_said_of_this_rollout() -> None:
    context = told(said(Feedback(0.0, "Use {braces}.\n"), system="Be brief."))
    assert context is not None
    assert context.texts["system"].startswith("Be brief.\n\n")
    assert "the grader said:\nUse {braces}.\n" in context.texts["system"]
    assert told(said(Feedback(0.0, " \n"), system="Be brief.")) is None
    assert told(said(Feedback(1.0, "Right."), system="Be brief.")) is None
    own = told(said(Feedback(0.0, "All.", {"plan": "", "solve": "Only this."}), plan="p", solve="", other="o"))
    assert own is not None
    assert own.texts["plan"] == "p"
    assert "Only this." in own.texts["solve"]
    assert not own.texts["solve"].startswith("\n")
    assert "All." in own.texts["other"]
