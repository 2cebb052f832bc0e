"""Tasksets and environments of `verifiers.v1`, the library's interface from version 0.4 on.

The library's own rollout runs: set-up, limits, stop conditions, interceptors, user turns, scoring. Two of its parts are
replaced: the harness is a chat loop in this process instead of a program, and nothing listens between it and the model.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from itertools import islice
from statistics import fmean
from typing import Any

import verifiers.v1 as vf
from mcp.server.mcpserver import MCPServer
from pydantic import ValidationError
from verifiers.v1 import graph
from verifiers.v1.configs.agent import TimeoutConfig, agent_config_fields
from verifiers.v1.configs.client import DEFAULT_PRIME_INFERENCE_URL, resolve_api_key
from verifiers.v1.harnesses.utils.mcp import mcp_content_to_chat_content
from verifiers.v1.interception import Interception, Slot
from verifiers.v1.session import RolloutSession
from verifiers.v1.utils.compile import resolve_runtime_config, validate_pairing

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.adapters.foreign import lasting_loop
from fastslow.tasks.adapters.verifiers_env.environment import (
    Outcome,
    Part,
    Policy,
    Problem,
    Reward,
    content_text,
    first_paragraph,
)
from fastslow.tasks.data import content_id

# The clock would count the time in which all the other rollouts are sampled.
_UNHURRIED = TimeoutConfig(rollout=1e9)
STATE: ContextVar[Any] = ContextVar("the state of the rollout that calls a tool")


class TasksetEnvironment:
    """An environment over a taskset, with one agent: the policy."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        try:
            config = vf.resolve_env_config({**arguments, "taskset": {**arguments.get("taskset", {}), "id": name}})
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
            raise TaskError(f"its arguments are not right: {'; '.join(faults)}") from None
        _check_seats(config)
        self._env = vf.load_environment(config)
        self._tools = [Tools(toolset) for toolset in self._env.taskset.toolsets(config.taskset)]
        asyncio.run_coroutine_threadsafe(self._start(), lasting_loop()).result()

    async def _start(self) -> None:
        for tools in self._tools:
            await tools.open()
        await self._env.start()

    def problems(self, limit: int | None) -> dict[Part, list[Problem]]:
        if not self._env.taskset.bounded and limit is None:
            raise TaskError("it has no end of problems; say with the option limit how many to take")
        tasks = list(islice(self._env.taskset, limit))
        harness = _Harness(_harness_config())
        for task in tasks:
            validate_pairing(harness, type(task), resolve_runtime_config(vf.SubprocessConfig(), task))
            _check_judges(task.config)
        return {"train": [_problem(task) for task in tasks]}

    async def play(self, problem: Problem, policy: Policy, words: str) -> Outcome:
        task = problem.row
        traces: list[Any] = []
        agents = vf.Agents(self._env.config, lambda name, seat: _Agent(name, seat, policy, self._tools, traces.append))
        await self._env.setup(agents)
        await self._env.run(task, agents)
        for trace in traces:
            if not trace.ok:
                raise TaskError(f"the environment failed: {one_line(trace.last_error.message)}")
        record = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        await self._env.finalize(
            task, vf.Episode(env=vf.EnvInfo(id=self._env.config.env_id), task=record, traces=traces)
        )
        return _outcome(task, traces, words)


class _Agent(vf.Agent):
    """The policy in its seat: it plays in a folder of this machine, with tools in this process."""

    def __init__(
        self, name: str, seat: Any, policy: Policy, tools: Sequence[Tools], watch: Callable[[Any], None]
    ) -> None:
        config = _harness_config()
        fixed = {"harness": config, "model": "policy", "runtime": vf.SubprocessConfig(), "timeout": _UNHURRIED}
        wire = _Wire()
        super().__init__(seat.model_copy(update=fixed), interception=wire)
        self.harness = _Harness(config)
        self.harness.take_seat(policy, wire, tools)
        self._name, self._watch = name, watch

    async def run(self, task: Any, *, on_trace: Any = None, **others: Any) -> Any:
        return await super().run(_without_servers(task), on_trace=self._seen(task, on_trace), **{**others, "tools": {}})

    def interaction(self, task: Any, *, on_trace: Any = None, **others: Any) -> AbstractAsyncContextManager[Any]:
        seen = self._seen(task, on_trace)
        exchange: AbstractAsyncContextManager[Any] = super().interaction(
            _without_servers(task), on_trace=seen, **{**others, "tools": {}}
        )
        return exchange

    def _seen(self, task: Any, on_trace: Callable[[Any], None] | None) -> Callable[[Any], None]:
        def seen(trace: Any) -> None:
            trace.agent.name, trace.agent.trainable = self._name, self.trainable
            self.harness.tasks[trace.id] = task
            self._watch(trace)
            if on_trace is not None:
                on_trace(trace)

        return seen


