"""The reward functions of a TRL script give in a task what they give in TRL's own trainer, and every mistake is one line."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import math
import re
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from datasets import Dataset, DatasetDict
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import LlamaForSequenceClassification
from trl import GRPOConfig, GRPOTrainer

import fastslow
from fastslow.base.errors import FastSlowError, RecipeError, TaskError
from fastslow.models import load
from fastslow.recipe import Recipe, build_recipe, load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.tasks.adapters import trl_reward_model
from fastslow.tasks.adapters.dataset import GraderError
from fastslow.tasks.adapters.trl_rewards import TRLRecipeTask, TRLTask
from fastslow.tasks.base import Answer, Split
from fastslow.tasks.registry import build_task
from fastslow.tasks.show import describe_task, show_task

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def said(completion: Any) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


# Reward functions as a script would have them --------------------------------------------------------------------------


def letters(completions: list[Any], **kwargs: Any) -> list[float]:
    """Reward for words of a single letter.

    Not for the reader of feedback.
    """
    return [sum(len(word) == 1 for word in said(completion).split()) / 4 for completion in completions]


def wanted(prompts: list[Any], completions: list[Any], word: list[str], **kwargs: Any) -> list[float]:
    """2 when the word of the row is said, less half a point when it stands in the prompt's own words."""
    return [
        2.0 * (one in said(completion)) - 0.5 * (one in str(prompt))
        for prompt, completion, one in zip(prompts, completions, word, strict=True)
    ]


def for_red(completions: list[Any], kind: list[str | None], **kwargs: Any) -> list[float | None]:
    return [
        None if one != "red" else 1.0 - len(said(completion)) / 20
        for completion, one in zip(completions, kind, strict=True)
    ]


async def judge(completions: list[Any], extra: dict[str, Any] | list[Any], **kwargs: Any) -> list[float]:
    await asyncio.sleep(0)
    return [len(set(said(completion))) / 20 + one["bonus"] for completion, one in zip(completions, extra, strict=True)]


class Tokens:
    """Counts tokens."""

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def __call__(self, completion_ids: list[list[int]], log_extra: Any, log_metric: Any, **kwargs: Any) -> list[float]:
        log_extra("ids", [str(ids) for ids in completion_ids])
        log_metric("longest", max(map(len, completion_ids)))
        return [len(ids) / self.longest for ids in completion_ids]


async def last(completions: list[Any], *, letter: str, **kwargs: Any) -> list[float | None]:
    return [None if not said(completion) else float(said(completion)[-1] == letter) for completion in completions]


FUNCTIONS = [letters, wanted, for_red, judge, Tokens(4), functools.partial(last, letter="d")]
NAMES = ["letters", "wanted", "for_red", "judge", "Tokens", "last"]
WEIGHTS = [1.0, 0.5, 2.0, -1.0, 0.25, 0.0]
LOW, HIGH = [0, -0.5, -1, 0, 0, 0], [1, 2, 1, 2, 1, 1]
WORDS = ["red", "green", "blue", "stop"]


def rows(shape: str) -> list[dict[str, Any]]:
    """Four problems, as texts or as chats with the same or with different system messages."""
    made = []
    for place, word in enumerate(WORDS):
        asked: Any = f"say {word if place % 2 else 'the word'}"
        if shape != "plain":
            asked = [{"role": "user", "content": asked}]
            asked.insert(0, {"role": "system", "content": "answer with a word" if shape == "chat" else f"say {word}"})
        kind = "red" if place < 2 else None
        made.append({"prompt": asked, "word": word, "kind": kind, "extra": {"bonus": place / 4}})
    return made


# The oracle: a step of TRL's own trainer ---------------------------------------------------------------------------------


@dataclass
class Step:
    """What a stock trainer was given and what it made of it in one step."""

    task: TRLTask
    inputs: list[dict[str, Any]]
    completions: list[Any]
    completion_ids: list[list[int]]
    rewards: list[list[float]]
    advantages: list[float]


