"""TRL's environments as a task: the `environment_factory` of a GRPO script, whose methods are the policy's tools."""

from __future__ import annotations

import copy
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.registry import load_named
from fastslow.base.text import one_line
from fastslow.base.world import in_thread
from fastslow.gateway.session import Session
from fastslow.records import Example
from fastslow.tasks.adapters.agent_rollout import AgentLimits, AgentRollouts, Clock, use_tools
from fastslow.tasks.adapters.dataset import blaming
from fastslow.tasks.adapters.trl_functions import RewardFunction, await_rewards, call_rewards
from fastslow.tasks.adapters.trl_rewards import PROMPT, TRLOptions, TRLTask
from fastslow.tasks.base import Feedback
from fastslow.tasks.data import Row, content_id, read_splits

NOT_TOOLS = ("reset", "get_reward")


class TRLEnvironmentTask(AgentRollouts, TRLTask):
    """The `environment_factory`, the dataset and the reward functions of a TRL GRPO script.

    Every rollout has an environment of its own. `reset` is called with the columns of the row, and the text that it returns
    is added to the last message. Where rows are repeated, as in TRL's examples, each copy is an episode that the environment
    draws, for training or held out. The public methods are tools. `get_reward` is a reward function more, with the weight 1;
    the others get the environment as `environments`. The rest is as in `TRLTask`.
    """

    options: AgentLimits

    def __init__(
        self,
        environment_factory: Callable[[], Any],
        train_dataset: Iterable[Mapping[str, Any]],
        reward_funcs: RewardFunction | Sequence[RewardFunction] = (),
        eval_dataset: Iterable[Mapping[str, Any]] | None = None,
        *,
        limits: AgentLimits | None = None,
        **settings: Any,
    ) -> None:
        self._factory = environment_factory
        if isinstance(environment_factory, Mapping):
            raise TaskError(
                "environment_factory is a dictionary of factories, which is not supported here; give one of them"
            )
        environment = self._made()
        if not callable(getattr(environment, "reset", None)):
            raise TaskError(f"the environment {type(environment).__name__} has no method reset; define it, as for TRL")
        self._tools = tool_specs(environment)
        functions: list[RewardFunction]
        functions = [reward_funcs] if isinstance(reward_funcs, str) or callable(reward_funcs) else list(reward_funcs)
        if hasattr(environment, "get_reward"):
            functions.append(_owned(environment))
        rows = _with_prompts(train_dataset)
        counted = Counter(map(content_id, rows)) if isinstance(rows, list) else {}
        self._repeated = {name for name, count in counted.items() if count > 1}
        super().__init__(functions, rows, _with_prompts(eval_dataset), **settings)
        self.options = limits or AgentLimits()

    def _key(self) -> Callable[[Row], str]:
        """The environment gets the whole row, and draws an episode of its own for each copy of one."""
        copies = Counter[str]()

        def name(row: Row) -> str:
            base = content_id(row)
            copies[base] += 1
            return f"{base}-{copies[base]}"

        return name

    def shown(self, example: Example) -> object:
        if content_id(example.data) in self._repeated:
            return None
        return json.dumps(dict(example.data), sort_keys=True, default=str)

    def _made(self) -> Any:
        with blaming("the environment_factory"):
            return self._factory()

    def _given(self, row: Mapping[str, Any], completion: Any, ids: Sequence[int] | None) -> dict[str, Any]:
        return {**super()._given(row, completion, ids), "environments": [None]}

    async def attempt(self, example: Example, session: Session, clock: Clock) -> Any:
        row = copy.deepcopy(dict(example.data))
        environment = await in_thread(self._made)
        observation = await _settled(environment.reset, **row)
        messages: list[dict[str, Any]] = [dict(each) for each in self.messages(example)]
        messages[-1]["content"] += _text(observation)
        asked = len(messages)

        async def call(name: str, given: Any) -> str:
            if name not in {tool["name"] for tool in self._tools}:
                return str({"error": f"there is no tool '{name}'"})
            try:
                return _text(await _settled(getattr(environment, name), **(given if isinstance(given, dict) else {})))
            except Exception as error:  # a tool's, which the policy may learn from
                return str({"error": str(error)})

        failed = await self.timed(use_tools(session, messages, self._tools, call), session, clock, self.options.seconds)
        if isinstance(failed, Feedback):
            return failed
        return row, environment, messages[asked:]

    async def grade(self, example: Example, returned: Any) -> Feedback:
        row, environment, completion = returned
        given = {**self._given(row, completion, None), "environments": [environment]}
        found = await in_thread(call_rewards, self._rewards, given)
        return self._feedback(example, row, completion, {**found, **await await_rewards(self._rewards, given)})


class TRLEnvironmentOptions(AgentLimits, TRLOptions):
    environment: str
    """`module:Class`, or a function that returns one: TRL's `environment_factory`."""
    rewards: tuple[str, ...] = ()
    """`module:function` of each of TRL's reward functions, beside the environment's `get_reward`. They get the environment
    as `environments`."""


class TRLEnvironmentRecipeTask(TRLEnvironmentTask):
    """TRL's environments, whose methods are tools, and rows from a file or the Hugging Face hub."""

    Options = TRLEnvironmentOptions
    options: TRLEnvironmentOptions

    def __init__(self, options: TRLEnvironmentOptions) -> None:
        given = options.model_copy(update={"holdout": 0.0})  # rows are held out below
        rows = read_splits(given, lambda source, rows: list(_with_prompts(rows) or ()), content_id)
        super().__init__(
            load_named("environment", options.environment),
            rows["train"],
            [load_named("reward", name) for name in options.rewards],
            rows.get("validation"),
            test_dataset=rows.get("test"),
            reward_weights=options.weights,
            holdout=options.holdout,
            limits=options,
            **options.bounds,
        )


def tool_specs(environment: Any) -> list[dict[str, Any]]:
    """The public methods of an environment, described by their types and docstrings."""
    from transformers.utils import get_json_schema

    found = []
    for name, _ in inspect.getmembers(type(environment), predicate=inspect.isfunction):
        if name.startswith("_") or name in NOT_TOOLS:
            continue
        try:
            described = get_json_schema(getattr(environment, name))["function"]
        except Exception as error:  # transformers has its own kinds
            raise TaskError(
                f"the tool '{name}' of environment {type(environment).__name__} cannot be described: {one_line(error)}; "
                "give it type hints, and a docstring with its Args"
            ) from None
        found.append({"name": name, "description": described["description"], "parameters": described["parameters"]})
    return found


def _owned(environment: Any) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(environment.get_reward):

        async def owned(environments: Sequence[Any], **_: Any) -> list[Any]:
            return [await each.get_reward() for each in environments]
    else:

        def owned(environments: Sequence[Any], **_: Any) -> list[Any]:  # type: ignore[misc]
            return [each.get_reward() for each in environments]

    owned.__name__ = type(environment).__name__
    owned.__doc__ = inspect.getdoc(environment.get_reward)
    return owned


def _with_prompts(rows: Any) -> Any:
    """Rows of an environment that says itself what is asked have no prompt."""
    if rows is None or isinstance(rows, str | Mapping) or not hasattr(rows, "__len__"):
        return rows
    return [{PROMPT: [{"role": "user", "content": ""}], **row} if isinstance(row, Mapping) else row for row in rows]


async def _settled(function: Callable[..., Any], **given: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**given)
    return await in_thread(lambda: function(**given))


def _text(result: Any) -> str:
    if isinstance(result, list) and all(isinstance(part, Mapping) and "text" in part for part in result):
        return "".join(str(part["text"]) for part in result)
    return "" if result is None else str(result)