class _Wire(Interception):
    """Stands where the library puts a server between program and model; the loop in this process finds its session here."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, Any] = {}

    async def start(self) -> None:
        """Nothing listens."""

    @asynccontextmanager
    async def acquire(self, session: RolloutSession) -> AsyncIterator[Slot]:
        self.sessions[session.trace.id] = session
        try:
            yield "http://policy.invalid", "", ""
        finally:
            del self.sessions[session.trace.id]


class _Harness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc,unused-ignore]
    """A chat loop: the policy answers and its tool calls are made, until an answer makes none."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    SUPPORTS_TOOL_INTERCEPTION = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    def take_seat(self, policy: Policy, wire: _Wire, shared: Sequence[Tools]) -> None:
        self.tasks: dict[str, Any] = {}
        self._policy, self._wire, self._shared = policy, wire, shared
        self._own: dict[str, list[Tools]] = {}

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any, **_: Any
    ) -> Any:
        session, tools = self._wire.sessions[trace.id], await self._tools(trace)
        system, prompt = self.resolve_prompt(data)
        messages = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or [])
        if system:
            messages.insert(0, vf.SystemMessage(content=system))
        while messages := await self._turn(session, messages, tools):
            calls = messages[-1].tool_calls
            if not calls:
                break
            for call in calls:
                messages.append(await self._use(session, call, tools))
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def cleanup(self, trace: Any, runtime: Any) -> None:
        for tools in self._own.pop(trace.id, []):
            await tools.close()

    async def _turn(self, session: Any, messages: list[Any], tools: Sequence[Tools]) -> list[Any]:
        """The conversation with one more answer, or nothing where a limit, a stop condition or an interceptor ends it."""
        trace = session.trace
        if session.stopped or await session.refused():
            return []
        offered = [tool for each in tools for tool in each.offered]
        request, rewrites, stopped = await session.rewrite_request(vf.Request(messages=messages, tools=offered or None))
        trace.request_rewrites.extend(rewrites)
        turn = graph.prepare_turn(trace, request.messages, request.tools)
        if stopped:
            turn.commit_prompt()
            trace.stop(stopped)
            return []
        shown = [tool.model_dump(include={"name", "description", "parameters"}) for tool in offered]
        text, calls = await self._policy.answer(request.messages, shown)
        made = [vf.ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in calls]
        message = vf.AssistantMessage(content=text, tool_calls=made or None)
        reason = "tool_calls" if made else "stop"
        response = vf.Response(
            id="policy", created=int(time.time()), model="policy", message=message, finish_reason=reason
        )
        response, rewrites, stopped = await session.rewrite_response(response)
        node = turn.commit(response)
        session.consume_prepared(turn.tail)
        trace.response_rewrites.extend(rewrites)
        trace.calls.append(vf.ModelCall(node=node, model="policy", finish_reason=response.finish_reason))
        stopped = stopped or await session.gate_tool_calls(node)
        if stopped:
            trace.stop(stopped)
            return []
        return [*request.messages, response.message]

    async def _use(self, session: Any, call: Any, tools: Sequence[Tools]) -> Any:
        """The result of a tool call, or what the task says instead of it."""
        arguments = json.loads(call.arguments)
        decision = await session.decide_tool(call.id, call.name, arguments)
        if decision["action"] == "deny":
            return vf.ToolMessage.model_validate(decision["message"])
        owner = next((each for each in tools if each.has(call.name)), None)
        STATE.set(session.trace.state)
        result = await owner.call(call.name, arguments) if owner else f"error: there is no tool '{call.name}'"
        return vf.ToolMessage(tool_call_id=call.id, name=call.name, content=result)

    async def _tools(self, trace: Any) -> Sequence[Tools]:
        """The taskset's tools and the task's own, which are made once for a rollout."""
        if trace.id not in self._own:
            task = self.tasks[trace.id]
            own = [Tools(toolset) for toolset in task.toolsets(task.config)]
            self._own[trace.id] = own
            for tools in own:
                await tools.open(task.data)
        return [*self._shared, *self._own[trace.id]]