def train_one_step(folder: Path, shape: str, functions: list[Any], **settings: Any) -> Step:
    data = Dataset.from_list(rows(shape))
    tokenizer = tiny.make_tokenizer()
    trainer = GRPOTrainer(
        model=tiny.make_model(tokenizer),
        reward_funcs=list(functions),
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=16,
            num_generations=4,
            max_steps=1,
            max_completion_length=4,
            reward_weights=settings.get("reward_weights"),
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=data,
        processing_class=tokenizer,
    )
    seen: dict[str, Any] = {}
    original = trainer._calculate_rewards

    def listen(inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> torch.Tensor:
        rewards: torch.Tensor = original(inputs, prompts, completions, completion_ids)
        seen.update(inputs=inputs, completions=completions, completion_ids=completion_ids, rewards=rewards.tolist())
        return rewards

    trainer._calculate_rewards = listen
    trainer.train()
    task = TRLTask(functions, data, holdout=0, **settings)
    return Step(task, **seen, advantages=list(trainer._logs["advantages"]))


@pytest.fixture(scope="module", params=["plain", "chat"])
def step(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Step:
    return train_one_step(
        tmp_path_factory.mktemp("trl"), request.param, FUNCTIONS, reward_weights=WEIGHTS, low=LOW, high=HIGH
    )


def result(graded: Any) -> fastslow.Feedback:
    """Feedback; that of async functions is awaited."""

    async def wait() -> fastslow.Feedback:
        return await graded

    return asyncio.run(wait()) if inspect.isawaitable(graded) else graded


def given_by(feedback: fastslow.Feedback) -> dict[str, float]:
    """What each function gave, as the feedback says."""
    return {name: float(value) for name, value in re.findall(r"([\w-]+) gave (\S+) \(best", feedback.text)}


def graded(step: Step) -> list[fastslow.Feedback]:
    examples = {example.data["word"]: example for example in step.task.examples("train")}
    return [
        result(step.task.grade(examples[row["word"]], Answer(said(completion), ids)))
        for row, completion, ids in zip(step.inputs, step.completions, step.completion_ids, strict=True)
    ]


def test_every_function_gives_what_it_gives_in_trls_trainer(step: Step) -> None:
    assert len(step.rewards) == 16
    assert len({tuple(rewards) for rewards in step.rewards}) > 8  # the model says many things
    for feedback, rewards in zip(graded(step), step.rewards, strict=True):
        given = zip(NAMES, rewards, WEIGHTS, strict=True)
        expected = {name: reward for name, reward, weight in given if weight and not np.isnan(reward)}
        assert given_by(feedback) == pytest.approx(expected, abs=1e-5)


def test_scores_are_trls_rewards_shifted_and_scaled(step: Step) -> None:
    """Read backwards from the scores, the rewards give the advantages that the trainer used."""
    weights, low, high = torch.tensor(WEIGHTS), torch.tensor(LOW), torch.tensor(HIGH)
    ends = torch.stack([weights * low, weights * high])
    restored = []
    for feedback, rewards in zip(graded(step), torch.tensor(step.rewards), strict=True):
        applies = ~rewards.isnan()
        least, most = ends.min(0).values[applies].sum(), ends.max(0).values[applies].sum()
        total = (rewards * weights).nansum()
        assert feedback.score == pytest.approx(float((total - least) / (most - least)), abs=1e-6)
        restored.append(float(least + feedback.score * (most - least)))
    grouped = torch.tensor(restored).view(-1, 4)
    advantages = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    assert advantages.flatten().tolist() == pytest.approx(step.advantages, abs=1e-3)


@pytest.mark.parametrize("shape", ["plain", "chat"])
def test_a_reward_model_reads_what_trls_trainer_reads(shape: str, tmp_path: Path) -> None:
    tokenizer = tiny.make_tokenizer()
    config = tiny.make_model(tokenizer, seed=1).config
    config.num_labels = 1
    torch.manual_seed(1)
    LlamaForSequenceClassification(config).save_pretrained(tmp_path / "judge")
    tokenizer.save_pretrained(tmp_path / "judge")
    step = train_one_step(tmp_path, shape, [str(tmp_path / "judge"), letters], low=[-5, 0], high=[5, 1])
    spread = [rewards[0] for rewards in step.rewards]
    assert max(spread) - min(spread) > 1e-3
    for feedback, rewards in zip(graded(step), step.rewards, strict=True):
        assert list(given_by(feedback).values()) == pytest.approx(rewards, abs=1e-5)
        assert "Answers are judged by the reward model judge." in feedback.text
    loaded = LlamaForSequenceClassification.from_pretrained(tmp_path / "judge")
    given_as_object = TRLTask(loaded, rows(shape), low=-5, high=5, holdout=0)
    example = given_as_object.examples("train")[0]
    expected = given_by(result(step.task.grade(example, "red go")))["judge"]
    assert given_by(result(given_as_object.grade(example, "red go"))) == {"judge": pytest.approx(expected, abs=1e-5)}


@pytest.mark.parametrize(("bf16", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_reward_model_is_in_its_own_precision_where_the_processor_computes_in_it(
    bf16: bool, expected: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tiny.make_tokenizer()
    config = tiny.make_model(tokenizer, seed=1).config
    config.num_labels = 1
    LlamaForSequenceClassification(config).to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr(trl_reward_model, "choose_device", lambda _: "cpu")
    monkeypatch.setattr(load, "_cpu_computes_in_bf16", lambda: bf16)
    assert trl_reward_model.RewardModel(str(tmp_path)).model.dtype == expected


# The score ---------------------------------------------------------------------------------------------------------------


def constant(value: Any, name: str = "constant") -> Callable[..., Any]:
    def function(completions: list[Any], **kwargs: Any) -> list[Any]:
        return [value] * len(completions)

    function.__name__ = name
    return function


def task_of(functions: Any, data: Any = None, **settings: Any) -> TRLTask:
    return TRLTask(functions, data or [{"prompt": "What is 2 + 2?"}], **{"holdout": 0, **settings})


def grade(functions: Any, answer: str = "4", **settings: Any) -> fastslow.Feedback:
    task = task_of(functions, **settings)
    return result(task.grade(task.examples("train")[0], answer))


@pytest.mark.parametrize(
    ("values", "settings", "score"),
    [
        ([0.25], {}, 0.25),
        ([0.1 + 0.2], {"high": 0.3}, 1),
        ([True], {}, 1),
        ([np.float32(0.5)], {}, 0.5),
        ([torch.tensor(0.5)], {}, 0.5),
        ([1, 0], {"reward_weights": [1, 0]}, 1),
        ([-1, 1], {"low": -1}, 0.5),
        ([None, 0.5], {"reward_weights": [9, 1]}, 0.5),
        ([float("nan"), 0.5], {}, 0.5),
        ([-7, 1], {"outside": "clip"}, 0.5),
        ([float("inf")], {"outside": "clip"}, 1),
    ],
)
def test_the_score_is_the_share_of_what_could_be_had(values: list[Any], settings: dict[str, Any], score: float) -> None:
    functions = [constant(value, f"f{place}") for place, value in enumerate(values)]
    found = grade(functions, **settings)
    assert found.score == pytest.approx(score)
    applied = {f"f{place}": value for place, value in enumerate(values) if value is not None and not math.isnan(value)}
    if "outside" not in settings:
        assert found.parts == pytest.approx({name: float(value) for name, value in applied.items()})


finite = st.floats(-100, 100)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(finite, finite, finite, finite), min_size=1, max_size=4))
def test_a_score_grows_with_trls_reward_from_0_to_1(drawn: list[tuple[float, float, float, float]]) -> None:
    drawn = [each for each in drawn if each[0] and each[2] - each[1] > 1e-3]
    assume(drawn)
    weights, low, high, values = map(list, zip(*drawn, strict=True))
    middle = [min(max(value, least), most) for value, least, most in zip(values, low, high, strict=True)]
    best = [most if weight > 0 else least for weight, least, most in zip(weights, low, high, strict=True)]
    worst = [least if weight > 0 else most for weight, least, most in zip(weights, low, high, strict=True)]
    bounds: dict[str, Any] = {"reward_weights": weights, "low": low, "high": high}
    scores = [grade([constant(value) for value in each], **bounds).score for each in (worst, middle, best)]
    assert scores[0] == 0
    assert scores[2] == 1  # exactly: a solved problem is told by it
    total, least, most = (float(np.dot(weights, each)) for each in (middle, worst, best))
    assert scores[1] == pytest.approx((total - least) / (most - least), abs=1e-6)


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        (
            [2],
            {},
            "'f0' gave 2 for an answer, but low=0 and high=1 .* set high to the most .* any answer, such as high=[2]; or set",
        ),
        (
            [1, -0.5],
            {"low": [-1, 0]},
            "'f1' gave -0.5 for an answer, .* set low to the least .* low=[-1, -1], and its high to 0 if it is a penalty",
        ),
        ([1, 3], {"high": 2}, "'f1' gave 3 for an answer, but low=0 and high=2 .* high=[2, 3]; or set outside=clip"),
        ([float("inf")], {}, "'f0' gave inf"),
    ],
)
def test_a_reward_outside_its_bounds_says_what_to_set(
    values: list[float], settings: dict[str, Any], message: str
) -> None:
    functions = [constant(value, f"f{place}") for place, value in enumerate(values)]
    with pytest.raises(RecipeError, match=message.replace("[", r"\[")) as caught:
        grade(functions, **settings)
    assert "\n" not in str(caught.value)


# The words ---------------------------------------------------------------------------------------------------------------


def test_the_feedback_says_who_gave_what_and_what_they_look_at() -> None:
    functions = [letters, constant(0.5, "form"), constant(1.0, "good"), constant(0, "off"), constant(None, "other")]
    feedback = grade(functions, "four", reward_weights=[1, 1, 1, 0, 1])
    assert feedback.text.split("\n") == [
        "For 'What is 2 + 2?', letters gave 0 (best 1), form gave 0.5 (best 1), good gave 1 (best 1).",
        "Reward for words of a single letter.",
    ]  # `form` has no docstring, and a name is nothing that a prompt could use
    assert grade(letters, "a b c d").text == "For 'What is 2 + 2?', letters gave 1 (best 1)."


def test_negative_rewards_are_explained_in_one_line_and_few_frames(tmp_path: Path, tiny_folder: Path) -> None:
    def length_penalty(completions: list[str], **_: Any) -> list[float]:
        return [-1.0 - len(each) for each in completions]

    task = TRLTask(length_penalty, [{"prompt": f"say {number}"} for number in range(8)], holdout=0)
    with pytest.raises(RecipeError, match="negative rewards are welcome") as caught:
        fastslow.train(recipe(tiny_folder, "given"), tmp_path / "run", task=task)
    assert "\n" not in str(caught.value)
    assert "low=[" in str(caught.value)
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= 4


@pytest.mark.parametrize("values", [[None], [float("nan"), None], [None, 1]])
def test_without_a_number_from_any_function_the_grade_is_faulty(values: list[Any]) -> None:
    with pytest.raises(TaskError, match="no reward function gave a number for an answer to 'What is 2"):
        grade([constant(value) for value in values], reward_weights=[1, 0][: len(values)])


def test_functions_of_the_same_name_are_told_apart() -> None:
    functions = [constant(0.5), constant(1), constant(0), Tokens(4), functools.partial(letters)]
    assert list(given_by(grade(functions, ""))) == ["constant", "constant-2", "constant-3", "Tokens", "letters"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_function_may_have_words_of_its_own(wrapped: bool) -> None:
    called: list[dict[str, Any]] = []

    def exact(completions: list[Any], answer: list[str], **kwargs: Any) -> list[float]:
        """Not shown."""
        return [float(said(one) == right) for one, right in zip(completions, answer, strict=True)]

    def feedback(prompt: str, completion: str, **columns: Any) -> str:
        called.append({"prompt": prompt, "completion": completion, **columns})
        return "Write the bare number."

    exact.feedback = feedback  # type: ignore[attr-defined]
    data = [{"prompt": "2 + 2?", "answer": "4", "level": 1}]
    task = task_of(functools.partial(exact) if wrapped else exact, data)
    example = task.examples("train")[0]
    assert task.grade(example, "four").text == "For '2 + 2?', exact gave 0 (best 1).\nWrite the bare number."
    assert task.grade(example, "4").text == "For '2 + 2?', exact gave 1 (best 1)."
    assert called == [{"prompt": "2 + 2?", "completion": "four", "answer": "4", "level": 1}]


# What functions are given ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["plain", "chat"])
def test_functions_are_given_the_row_as_lists_of_one(shape: str) -> None:
    seen: dict[str, Any] = {}

    def look(**kwargs: Any) -> list[float]:
        seen.update(kwargs)
        kwargs["prompts"].clear()
        kwargs["extra"][0].clear()
        return [1.0]

    data = [*rows(shape), {**rows(shape)[0], "more": 1, "completion": "dropped", "completion_ids": [9]}]
    task = task_of(look, data)
    example = task.examples("train")[0]
    before = json.dumps(example.data)
    task.grade(example, Answer("red go", (6, 10, 2)))
    completion: Any = "red go" if shape == "plain" else [{"role": "assistant", "content": "red go"}]
    assert type(said(seen["completions"][0])) is str
    assert seen["completions"] == [completion]
    assert seen["completion_ids"] == [[6, 10, 2]]
    assert (seen["word"], seen["kind"], seen["more"]) == (["red"], ["red"], [None])
    given = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"}
    assert set(seen) == given | {"word", "kind", "extra", "more"}
    assert json.dumps(example.data) == before  # what a function does to its arguments stays there


def test_what_a_task_does_not_have_is_missed_only_by_those_who_look() -> None:
    def accepts(
        prompts: Any, completions: Any, completion_ids: Any, trainer_state: Any, log_extra: Any, log_metric: Any
    ):
        return [1.0]

    def follows(trainer_state: Any, **kwargs: Any) -> list[float]:
        return [min(1.0, trainer_state.global_step / 100)]

    async def follows_later(trainer_state: Any, **kwargs: Any) -> list[float]:
        return [min(1.0, trainer_state.global_step / 100)]

    assert grade(accepts).score == 1
    for function in (follows, follows_later):
        with pytest.raises(RecipeError, match=f"reward function '{function.__name__}': trainer_state is not given"):
            grade(function)

    def first(completion_ids: Any, **kwargs: Any) -> list[float]:
        return [completion_ids[0][0]]

    def total(completion_ids: Any, **kwargs: Any) -> list[float]:
        return [sum(completion_ids[0])]

    for counts in (Tokens(4), first, total):
        with pytest.raises(RecipeError, match="completion_ids are known of answers that a model wrote"):
            grade(counts, "only text")
    assert grade(Tokens(4), "").score == 0  # no text has no tokens


def test_async_functions_wait_together_on_one_loop_that_lasts() -> None:
    loops, threads, order, judged = set(), set(), [], []

    async def slow(completions: list[Any], **kwargs: Any) -> list[float]:
        order.append("slow begins")
        loops.add(asyncio.get_running_loop())
        threads.add(threading.current_thread())
        async with asyncio.timeout(60):  # one after the other, it would wait for nobody
            while not judged:
                await asyncio.sleep(0)
        order.append("slow ends")
        return [0.5]

    class Judge:
        async def __call__(self, completions: list[Any], **kwargs: Any) -> list[float]:
            order.append("Judge")
            judged.append(True)
            loops.add(asyncio.get_running_loop())
            return [1.0]

    def plain(completions: list[Any], **kwargs: Any) -> list[float]:
        order.append("plain")
        assert threading.current_thread() is threading.main_thread()
        return [0.0]

    assert given_by(grade([slow, Judge(), plain])) == {"slow": 0.5, "Judge": 1, "plain": 0}
    assert order == ["plain", "slow begins", "Judge", "slow ends"]
    grade([slow])
    assert len(loops) == len(threads) == 1


def test_functions_that_wait_do_not_hold_other_rollouts() -> None:
    """The one that is judged first waits for the one that is judged last."""
    released = threading.Event()

    def blocks(completions: list[Any], **kwargs: Any) -> list[float]:
        if completions == ["wait"]:
            return [float(released.wait(60))]
        released.set()
        return [1.0]

    async def waits(completions: list[Any], **kwargs: Any) -> list[float]:
        while completions == ["wait"] and not released.is_set():
            await asyncio.sleep(0.01)
        released.set()
        return [1.0]

    async def play(task: TRLTask) -> list[fastslow.Feedback]:
        async def say(text: str) -> str:
            return text

        rollouts = [
            task.rollout(task.examples("train")[0], task.seed_texts, lambda ask, text=text: say(text))
            for text in ("wait", "go")
        ]
        return await asyncio.wait_for(asyncio.gather(*rollouts), 60)

    for function in (blocks, waits):
        released.clear()
        task = TRLTask(function, [{"prompt": "2 + 2?"}], holdout=0, grader_threads=function is blocks)
        assert [feedback.score for feedback in asyncio.run(play(task))] == [1, 1]


# Prompts -----------------------------------------------------------------------------------------------------------------


def system(*texts: str | None) -> list[dict[str, Any]]:
    user = {"role": "user", "content": "2 + 2?"}
    return [
        {"prompt": [user] if text is None else [{"role": "system", "content": text}, user], "n": place}
        for place, text in enumerate(texts)
    ]


def shown(task: TRLTask) -> list[list[tuple[str, str]]]:
    return [
        [(message["role"], message["content"]) for message in task.messages(example)]
        for example in task.examples("train")
    ]


def test_a_text_is_a_users_message() -> None:
    task = task_of(letters)
    assert shown(task) == [[("user", "What is 2 + 2?")]]
    assert dict(task.seed_texts) == {"system": "Answer the question."}


def test_a_system_message_that_all_share_is_the_seed_text() -> None:
    task = task_of(letters, system("Be brief.", "Be brief."))
    assert task.seed_text == "Be brief."
    assert shown(task) == [[("user", "2 + 2?")]] * 2
    assert task.examples("train")[0].data["prompt"][0]["role"] == "system"  # functions get the prompt as it was


@pytest.mark.parametrize("texts", [("Be brief.", "Be long."), ("Be brief.", None)])
def test_system_messages_that_differ_stay_with_their_problems(texts: tuple[str | None, ...]) -> None:
    task = task_of(letters, system(*texts))
    assert task.seed_text == "Answer the question."
    kept = [[("system", text)] if text else [] for text in texts]
    assert shown(task) == [[*each, ("user", "2 + 2?")] for each in kept]
    other = task_of(letters, system(texts[0]), eval_dataset=system(texts[1]))
    assert other.seed_text == "Answer the question."  # the rows of all splits count


def test_a_seed_text_of_ones_own_leaves_the_prompts_alone() -> None:
    task = task_of(letters, system("Be brief.", "Be brief."), seed_text="Think.")
    assert task.seed_text == "Think."
    assert shown(task) == [[("system", "Be brief."), ("user", "2 + 2?")]] * 2


def test_chats_of_several_turns_and_content_in_blocks() -> None:
    blocks = [{"type": "text", "text": "2 + "}, {"type": "text", "text": "2?"}]
    turns = [
        {"role": "user", "content": "Hello", "name": None},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": blocks},
    ]
    task = task_of(letters, [{"prompt": turns}])
    assert shown(task) == [[("user", "Hello"), ("assistant", "Hi"), ("user", "2 + 2?")]]


def test_datasets_become_splits() -> None:
    data = Dataset.from_list([{"prompt": f"{n}?"} for n in range(40)])
    assert [len(TRLTask(letters, data).examples(split)) for split in SPLITS] == [32, 4, 4]
    assert [len(TRLTask(letters, data, data.select(range(3))).examples(split)) for split in SPLITS] == [36, 3, 4]
    whole = TRLTask(letters, data, data.select(range(3)), test_dataset=data.select(range(2)))
    assert [len(whole.examples(split)) for split in SPLITS] == [40, 3, 2]
    names = [example.id for split in SPLITS for example in whole.examples(split)]
    assert len(set(names)) == 45
    turned = TRLTask(letters, list(data)[::-1])
    assert {example.id for example in turned.examples("test")} == {
        example.id for example in TRLTask(letters, data).examples("test")
    }


def test_rows_that_ask_the_same_are_held_out_together() -> None:
    data = [{"prompt": f"{n}?", "answer": answer} for n in range(20) for answer in "ab"]
    task = TRLTask(letters, data)
    asked = [{example.data["prompt"] for example in task.examples(split)} for split in SPLITS]
    assert [len(task.examples(split)) for split in SPLITS] == [32, 4, 4]
    assert [len(each) for each in asked] == [16, 2, 2]
    assert len(set.union(*asked)) == 20


# Mistakes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            [{"question": "2?", "n": 1}],
            "train_dataset row 1 has no column 'prompt'; it has question, n; as for TRL, name",
        ),
        (
            [{"prompt": "a"}, {"prompt": None}],
            "train_dataset row 2: prompt=None; expected a text, or a list of messages",
        ),
        ([{"prompt": []}], r"prompt=\[\]; expected"),
        ([{"prompt": [{"content": "a"}]}], "expected a text, or a list of messages with role"),
        ([{"prompt": [{"role": "user"}]}], "expected a text, or a list of messages with role"),
        ([{"prompt": [{"role": "system", "content": "a"}]}], "at least one of them not a system message"),
        ([{"prompt": [{"role": "user", "content": [{"type": "image"}]}]}], "text only"),
        ([{"prompt": "a", "image": "x.png"}], "train_dataset row 1 has pictures in column 'image'; only text"),
        ([], "train_dataset has no rows"),
        (["a"], "train_dataset row 1 is of type str; expected a dict with a column 'prompt'"),
        ("data.jsonl", "train_dataset is of type str; expected a datasets.Dataset or a list of dicts"),
        (None, "train_dataset is of type NoneType; expected a datasets.Dataset"),
        (iter([{"prompt": "a"}]), r"train_dataset is of type list_iterator; expected .*list\(streamed.take"),
        (
            DatasetDict(train=Dataset.from_list([{"prompt": "a"}])),
            r"train_dataset is a dict of datasets \(train\); give one of them",
        ),
    ],
)
def test_bad_data_is_refused_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        TRLTask(letters, data, holdout=0)
    assert "\n" not in str(caught.value)


