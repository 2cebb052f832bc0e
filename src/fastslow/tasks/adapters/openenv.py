"""OpenEnv's environments: a server that is reset and stepped over one connection a rollout."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http.client import HTTPException
from typing import Any, Literal
from urllib.request import urlopen

from pydantic import Field

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.base.world import derive_seed, in_time
from fastslow.gateway.session import Session
from fastslow.sandbox.process import queued
from fastslow.tasks.adapters.agent_rollout import AgentLimits, AgentRollouts, Clock, use_tools
from fastslow.tasks.base import Example, Feedback, within
from fastslow.tasks.data import LazyExamples, Split

LARGEST, LARGEST_SCHEMA = 100 * 2**20, 2**20
"""Bytes of a message, as OpenEnv's own client has it, and of the description of an action."""
QUICK = 30.0
"""Seconds for that description."""
CALL = "call_tool"
"""The action of an environment whose actions are calls of tools."""
FULL = "CAPACITY_REACHED"
"""The code of the error with which a server refuses a connection; many have room for one."""
PATIENCE = 60.0
"""Seconds that a server in which no rollout of ours plays is asked for room."""
ENDED = "The episode has ended."


class OpenEnvOptions(AgentLimits):
    url: str
    """The address of the environment's server, such as http://localhost:8000."""
    train: int = Field(default=1000, ge=1)
    """Training problems: each is a seed that the environment is reset with."""
    validation: int = Field(default=100, ge=0)
    """Validation problems."""
    test: int = Field(default=100, ge=0)
    """Test problems."""
    reset: dict[str, Any] = Field(default={})
    """What the environment is reset with beside the seed."""
    score: Literal["sum", "last"] = "sum"
    """The reward of an episode: the sum of those of its steps, or the last."""
    low: float = 0.0
    """The least reward of an episode."""
    high: float = 1.0
    """The most. The score is where the reward lies between them; beyond them it counts as the bound."""


