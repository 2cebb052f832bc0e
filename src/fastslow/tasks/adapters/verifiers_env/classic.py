"""Environments with `load_environment`, a dataset and a rubric: the interface of verifiers before version 0.4."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import verifiers as vf
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage, ToolCall
from verifiers.utils.message_utils import normalize_messages

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.adapters.verifiers_env.environment import (
    Call,
    Outcome,
    Part,
    Policy,
    Problem,
    Reward,
    content_text,
    first_paragraph,
)
from fastslow.tasks.data import content_id


class ClassicEnvironment:
    """The library plays the rollout and scores it; the policy is the client it calls."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        with _signals_kept():
            self._env = vf.load_environment(name, **arguments)
        if self._env.requires_group_rollouts:
            raise TaskError(
                f"verifiers environment '{name}' has reward functions that compare the rollouts of a group; "
                "here every rollout is graded by itself: use one without them"
            )
        for env in _all(self._env):
            # The clock would count the time in which all the other rollouts are sampled.
            env.timeout_seconds = None
        self._rewards = {reward.name: reward for reward in _rewards(self._env.rubric)}

    def problems(self, limit: int | None) -> dict[Part, list[Problem]]:
        datasets: dict[Part, Any] = {"train": self._env.build_dataset(), "evaluation": self._env.build_eval_dataset()}
        parts: dict[Part, list[Problem]] = {}
        for part, dataset in datasets.items():
            if dataset is not None:
                chosen = dataset.select(range(min(limit, len(dataset)))) if limit else dataset
                parts[part] = [_problem(dict(row)) for row in chosen]
        return parts if "train" in parts else {"train": parts["evaluation"]}

    async def play(self, problem: Problem, policy: Policy, words: str) -> Outcome:
        state = await self._env.run_rollout(problem.row, _PolicyClient(policy), "policy", {}, state_columns=[words])
        if state["error"]:
            raise TaskError(f"the environment failed: {one_line(state['error']['error_chain_repr'])}")
        values = state["metrics"]
        rewards = [
            Reward(name, values[name], known.weight, known.about)
            for name, known in self._rewards.items()
            if known.weight and name in values
        ]
        form = getattr(self._env.parser, "get_format_str", str)()
        return Outcome(state["reward"], rewards, state["stop_condition"], str(state[words] or ""), form)


class _PolicyClient(Client):  # type: ignore[type-arg,unused-ignore]
    """A model client that asks the policy."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)

    def setup_client(self, config: Any) -> Policy:
        """The library calls this with a configuration only: a client that is ready is not set up again."""
        raise AssertionError("the policy is a client already")

    async def to_native_tool(self, tool: Any) -> dict[str, Any]:
        return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}

    async def to_native_prompt(self, messages: Any) -> tuple[Any, dict[str, Any]]:
        return messages, {}

    async def get_native_response(
        self, prompt: Any, model: str, sampling_args: Any, tools: list[dict[str, Any]] | None = None, **_: Any
    ) -> tuple[str, list[Call]]:
        return await self.client.answer(prompt, tools or [])

    async def raise_from_native_response(self, response: Any) -> None:
        """An answer of the policy is always one."""

    async def from_native_response(self, response: tuple[str, list[Call]]) -> Any:
        text, calls = response
        message = ResponseMessage(
            content=text,
            tool_calls=[ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls] or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return Response(id="policy", created=int(time.time()), model="policy", message=message)

    async def close(self) -> None:
        """There is nothing to close."""


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Environments take the signals of the process over when they are made; a run has handlers of its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _all(env: Any) -> Iterator[Any]:
    """An environment, and those it is a group of."""
    yield env
    for member in getattr(env, "envs", ()):
        yield from _all(member)


def _rewards(rubric: Any) -> Iterator[Reward]:
    """The reward functions of a rubric, of the rubrics it is made of, or of the environments it stands for."""
    inner = [*getattr(rubric, "rubrics", ()), *(env.rubric for env in getattr(rubric, "env_map", {}).values())]
    for member in inner:
        yield from _rewards(member)
    for function, weight in zip(rubric.funcs, rubric.weights, strict=True):
        name = getattr(function, "__name__", repr(function))
        yield Reward(name, 0.0, weight, first_paragraph(function))


def _problem(row: dict[str, Any]) -> Problem:
    messages = normalize_messages(row["prompt"])
    if any(message.role == "text" for message in messages):
        raise TaskError("the environment's prompts are bare text to be continued; expected chat messages")
    first = messages[0] if messages and messages[0].role == "system" else None
    return Problem(
        id=content_id({name: value for name, value in row.items() if name != "example_id"}),
        system=content_text(first.content) if first else None,
        question=content_text(messages[-1].content),
        row=row,
        values=row,
    )