def needs_solution(completions: list[Any], solution: list[str], **kwargs: Any) -> list[float]:
    return [1.0]


def takes_little(completions: list[Any]) -> list[float]:
    return [1.0]


@pytest.mark.parametrize(
    ("functions", "settings", "message"),
    [
        ([], {}, "there are no reward functions"),
        (
            [needs_solution],
            {},
            "'needs_solution' cannot be called: missing a required argument: 'solution'; it is given",
        ),
        (
            [takes_little],
            {},
            r"'takes_little' cannot be called: got an unexpected keyword argument .* take the rest as \*\*",
        ),
        ([3], {}, "reward function 3 is of type int; expected a function"),
        ([Tokens], {}, "is of type type; expected a function"),
        ([letters], {"reward_weights": [1, 2]}, r"weights=\[1, 2\]: 2 numbers for 1 reward functions; give one each"),
        ([letters, wanted], {"high": [1, 2, 3]}, r"high=\[1, 2, 3\]: 3 numbers for 2 reward functions"),
        ([letters], {"high": float("inf")}, r"high=\[inf\]: expected finite numbers"),
        ([letters], {"low": "a"}, r"low=\['a'\]: expected finite numbers"),
        ([letters], {"low": 1}, "'letters' has low=1 and high=1; set them to the least and the most"),
        ([letters], {"reward_weights": [0]}, "every reward function has the weight 0"),
        ([letters], {"holdout": 0.5}, "holdout=0.5, .* expected a share from 0 to less than 0.5"),
        ([letters], {"outside": "cut"}, "outside='cut'; expected .* 'refuse' or 'clip'"),
        ([letters], {"reward_processing_classes": [1, 2]}, "2 reward_processing_classes for 1 reward functions"),
        (["no-such/model"], {}, "reward model 'no-such/model' may give any number; set low and high"),
        ([torch.nn.Linear(1, 1)], {"low": 0}, "reward model 'Linear' may give any number"),
        (["no-such/model"], {"low": 0, "high": 1}, "reward model 'no-such/model' cannot be loaded"),
        ([torch.nn.Linear(1, 1)], {"low": 0, "high": 1}, "reward model 'Linear' cannot be loaded .*config"),
    ],
)
def test_functions_and_settings_that_cannot_work_are_refused_at_once(
    functions: list[Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(FastSlowError, match=message) as caught:
        TRLTask(functions, [{"prompt": "2?", "word": "a"}], **{"holdout": 0, **settings})
    assert "\n" not in str(caught.value)


async def breaks_later(**kwargs: Any) -> list[float]:
    raise OSError("no network")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda **_: {}["key"], "reward function '<lambda>' raised KeyError: 'key'"),
        (breaks_later, "reward function 'breaks_later' raised OSError: no network"),
        (lambda **_: [1.0, 1.0], r"'<lambda>' returned \[1.0, 1.0\] for one completion; expected a list of one number"),
        (lambda **_: 1.0, "returned 1.0 for one completion"),
        (lambda **_: ["1"], r"returned \['1'\] for one completion"),
        (lambda **_: [[1.0, 0.0]], r"returned \[\[1.0, 0.0\]\] for one completion"),
    ],
)
def test_a_function_that_fails_says_how(function: Any, message: str) -> None:
    with pytest.raises(GraderError, match=message) as caught:
        grade(function)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (lambda **_: 1 / 0, "the feedback of reward function 'constant' raised ZeroDivisionError"),
        (lambda prompt: "x", "the feedback of reward function 'constant' raised TypeError"),
        (lambda **_: None, "the feedback of reward function 'constant' returned None; expected a text"),
    ],
)
def test_words_that_fail_say_how(words: Any, message: str) -> None:
    function = constant(0)
    function.feedback = words  # type: ignore[attr-defined]
    with pytest.raises(GraderError, match=message):
        grade(function)


