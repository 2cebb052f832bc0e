"""TRL's reward functions as a task: the `reward_funcs` and the dataset of a GRPO script, as they are.

Functions are called the way `GRPOTrainer` calls them, with one prompt and one completion at a time. docs/trl.md says what is
the same and what is not.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.registry import load_named
from fastslow.base.text import one_line, quoted
from fastslow.tasks.adapters.dataset import JUDGES, GraderError
from fastslow.tasks.adapters.trl_functions import (
    Numbers,
    RewardFunction,
    Withheld,
    await_rewards,
    bounded,
    call_rewards,
    make_rewards,
    read_reward,
)
from fastslow.tasks.base import Example, Feedback, Message, Options, QuestionTask, Split
from fastslow.tasks.data import ListedTask, Row, SourceOptions, complete_splits, content_id, name_examples, read_splits

PROMPT = "prompt"
_NOT_PASSED_ON = (PROMPT, "completion", "completion_ids")
_PICTURES = ("image", "images")
_NO_STATE = Withheld(
    "trainer_state is not given here: contexts are compared by their scores, so a score may not depend on how far training "
    "is; give the reward its final form"
)
_NO_TOKENS = Withheld("completion_ids are known of answers that a model wrote, and this one is only text")


def _forget(*_: Any) -> None:
    """In the place of TRL's log_extra and log_metric."""


