"""OpenEnv's environments: a server that is reset and stepped over one connection a rollout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal
from urllib.request import urlopen

from pydantic import Field

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.base.world import derive_seed
from fastslow.tasks.adapters.agent_rollout import AgentLimits, AgentRollouts, Clock, Session, use_tools
from fastslow.tasks.base import Example, Feedback, within
from fastslow.tasks.data import LazyExamples, Split

LARGEST = 100 * 2**20
"""Bytes of a message, as OpenEnv's own client has it."""
ENDED = "The episode has ended."
SEED_TEXT = "Act in the environment until the episode ends."


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
    """Act in an environment behind an OpenEnv server: its actions are the policy's tool."""

    Options = OpenEnvOptions
    options: OpenEnvOptions

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
            with urlopen(f"{root}/schema", timeout=30) as answer:  # (the user's own address)
                schema = json.load(answer)["action"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TaskError(
                f"no OpenEnv server answers at {root}/schema ({one_line(error)}); start the environment's server, and give "
                "its address as url"
            ) from None
        schema.get("properties", {}).pop("metadata", None)  # which every action has, and no policy needs
        self._tool = {
            "name": "act",
            "description": str(schema.get("description") or "Take a step."),
            "parameters": schema,
        }

    @property
    def seed_texts(self) -> Mapping[str, str]:
        return {name: SEED_TEXT if text is None else text for name, text in self.options.components.items()}

    def examples(self, split: Split) -> LazyExamples:
        return LazyExamples(
            getattr(self.options, split),
            lambda place: Example(f"{split}-{place}", {"seed": derive_seed(0, "openenv", split, place) % 2**31}),
        )

    async def attempt(self, example: Example, session: Session, clock: Clock) -> Any:
        rewards: list[tuple[int, float]] = []
        work = self._episode(example, session, rewards)
        failed = await self.timed(work, session, clock, self.options.seconds)
        if isinstance(failed, Feedback):
            return failed
        by_turn = [0.0] * session.answered
        for turn, reward in rewards:
            if turn:
                by_turn[turn - 1] += reward
        return [reward for _, reward in rewards], by_turn

    async def _episode(self, example: Example, session: Session, rewards: list[tuple[int, float]]) -> None:
        """Play it to its end, and note each reward with the number of answers that had been given."""
        ended = False
        async with self._connect() as connection:

            async def ask(kind: str, data: Mapping[str, Any]) -> str:
                nonlocal ended
                await connection.send(json.dumps({"type": kind, "data": data}))
                said = json.loads(await connection.recv())
                if said.get("type") != "observation":
                    error = _error(said.get("data") or {})
                    if kind == "reset":
                        raise TaskError(f"the environment cannot be reset: {one_line(error)}")
                    return f"error: {one_line(error, 1000)}"
                data = said["data"]
                if isinstance(data.get("reward"), int | float):
                    rewards.append((session.answered, float(data["reward"])))
                ended = bool(data.get("done"))
                shown = {name: value for name, value in (data.get("observation") or {}).items() if name != "metadata"}
                return json.dumps(shown, ensure_ascii=False) + (f"\n{ENDED}" if ended else "")

            async def call(name: str, given: Any) -> str:
                if ended:
                    return ENDED
                if name != self._tool["name"] or not isinstance(given, Mapping):
                    return "error: there is one tool, act, and it takes an action"
                return await ask("step", given)

            first = await ask("reset", {"seed": example.data["seed"], **self.options.reset})
            await use_tools(session, [{"role": "user", "content": first}], [self._tool], call, lambda: ended)
            with suppress(Exception):
                await asyncio.wait_for(connection.send(json.dumps({"type": "close"})), 5)

    async def grade(self, example: Example, returned: Any) -> Feedback:
        low, high = self.options.low, self.options.high
        given, by_turn = returned
        total = (sum(given) if self.options.score == "sum" else given[-1]) if given else low
        score = within((min(max(total, low), high) - low) / (high - low))
        if score is None:
            raise TaskError(f"the environment gave the reward {total}; expected a number")
        steps = f"{len(given)} step{'s' * (len(given) != 1)}"
        return Feedback(score, f"The environment gave {total:g} in {steps}; {high:g} is the most.", rewards=by_turn)


def _error(data: Mapping[str, Any]) -> str:
    """The message of an error, and what it says of each field."""
    fields = [each for each in data.get("errors") or () if isinstance(each, Mapping)]
    details = [f"{'.'.join(map(str, each.get('loc') or ()))}: {each.get('msg')}" for each in fields]
    return "; ".join([str(data.get("message") or data), *details])