# Whole runs --------------------------------------------------------------------------------------------------------------

REWARDS = """
import asyncio

calls = []

def accuracy(completions, answer, **kwargs):
    '''Say the word that is asked for.'''
    calls.append("accuracy")
    return [2.0 * (right in text[0]["content"]) for text, right in zip(completions, answer)]

async def tokens(completion_ids, completions, **kwargs):
    await asyncio.sleep(0)
    assert calls[-1] == "accuracy"  # the file is one module, however many functions are taken from it
    (ids,), (text,) = completion_ids, completions
    assert 1 <= len(ids) <= 4 and len(text[0]["content"].split()) <= len(ids)
    return [len(ids)]
"""


def recipe(model: Path, task: Any) -> dict[str, Any]:
    return {
        "method": "gepa",
        "model": {"name": str(model), "device": "cpu"},
        "task": task,
        "slow": {"steps": 1, "problems": 2, "group": 2, "microbatch": 4, "kl": 0.0},
        "fast": {"population": 2, "cycle": 1, "anchors": 4, "budget": 8, "max_tokens": 40},
        "sampling": {"max_tokens": 4},
        "evaluation": {"problems": 2, "k": 1},
    }


def write_recipe(folder: Path, model: Path, **task: Any) -> Recipe:
    folder.mkdir()
    (folder / "my_rewards.py").write_text(REWARDS)
    system = {"role": "system", "content": "answer the word"}
    words = [*"abcdef", *WORDS]
    data = [{"prompt": [system, {"role": "user", "content": f"say {word}"}], "answer": word} for word in words]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    section = {"name": "trl", "path": "data.jsonl", "rewards": ["my_rewards:accuracy", "my_rewards:tokens"], **task}
    (folder / "recipe.yaml").write_text(json.dumps(recipe(model, section)))
    return load_recipe(folder / "recipe.yaml")