class TRLTask(ListedTask, QuestionTask):
    """The reward functions and the dataset of a TRL GRPO script.

    `reward_funcs`, `train_dataset`, `eval_dataset`, `reward_processing_classes` and `reward_weights` are what `GRPOTrainer`
    and `GRPOConfig` take under these names; `eval_dataset` is the validation split. The others are the options of the task
    `trl` (`TRLOptions`).
    """

    def __init__(
        self,
        reward_funcs: RewardFunction | Sequence[RewardFunction],
        train_dataset: Iterable[Mapping[str, Any]],
        eval_dataset: Iterable[Mapping[str, Any]] | None = None,
        reward_weights: Sequence[float] | None = None,
        *,
        reward_processing_classes: Any = None,
        test_dataset: Iterable[Mapping[str, Any]] | None = None,
        low: Numbers = None,
        high: Numbers = None,
        outside: Literal["refuse", "clip"] = "refuse",
        seed_text: str | None = None,
        holdout: float = 0.1,
        grader_threads: bool = False,
    ) -> None:
        super().__init__(Options())
        self.grades_apart = grader_threads
        self.grades_at_once = JUDGES
        if not 0 <= holdout < 0.5 or outside not in ("refuse", "clip"):
            raise RecipeError(
                f"{holdout=}, {outside=}; expected a share from 0 to less than 0.5, and 'refuse' or 'clip'"
            )
        rows: dict[Split, list[Row]] = {"train": _rows("train_dataset", train_dataset)}
        if eval_dataset is not None:
            rows["validation"] = _rows("eval_dataset", eval_dataset)
        if test_dataset is not None:
            rows["test"] = _rows("test_dataset", test_dataset)
        rows = complete_splits(rows, holdout, self._key(), "train_dataset")
        everything = [row for split in rows.values() for row in split]
        columns = dict.fromkeys(name for row in everything for name in row)
        self._columns = [name for name in columns if name not in _NOT_PASSED_ON]
        self._clip = outside == "clip"
        self._rewards = make_rewards(
            reward_funcs, reward_weights, low, high, reward_processing_classes, self._given(everything[0], "", None)
        )
        systems = {_system(row) for row in everything}
        shared = systems.pop() if len(systems) == 1 else None
        self._lifted = seed_text is None and shared is not None  # the prompts' system message is the seed text
        self.seed_text = next(text for text in (seed_text, shared, QuestionTask.seed_text) if text is not None)
        self._examples = name_examples(rows, content_id)

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {reward.name: (reward.low, reward.high) for reward in self._rewards if reward.weight}

    def _key(self) -> Callable[[Row], str]:
        """Names rows: those of one name are held out together."""
        return _asked

    def messages(self, example: Example) -> list[Message]:
        messages = _messages(example.data[PROMPT])
        return messages[1:] if self._lifted else messages

    def grade(self, example: Example, answer: str) -> Feedback | Awaitable[Feedback]:
        row = copy.deepcopy(dict(example.data))  # a function that changes what it is given changes nothing here
        completion: Any = str(answer)
        if not isinstance(row[PROMPT], str):
            completion = [{"role": "assistant", "content": completion}]
        given = self._given(row, completion, getattr(answer, "ids", None if answer else []))
        returned = call_rewards(self._rewards, given)
        if not any(reward.is_async for reward in self._rewards):
            return self._feedback(example, row, completion, returned)

        async def graded() -> Feedback:
            later = await await_rewards(self._rewards, given)
            return self._feedback(example, row, completion, {**returned, **later})

        return graded()

    def _feedback(self, example: Example, row: Row, completion: Any, returned: Mapping[str, Any]) -> Feedback:
        """The score that the rewards amount to, and what the functions say about them."""
        read = [(reward, read_reward(reward, returned[reward.name])) for reward in self._rewards]
        values = [bounded(self._rewards, reward, value, self._clip) for reward, value in read]
        applied = [(reward, value) for reward, value in zip(self._rewards, values, strict=True) if value is not None]
        question = one_line(self.messages(example)[-1]["content"], 60)
        counted = [(reward, value) for reward, value in applied if reward.weight]
        if not counted:
            raise GraderError(
                f"no reward function gave a number for an answer to '{question}'; expected one that is neither None nor NaN"
            )
        score = sum(reward.size * reward.share(value) for reward, value in counted)
        fact = ", ".join(f"{reward.name} gave {value:g} (best {reward.best:g})" for reward, value in counted)
        columns = {name: row.get(name) for name in self._columns}
        advice = [
            reward.words(row[PROMPT], completion, columns) for reward, value in counted if reward.share(value) < 1
        ]
        text = "\n".join([f"For '{question}', {fact}.", *filter(None, dict.fromkeys(advice))])
        parts = {reward.name: value for reward, value in applied}
        return Feedback(score / sum(reward.size for reward, _ in counted), text, parts=parts)

    def _given(self, row: Mapping[str, Any], completion: Any, ids: Sequence[int] | None) -> dict[str, Any]:
        """The keywords of TRL's call, for a batch of one."""
        return {
            **{name: [row.get(name)] for name in self._columns},
            "prompts": [row[PROMPT]],
            "completions": [completion],
            "completion_ids": [_NO_TOKENS if ids is None else list(ids)],
            "trainer_state": _NO_STATE,
            "log_extra": _forget,
            "log_metric": _forget,
        }


def _several(value: Any) -> Any:
    return () if value is None else value if isinstance(value, list | tuple) else (value,)


class TRLBounds(Options):
    low: Annotated[tuple[float, ...], BeforeValidator(_several)] = ()
    """The least a reward function gives, one number for all or one each; by default 0."""
    high: Annotated[tuple[float, ...], BeforeValidator(_several)] = ()
    """The most a reward function gives, one number for all or one each; by default 1. A penalty between -1 and 0 has a `low`
    of -1 and a `high` of 0. The score is where the weighted sum of the rewards lies between its least and its most."""
    outside: Literal["refuse", "clip"] = "refuse"
    """What becomes of a reward below `low` or above `high`: the run stops and says so, or it counts as the bound."""
    seed_text: str | None = None
    """The text the context starts from. By default the system message that the prompts have, where all have the same; with
    a text given, or where they differ, theirs stay part of the problems."""

    @property
    def bounds(self) -> dict[str, Any]:
        """These options, as arguments of a `TRLTask`."""
        return {name: getattr(self, name) for name in TRLBounds.model_fields}


