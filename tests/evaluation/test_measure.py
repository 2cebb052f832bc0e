"""Scores with intervals, against scipy and brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fastslow.base.errors import TaskError
from fastslow.base.intervals import interval
from fastslow.base.world import World
from fastslow.evaluation.measure import evaluate, score_rollouts
from fastslow.models.chat import ChatFormat
from fastslow.records import Completion, Context, Rollout, Sampling, Turn
from fastslow.rollouts.play import Player
from fastslow.tasks.base import SYSTEM, Example, Feedback, Message, Options, QuestionTask, Split

WORDS = ["red", "green", "blue", "stop"]
SAMPLING = Sampling(0.6, 0.95, 4)


# Intervals ---------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_whole_counts_give_wilsons_interval(counts: tuple[int, int]) -> None:
    right, problems = counts
    expected = binomtest(right, problems).proportion_ci(0.95, method="wilson")
    assert interval(right / problems, problems) == pytest.approx((expected.low, expected.high), abs=1e-7)


@settings(deadline=None, max_examples=500)
@given(st.floats(0, 1), st.integers(1, 100_000))
def test_intervals_hold_their_mean_and_stay_in_range(mean: float, problems: int) -> None:
    low, high = interval(mean, problems)
    assert 0 <= low <= mean <= high <= 1
    assert low < high  # honest at 0 and 1 too
    mirrored = interval(1 - mean, problems)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@settings(deadline=None, max_examples=100)
@given(st.floats(0, 1), st.integers(1, 1000), st.integers(2, 10))
def test_more_problems_make_intervals_narrower(mean: float, problems: int, times: int) -> None:
    low, high = interval(mean, problems)
    closer_low, closer_high = interval(mean, problems * times)
    assert closer_high - closer_low < high - low


# Scores ------------------------------------------------------------------------------------------------------------------


def rollout(score: float, tokens: int) -> Rollout:
    turn = Turn(SYSTEM, "", (1,), Completion((2,) * tokens, (0.0,) * tokens), "")
    return Rollout(Example("x", {}), Context({SYSTEM: "go"}), 0, (turn,), Feedback(score))


scores = st.floats(0, 1)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 5).flatmap(lambda k: st.lists(st.lists(scores, min_size=k, max_size=k), min_size=1, max_size=6)))
def test_mean_and_best_of_k_against_brute_force(table: list[list[float]]) -> None:
    rollouts = [rollout(score, tokens=1 + place) for row in table for place, score in enumerate(row)]
    k = len(table[0])
    result = score_rollouts(rollouts, k)
    mean = sum(sum(row) / k for row in table) / len(table)
    best = sum(sorted(row)[-1] for row in table) / len(table)
    assert (result.context, result.problems, result.k) == (rollouts[0].context.id, len(table), k)
    assert result.mean == pytest.approx(mean)
    assert result.best == pytest.approx(best)
    assert (result.low, result.high) == interval(result.mean, len(table))
    assert (result.best_low, result.best_high) == interval(result.best, len(table))
    assert result.response_length == pytest.approx((1 + k) / 2)
    assert result.mean <= result.best + 1e-12
    assert result.to_dict()["mean"] == result.mean


# Playing -----------------------------------------------------------------------------------------------------------------


class SayTheWord(QuestionTask):
    """Right is the word asked for."""

    def __init__(self) -> None:
        super().__init__(Options())

    def examples(self, split: Split) -> list[Example]:
        return [Example(word, {"word": word}) for word in WORDS]

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": f"say {example.data['word']}"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return Feedback(float(answer == example.data["word"]))


class Guesser:
    """Knows the word with a probability that the context's text sets; draws from the seed alone."""

    world, max_length, in_flight, retries = World(), None, False, 0
    chances = {"wait": 0.0, "the": 0.4, "answer": 1.0}  # noqa: RUF012

    def __init__(self) -> None:
        self.tokenizer = tiny.make_tokenizer()
        self.prompts: list[str] = []
        self.samplings: set[Sampling] = set()

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, **_: object
    ) -> list[Completion]:
        draw = random.Random(seed)
        texts = [str(self.tokenizer.decode(list(prompt))) for prompt in prompts]
        self.prompts += texts
        self.samplings.add(sampling)
        result = []
        for text in texts:
            _, context, _, _, _, word, *_ = text.split()
            answer = word if draw.random() < self.chances[context] else "wait"
            ids = (self.tokenizer.convert_tokens_to_ids(answer), self.tokenizer.eos_token_id)
            result.append(Completion(ids, (0.0, 0.0)))
        return result


def test_contexts_are_scored_on_the_same_problems_in_one_batch() -> None:
    guesser = Guesser()
    task = SayTheWord()
    player = Player(task, guesser, ChatFormat(guesser.tokenizer))
    contexts = [Context({SYSTEM: text}) for text in ("wait", "the", "answer")]
    problems = task.examples("validation")
    scores, rollouts, seconds = evaluate(player, contexts, problems, k=8, sampling=SAMPLING, policy_step=12, seed=4)
    assert len(guesser.prompts) == len(rollouts) == 3 * 4 * 8
    assert guesser.samplings == {SAMPLING}
    assert seconds >= 0
    assert {rollout.policy_step for rollout in rollouts} == {12}
    assert [score.context for score in scores] == [context.id for context in contexts]
    for context, score in zip(contexts, scores, strict=True):
        mine = [rollout for rollout in rollouts if rollout.context is context]
        assert len(mine) == 32
        by_problem = [[r.score for r in mine if r.example.id == word] for word in WORDS]
        assert [len(row) for row in by_problem] == [8] * 4
        assert score.mean == pytest.approx(sum(map(sum, by_problem)) / 32)
        assert score.best == pytest.approx(sum(map(max, by_problem)) / 4)
        assert (score.problems, score.k, score.response_length) == (4, 8, 2.0)
    never, sometimes, always = scores
    assert (never.mean, never.best, always.mean, always.best) == (0.0, 0.0, 1.0, 1.0)
    assert 0 < sometimes.mean < 1
    assert never.high < always.low
    again, _, _ = evaluate(player, contexts, problems, k=8, sampling=SAMPLING, policy_step=12, seed=4)
    assert again == scores


def test_no_problems_is_said_clearly() -> None:
    guesser = Guesser()
    player = Player(SayTheWord(), guesser, ChatFormat(guesser.tokenizer))
    with pytest.raises(TaskError, match=r"no problems to evaluate on; .*holdout.*evaluation\.every=0"):
        evaluate(player, [Context({SYSTEM: "the"})], [], k=4, sampling=SAMPLING, policy_step=0, seed=0)