def test_a_recipe_trains_with_the_functions_beside_it(tmp_path: Path, tiny_folder: Path) -> None:
    chosen = write_recipe(tmp_path / "script", tiny_folder, weights=[1, 0.5], high=[2, 4])
    folder = fastslow.train(chosen, tmp_path / "run")
    run = RunFolder.open(folder)
    assert run.read_json("run.json")["status"] == "finished"
    (cycle,) = run.cycles()
    texts = [text for context in cycle["contexts"] for text in context["texts"].values()]
    assert "answer the word" in texts
    assert any("Say the word that is asked for." in text for text in texts)
    spent = run.read_json("ledger.json")
    assert sum(entry["rollouts"] for entry in spent.values()) > 8
    faults = {fault for purpose, entry in spent.items() if purpose != "reflection" for fault in entry["faults"]}
    assert faults <= {"truncated"}  # a random model knows no end


@pytest.mark.parametrize(
    ("method", "every", "calls"), [("gepa", 1, 1), ("gepa", 0, 6), ("rl", 0, 3)], ids=["evaluation", "fast", "slow"]
)
def test_a_run_stops_at_a_reward_outside_its_bounds(
    method: str, every: int, calls: int, tmp_path: Path, tiny_folder: Path
) -> None:
    """Else the best answers would count 0."""
    given: list[float] = []

    def generous(completions: list[Any], **kwargs: Any) -> list[float]:
        given.append(3.0 if len(given) == calls else 0.5)
        return given[-1:]

    other = [{"prompt": [{"role": "user", "content": f"go {letter}"}]} for letter in "abcd"]
    task = TRLTask(generous, rows("chat"), other, holdout=0)
    settings = {**recipe(tiny_folder, "given"), "method": method, "evaluation": {"every": every, "problems": 2, "k": 1}}
    with pytest.raises(RecipeError, match=r"'generous' gave 3 for an answer, .* such as high=\[3\]"):
        fastslow.train(build_recipe(settings), tmp_path / "run", task=task)
    assert given[-1] == 3  # no answer was graded after it
    assert RunFolder.open(tmp_path / "run").read_json("run.json")["status"] == "failed"