class TRLOptions(TRLBounds, SourceOptions):
    rewards: Annotated[tuple[str, ...], BeforeValidator(_several)]
    """`module:function` of each of TRL's reward functions, found beside the recipe or installed; without a colon, the hub id
    or folder of a reward model."""
    weights: tuple[float, ...] | None = None
    """What each reward counts, as GRPOConfig's `reward_weights`; by default 1."""
    grader_threads: bool = False
    """Call plain reward functions in threads, several at once. For those that block, such as a judge behind a server: the
    other rollouts then proceed while it waits. They must be safe in threads; async functions do not need them."""


class TRLRecipeTask(TRLTask):
    """TRL's reward functions and rows with a `prompt` column, from a file or the Hugging Face hub."""

    Options = TRLOptions
    options: TRLOptions

    def __init__(self, options: TRLOptions) -> None:
        functions = [load_named("reward", name) if ":" in name else name for name in options.rewards]
        rows = read_splits(options, lambda source, rows: _checked(f"'{source}'", rows), _asked)
        super().__init__(
            functions,
            rows["train"],
            rows.get("validation", []),
            options.weights,
            test_dataset=rows.get("test", []),
            holdout=0,
            grader_threads=options.grader_threads,
            **options.bounds,
        )
        self.options = options


def _rows(source: str, dataset: Any) -> list[Row]:
    if isinstance(dataset, Mapping):
        raise TaskError(f"{source} is a dict of datasets ({', '.join(map(str, dataset))}); give one of them")
    if not hasattr(dataset, "__len__") or isinstance(dataset, str):
        raise TaskError(
            f"{source} is of type {type(dataset).__name__}; expected a datasets.Dataset or a list of dicts "
            "(of a streamed one, take what is to be trained on: datasets.Dataset.from_list(list(streamed.take(1000))))"
        )
    rows = list(dataset)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise TaskError(
                f"{source} row {number} is of type {type(row).__name__}; expected a dict with a column '{PROMPT}'"
            )
    if not rows and source == "train_dataset":
        raise TaskError(f"{source} has no rows; expected at least one problem")
    return _checked(source, [dict(row) for row in rows])


def _checked(source: str, rows: list[Row]) -> list[Row]:
    for number, row in enumerate(rows, 1):
        where = f"{source} row {number}"
        if PROMPT not in row:
            raise TaskError(
                f"{where} has no column '{PROMPT}'; it has {', '.join(row) or 'none'}; as for TRL, name the column with "
                f"what is asked '{PROMPT}', a text or a list of chat messages"
            )
        if pictures := [name for name in _PICTURES if row.get(name)]:
            raise TaskError(
                f"{where} has pictures in column '{pictures[0]}'; only text can be played, remove the column"
            )
        if not _is_prompt(row[PROMPT]):
            raise TaskError(
                f"{where}: {PROMPT}={quoted(row[PROMPT], 100)}; expected a text, or a list of messages with role "
                "and content, text only, at least one of them not a system message"
            )
    return rows


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return True
    if not isinstance(prompt, list) or not all(isinstance(message, Mapping) for message in prompt):
        return False
    messages = [(message.get("role"), _text(message.get("content"))) for message in prompt]
    whole = all(isinstance(role, str) and text is not None for role, text in messages)
    return whole and any(role != "system" for role, _ in messages)


def _text(content: Any) -> str | None:
    """The text of a message's content, which may come as a list of blocks; nothing where it is not all text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    texts = [block["text"] for block in content if isinstance(block, Mapping) and isinstance(block.get("text"), str)]
    return "".join(texts) if len(texts) == len(content) else None


def _messages(prompt: Any) -> list[Message]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": message["role"], "content": _text(message["content"]) or ""} for message in prompt]


def _asked(row: Row) -> str:
    return content_id(_messages(row[PROMPT]))


def _system(row: Row) -> str | None:
    first = _messages(row[PROMPT])[0]
    return first["content"] if first["role"] == "system" else None