class OpenEnvTask(AgentRollouts):
    """Act in an environment behind an OpenEnv server: its actions are the policy's tool, or its tools the policy's."""

    Options = OpenEnvOptions
    options: OpenEnvOptions
    seed_text = "Act in the environment until the episode ends."

    def __init__(self, options: OpenEnvOptions) -> None:
        super().__init__(options)
        if not options.low < options.high:
            raise TaskError(f"low={options.low:g} and high={options.high:g}; expected the least and the most reward")
        root = options.url.rstrip("/").replace("ws://", "http://", 1).replace("wss://", "https://", 1)
        self._address = root.replace("http", "ws", 1) + "/ws"
        try:
            from websockets.asyncio.client import connect
        except ModuleNotFoundError as error:
            raise TaskError(
                f"task 'openenv' needs the package {error.name}; install it with: pip install 'fastslow[agents]'"
            ) from None
        self._connect = partial(connect, self._address, max_size=LARGEST)
        try:
            schema = in_time(QUICK, lambda: _schema(f"{root}/schema"))
        except (OSError, HTTPException, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise TaskError(
                f"no OpenEnv server answers at {root}/schema ({one_line(error)}); start the environment's server, and give "
                "its address as url"
            ) from None
        kind = schema["properties"].get("type")
        self._has_tools = isinstance(kind, Mapping) and kind.get("const") == CALL
        self._act: dict[str, Any] = {
            "name": "act",
            "description": str(schema.get("description") or "Take a step."),
            "parameters": schema,
        }
        self._playing, self._left = 0, 0.0  # rollouts that have a connection, and when the last one ended

    def examples(self, split: Split) -> LazyExamples:
        return LazyExamples(
            getattr(self.options, split),
            lambda place: Example(f"{split}-{place}", {"seed": derive_seed(0, "openenv", split, place) % 2**31}),
        )

    async def attempt(self, example: Example, session: Session, clock: Clock) -> Any:
        return await self.timed(self._episode(example, session, clock), session, clock, self.options.seconds)

    async def _episode(
        self, example: Example, session: Session, clock: Clock
    ) -> tuple[list[tuple[int, float]], list[float]]:
        """Play it to its end: each reward with the number of answers that had been given, and their sum by answer."""
        rewards: list[tuple[int, float]] = []
        ended = False

        def shown(data: Mapping[str, Any]) -> str:
            nonlocal ended
            if isinstance(data.get("reward"), int | float):
                rewards.append((session.answered, float(data["reward"])))
            ended = bool(data.get("done"))
            return _shown(data.get("observation") or {}, self._has_tools) + (f"\n{ENDED}" if ended else "")

        async def call(name: str, given: Any) -> str:
            if ended:
                return ENDED
            if name not in {tool["name"] for tool in tools} or not isinstance(given, Mapping):
                named = ", ".join(tool["name"] for tool in tools)
                return f"error: the tools are {named}; call one of them with an object of arguments"
            action = {"type": CALL, "tool_name": name, "arguments": given} if self._has_tools else given
            said = await _exchange(connection, "step", action)
            if said.get("type") != "observation":
                return f"error: {one_line(_error(said), 1000)}"
            return shown(said["data"])

        async with self._reset({"seed": example.data["seed"], **self.options.reset}, clock) as (connection, said):
            if said.get("type") != "observation":
                raise TaskError(f"the environment cannot be reset: {one_line(_error(said))}")
            tools = await _tools_of(connection) if self._has_tools else [self._act]
            messages: list[dict[str, Any]] = [{"role": "user", "content": shown(said["data"])}]
            await use_tools(session, messages, tools, call, lambda: ended)
            with suppress(Exception):
                await asyncio.wait_for(connection.send(json.dumps({"type": "close"})), 5)
        by_turn = [0.0] * session.answered
        for turn, reward in rewards:
            if turn:
                by_turn[turn - 1] += reward
        return rewards, by_turn

    @asynccontextmanager
    async def _reset(self, data: Mapping[str, Any], clock: Clock) -> AsyncIterator[tuple[Any, Mapping[str, Any]]]:
        """A connection, and what was said to the reset. A server that has no room for another is asked again, as long as
        rollouts of this task play there."""
        since = time.monotonic()
        while True:
            async with self._connect() as connection:
                said = await _exchange(connection, "reset", data)
                full = said.get("type") == "error" and (said.get("data") or {}).get("code") == FULL
                if not full or (not self._playing and time.monotonic() - max(since, self._left) > PATIENCE):
                    self._playing += 1
                    try:
                        yield connection, said
                    finally:
                        self._playing -= 1
                        self._left = time.monotonic()
                    return
            with queued(), clock.stopped():
                await asyncio.sleep(0.1)

    async def grade(self, example: Example, returned: Any) -> Feedback:
        low, high = self.options.low, self.options.high
        rewards, by_turn = returned
        given = [reward for _, reward in rewards]
        total = (sum(given) if self.options.score == "sum" else given[-1]) if given else low
        score = within((min(max(total, low), high) - low) / (high - low))
        if score is None or not all(map(math.isfinite, given)):
            raise TaskError(f"the environment gave the reward {total}; expected a finite number")
        count = sum(1 for turn, _ in rewards if turn)  # a reset can have a reward too
        steps = f"{count} step{'s' * (count != 1)}"
        return Feedback(score, f"The environment gave {total:g} in {steps}; {high:g} is the most.", rewards=by_turn)


def _schema(address: str) -> dict[str, Any]:
    """What an action is, as the environment describes it."""
    with urlopen(address, timeout=QUICK) as answer:  # (the user's own address)
        text = answer.read(LARGEST_SCHEMA + 1)
    if len(text) > LARGEST_SCHEMA:
        raise ValueError(f"its answer has more than {LARGEST_SCHEMA:,} bytes")
    found = json.loads(text)
    schema = found.get("action") if isinstance(found, dict) else None
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict):
        raise ValueError("it does not say what an action is")
    # Every action has metadata, and no policy needs it.
    return {**schema, "properties": {name: each for name, each in properties.items() if name != "metadata"}}


async def _exchange(connection: Any, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed):  # a server without room says so unasked, and closes
        await connection.send(json.dumps({"type": kind, "data": data}))
    said: dict[str, Any] = json.loads(await connection.recv())
    return said


async def _tools_of(connection: Any) -> list[dict[str, Any]]:
    said = await _exchange(connection, "step", {"type": "list_tools"})
    if said.get("type") != "observation":
        raise TaskError(f"the environment does not list its tools: {one_line(_error(said))}")
    return [
        {"name": tool["name"], "description": tool.get("description") or "", "parameters": tool["input_schema"]}
        for tool in said["data"]["observation"]["tools"]
    ]


def _shown(observation: Mapping[str, Any], has_tools: bool) -> str:
    """An observation as text. Of a tool's result, what its caller gets: its error, or its data."""
    if has_tools and (error := observation.get("error")):
        return f"error: {one_line(str(error.get('message') or error), 1000)}"
    found: Any = {name: value for name, value in observation.items() if name != "metadata"}
    if has_tools and "result" in found:
        found = found["result"]
        found = found["data"] if isinstance(found, Mapping) and "data" in found else found
    elif has_tools and not found:
        found = observation.get("metadata") or {}  # where such environments have what they say beside results
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _error(said: Mapping[str, Any]) -> str:
    """The message of an error, and what it says of each field."""
    data = said.get("data") or {}
    fields = [each for each in data.get("errors") or () if isinstance(each, Mapping)]
    details = [f"{'.'.join(map(str, each.get('loc') or ()))}: {each.get('msg')}" for each in fields]
    return "; ".join([str(data.get("message") or data), *details])