class Tools:
    """The tools of one toolset, called in this process; the library would serve them from another one."""

    def __init__(self, toolset: Any) -> None:
        config = toolset.config
        if getattr(config, "url", None) or not isinstance(config.runtime, vf.SubprocessConfig):
            raise TaskError(
                f"its tools '{type(toolset).__name__}' run on another machine; expected tools that run on this one"
            )
        self.offered: list[Any] = []
        self._toolset = toolset
        with _logging_kept():
            self._server = MCPServer(toolset.server_name or type(toolset).__name__)

    async def open(self, data: Any = None) -> None:
        async def state() -> Any:
            return STATE.get()

        self._toolset._pull_state = state
        await self._toolset.setup()
        if data is not None:
            await self._toolset.setup_task(data)
        self._toolset.register(self._server)
        for tool in await self._server.list_tools():
            name = self._prefix + tool.name
            self.offered.append(vf.Tool(name=name, description=tool.description or "", parameters=tool.input_schema))

    def has(self, name: str) -> bool:
        return any(tool.name == name for tool in self.offered)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        try:
            result = await self._server.call_tool(name.removeprefix(self._prefix), arguments)
        except Exception as error:  # a tool can fail in any way, and the policy may learn from it
            return f"error: {error}"
        return mcp_content_to_chat_content(result.content)

    async def close(self) -> None:
        await self._toolset._exit_stack.aclose()

    @property
    def _prefix(self) -> str:
        name = self._toolset.server_name
        return f"{name}_" if name else ""


@contextmanager
def _logging_kept() -> Iterator[None]:
    """A tool server sets up the logging of the whole process when it is made."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _harness_config() -> Any:
    return vf.harness_config_type("null")(id="null")


def _without_servers(task: Any) -> Any:
    """The task as the library's rollout sees it, which would start a server for every toolset."""
    clone = task.with_data()
    clone.toolsets = lambda config: []
    return clone


def _check_seats(config: Any) -> None:
    """Refuse what a single chat model cannot play."""
    seats = agent_config_fields(config)
    if len(seats) > 1:
        raise TaskError(f"it has {len(seats)} agents ({', '.join(seats)}); expected one, which the policy plays")
    (seat,) = seats.values()
    harness = seat.harness.id if seat.harness else vf.default_harness_id(config.taskset.id)
    if harness not in ("bash", "null"):
        raise TaskError(
            f"its agent is the program '{harness}'; expected one that a chat model can play ('null' or none)"
        )
    for limit in ("max_input_tokens", "max_output_tokens", "max_total_tokens"):
        if getattr(seat, limit) is not None:
            raise TaskError(f"{limit} cannot be kept to; use max_turns, and sampling.max_tokens of the recipe")


def _check_judges(config: Any) -> None:
    """A judge without a key would fail on every rollout."""
    judges = [*config.judges, *(value for _, value in config if isinstance(value, vf.JudgeConfig))]
    for judge in judges:
        keyless = judge.api_key_var == vf.JudgeConfig().api_key_var and judge.base_url != DEFAULT_PRIME_INFERENCE_URL
        if resolve_api_key(judge) == "EMPTY" and not keyless:
            raise TaskError(
                f"its judge {judge.model} needs an API key; set {judge.api_key_var}, "
                "or name a server of your own as its base_url in the task's arguments"
            )


def _problem(task: Any) -> Problem:
    data = task.data
    prompt = data.prompt if isinstance(data.prompt, list) else []
    first = content_text(prompt[0].content) if prompt and prompt[0].role == "system" else None
    values = data.model_dump(mode="json")
    return Problem(
        id=content_id({name: value for name, value in values.items() if name != "idx"}),
        system=data.system_prompt if data.system_prompt is not None else first,
        question=content_text(prompt[-1].content) if prompt else data.prompt or data.name or "",
        row=task,
        values=values,
    )


def _outcome(task: Any, traces: Sequence[Any], words: str) -> Outcome:
    """What the traces earned, on average where the environment made the policy play more than once."""
    about = {hook.__name__: first_paragraph(hook) for hook in task.hooks("reward")}
    given = [trace.rewards for trace in traces if trace.rewards]
    rewards = []
    for name in dict.fromkeys(name for each in given for name in each):
        scored = [each[name] for each in given if each.get(name) is not None]
        if scored:
            rewards.append(Reward(name, fmean(each.score for each in scored), scored[0].weight, about.get(name, "")))
    last = traces[-1] if traces else None
    return Outcome(
        reward=fmean(trace.reward for trace in traces if trace.rewards) if given else 0.0,
        rewards=rewards,
        stop=last.stop_condition if last else None,
        said="\n".join(str(trace.info[words]) for trace in traces if trace.info.get(words)),
    )
