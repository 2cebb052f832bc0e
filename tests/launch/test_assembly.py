"""From a recipe to the parts of a run."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny

from fastslow.base.errors import ModelError, RecipeError, TaskError
from fastslow.base.world import World
from fastslow.launch.assembly import CHECKED_EXAMPLES, assemble, check_lengths, choose_seed_texts, find_world
from fastslow.models.chat import ChatFormat
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Context
from fastslow.tasks.adapters.dataset import DatasetOptions, DatasetTask
from fastslow.tasks.base import SYSTEM, Ask, Example, Feedback, Options, Split, Task


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    words = [*"abcdef", "red", "green", "blue", "stop"]
    lines = [json.dumps({"question": f"say {word}", "answer": word}) for word in words]
    path.write_text("\n".join(lines))
    return path


def recipe(name: str | Path, rows: Path, **changes: Any) -> Recipe:
    return build_recipe(
        {
            "method": "rl",
            "model": {"name": str(name), "device": "cpu", **changes.pop("model", {})},
            "task": {"name": "dataset", "path": str(rows), "seed_text": "answer the word", **changes.pop("task", {})},
            "slow": {"steps": 2, "problems": 1, "group": 2, "microbatch": 2, "kl": 0.0},
            "sampling": {"max_tokens": 3},
            **changes,
        }
    )


class TwoTexts(Task):
    """A task of two components whose first question has as many words as the problem says, or is not asked at all."""

    def __init__(self, train: Sequence[int], validation: Sequence[int] = ()) -> None:
        super().__init__(Options())
        self.lengths = {"train": train, "validation": validation, "test": ()}

    @property
    def seed_texts(self) -> Mapping[str, str]:
        return {"plan": "a b", "do": "c"}

    def examples(self, split: Split) -> Sequence[Example]:
        return [Example(f"{split}-{index}", {"words": n}) for index, n in enumerate(self.lengths[split])]

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        if example.data["words"]:
            yield Ask("plan", [{"role": "user", "content": "go " * example.data["words"]}])
        return Feedback(1.0)


# The whole ---------------------------------------------------------------------------------------------------------------


def test_the_parts_belong_together_and_play(rows: Path, tmp_path: Path) -> None:
    setting = recipe("nano", rows)
    world = find_world(setting)
    assert (world.rank, world.size) == (0, 1)
    parts = assemble(setting, tmp_path / "run", world)
    assert parts.seed_texts == {SYSTEM: "answer the word"}
    assert parts.player.engine is parts.engine
    assert parts.player.task is parts.task
    assert parts.engine.max_length == 1024
    problems = parts.task.examples("train")
    rollouts, _ = parts.player.play(
        [(problem, Context(parts.seed_texts)) for problem in problems],
        setting.sampling.training(),
        policy_step=0,
        seed=0,
    )
    for problem, rollout in zip(problems, rollouts, strict=True):
        (turn,) = rollout.turns
        shown = parts.engine.tokenizer.decode(turn.prompt_ids)
        assert shown == f"<system> answer the word <end> <user> {problem.data['question']} <end> <assistant>"
        assert 1 <= len(turn.completion.ids) <= 3
        assert rollout.score == float(turn.answer == problem.data["answer"])


def test_problems_that_are_trained_and_measured_on_are_refused_before_a_model_is_looked_for(
    rows: Path, tmp_path: Path
) -> None:
    setting = recipe("no-such-model", rows, task={"validation_path": str(rows), "holdout": 0})
    with pytest.raises(TaskError, match="shows the model the same as validation problem"):
        assemble(setting, tmp_path / "run", World())
    given = DatasetTask(DatasetOptions(path=str(rows), test_path=str(rows), holdout=0))
    with pytest.raises(TaskError, match="shows the model the same as test problem"):
        assemble(recipe("no-such-model", rows), tmp_path / "run", World(), task=given)


def test_template_arguments_of_the_recipe_reach_the_prompts(rows: Path, tmp_path: Path) -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = "{% if slowly %}wait {% endif %}" + tiny.TEMPLATE
    tiny.make_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    setting = recipe(tmp_path / "model", rows, sampling={"max_tokens": 3, "chat_template_kwargs": {"slowly": True}})
    chat = assemble(setting, tmp_path / "run", World()).player.chat
    assert tokenizer.decode(chat.prompt([{"role": "user", "content": "go"}], "")).startswith("wait <user>")


def test_mistakes_in_the_recipe_show_before_the_model_is_loaded(rows: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "no-model"
    with pytest.raises(TaskError, match=r"no task 'dataste'; did you mean 'dataset'\?"):
        assemble(recipe(nowhere, rows, task={"name": "dataste"}), tmp_path, World())
    with pytest.raises(RecipeError, match=r"fast\.seed_text names"):
        assemble(recipe(nowhere, rows, fast={"seed_text": {"nobody": "x"}}), tmp_path, World())
    with pytest.raises(
        RecipeError, match=r"output.report_to names notracker, which .* use an available tracker: .*tensorboard"
    ):
        assemble(recipe(nowhere, rows, output={"report_to": ["tensorboard", "notracker"]}), tmp_path, World())
    with pytest.raises(ModelError, match="no model folder"):
        assemble(recipe(nowhere, rows), tmp_path, World())


def test_problems_that_do_not_fit_stop_the_start(rows: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"sampling\.max_tokens=1020.*the model's 1024; lower sampling\.max_tokens"):
        assemble(recipe("nano", rows, sampling={"max_tokens": 1020}), tmp_path, World())


# Seed texts --------------------------------------------------------------------------------------------------------------


def test_seed_texts_are_the_tasks_unless_the_recipe_has_others() -> None:
    task = TwoTexts([1])
    assert choose_seed_texts(task, None) == {"plan": "a b", "do": "c"}
    assert choose_seed_texts(task, "same") == {"plan": "same", "do": "same"}
    assert choose_seed_texts(task, "") == {"plan": "", "do": ""}
    assert choose_seed_texts(task, {"do": "d"}) == {"plan": "a b", "do": "d"}
    with pytest.raises(RecipeError) as caught:
        choose_seed_texts(task, {"do": "d", "dew": "e"})
    assert str(caught.value) == "fast.seed_text names ['dew'], but this task's components are ['do', 'plan']"


# Lengths -----------------------------------------------------------------------------------------------------------------


def needed(chat: ChatFormat, words: int, context: str = "a b") -> int:
    return len(chat.prompt([{"role": "user", "content": "go " * words}], context))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_prompt_and_the_longest_answer_must_fit_to_the_token(split: str) -> None:
    chat = ChatFormat(tiny.make_tokenizer())
    lengths = {"train": [3, 20, 5], "validation": []} if split == "train" else {"train": [3], "validation": [2, 20, 5]}
    task = TwoTexts(**lengths)
    room = needed(chat, 20) + 10
    check_lengths(task, chat, task.seed_texts, 10, room)
    check_lengths(task, chat, task.seed_texts, 10, None)  # a model that states no limit
    with pytest.raises(TaskError) as caught:
        check_lengths(task, chat, task.seed_texts, 10, room - 1)
    message = str(caught.value)
    for part in (f"'{split}-1'", f"{room - 10} tokens", "sampling.max_tokens=10", f"model's {room - 1}", "lower"):
        assert part in message


def test_the_text_counted_is_that_of_the_component_asked() -> None:
    chat = ChatFormat(tiny.make_tokenizer())
    room = needed(chat, 5) + 4
    check_lengths(TwoTexts([5]), chat, {"plan": "a b", "do": "c " * 500}, 4, room)
    with pytest.raises(TaskError):
        check_lengths(TwoTexts([5]), chat, {"plan": "a b c", "do": ""}, 4, room)


def test_problems_that_ask_nothing_always_fit() -> None:
    chat = ChatFormat(tiny.make_tokenizer())
    task = TwoTexts([0, 5, 0])
    check_lengths(task, chat, task.seed_texts, 4, needed(chat, 5) + 4)


def test_a_start_looks_at_the_first_problems_only() -> None:
    chat = ChatFormat(tiny.make_tokenizer())
    task = TwoTexts([1] * CHECKED_EXAMPLES + [100])
    check_lengths(task, chat, task.seed_texts, 4, needed(chat, 1) + 4)