@pytest.mark.parametrize(
    ("answer", "accuracy", "form"),
    [
        (r"<think>half of 8</think> \boxed{4}", 1, 1),
        (r"\boxed{4}", 1, 0),
        (r"<think>half of 8</think> \boxed{5}", 0, 1),
    ],
)
def test_trls_own_functions_serve(answer: str, accuracy: float, form: float, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"prompt": [{"role": "user", "content": "8 / 2?"}], "solution": "$4$"}))
    rewards = ["trl.rewards:accuracy_reward", "trl.rewards:think_format_reward"]
    task = build_task(
        build_recipe({"model": "nano", "task": {"name": "trl", "path": str(data), "rewards": rewards, "holdout": 0}})
    )
    feedback = task.grade(task.examples("train")[0], answer)  # type: ignore[attr-defined]
    assert given_by(feedback) == {"accuracy_reward": accuracy, "think_format_reward": form}
    assert feedback.score == (accuracy + form) / 2
    assert ("matches the ground truth" in feedback.text) == (accuracy < 1)


def test_a_recipe_may_name_one_function_and_one_bound(tmp_path: Path, tiny_folder: Path) -> None:
    task = build_task(
        write_recipe(tmp_path / "script", tiny_folder, rewards="my_rewards:accuracy", high=2, low=0, holdout=0.2)
    )
    assert isinstance(task, TRLRecipeTask)
    assert isinstance(task, fastslow.TRLTask)
    assert [len(task.examples(split)) for split in SPLITS] == [6, 2, 2]
    assert task.seed_text == "answer the word"
    example = task.examples("test")[0]
    assert [task.grade(example, text).score for text in ("", f"go {example.data['answer']}")] == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rewards": None}, "there are no reward functions"),
        ({"rewards": ["my_rewards:precision"]}, "my_rewards.py has no 'precision'"),
        ({"rewards": ["my_rewards:calls"]}, r"reward function \[.*\] is of type list; expected a function"),
        (
            {"rewards": ["my_rewards"], "low": 0, "high": 1},
            "'my_rewards' cannot be loaded .* in a recipe MODULE:FUNCTION",
        ),
        ({"high": "two"}, "task 'trl': high.0='two': input should be a valid number"),
        ({"reward": "my_rewards:accuracy"}, "task 'trl' has no option 'reward'; did you mean 'rewards'"),
        ({"path": "recipe.json"}, "there is no data file"),
    ],
)
def test_mistakes_in_a_recipe_are_told_in_one_line(
    options: dict[str, Any], message: str, tmp_path: Path, tiny_folder: Path
) -> None:
    with pytest.raises(FastSlowError, match=message) as caught:
        build_task(write_recipe(tmp_path / "script", tiny_folder, **options))
    assert "\n" not in str(caught.value)


def test_rows_without_a_prompt_are_refused_by_file(tmp_path: Path, tiny_folder: Path) -> None:
    chosen = write_recipe(tmp_path / "script", tiny_folder)
    (tmp_path / "script" / "data.jsonl").write_text('{"question": "?"}\n')
    with pytest.raises(TaskError, match=r"data.jsonl' row 1 has no column 'prompt'; it has question"):
        build_task(chosen)


def test_the_task_can_be_looked_at(tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    write_recipe(tmp_path / "script", tiny_folder)
    folder = tmp_path / "script"
    options = [f"path={folder / 'data.jsonl'}", f"rewards=[{folder / 'my_rewards.py'}:accuracy]", "high=2"]
    show_task(describe_task("trl", options, 1), Console(width=200))
    printed = capsys.readouterr().out
    assert "accuracy gave 0 (best 2)" in printed
    assert "answer the word" in printed
