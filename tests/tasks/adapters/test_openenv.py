"""OpenEnv's protocol, spoken by a server of its own: one connection an episode, `reset`, `step` and `close` as messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from http import HTTPStatus
from typing import Any

import pytest
from gateway_helpers import TOOLS, make_tokenizer
from rollout_helpers import ScriptedEngine

from fastslow.base.errors import TaskError
from fastslow.models.chat import ChatFormat
from fastslow.recipe import build_recipe
from fastslow.records import Context, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.adapters.openenv import OpenEnvTask
from fastslow.tasks.registry import build_task

pytest.importorskip("websockets")
SCHEMA = {"action": {"type": "object", "properties": {"guess": {"type": "integer"}}, "required": ["guess"]}}


async def serve(connection: Any) -> None:
    """Guess a number that follows from the seed; three guesses."""
    guesses, secret = 0, 0

    async def observe(text: str, reward: float | None = None, done: bool = False) -> None:
        data = {"observation": {"text": text, "metadata": {"hidden": secret}}, "reward": reward, "done": done}
        await connection.send(json.dumps({"type": "observation", "data": data}))

    async for text in connection:
        message = json.loads(text)
        if message["type"] == "close":
            return
        if message["type"] == "reset":
            if message["data"].get("level") == "broken":
                await connection.send(json.dumps({"type": "error", "data": {"message": "no such level"}}))
                continue
            secret = message["data"]["seed"] % 2
            await observe("Guess.")
        elif not isinstance(message["data"].get("guess"), int):
            errors = [{"loc": ["guess"], "msg": "not a number"}]
            await connection.send(json.dumps({"type": "error", "data": {"message": "Invalid", "errors": errors}}))
        else:
            guesses += 1
            right = message["data"]["guess"] == secret
            await observe("right" if right else "wrong", 1.0 if right else -0.25, right or guesses == 3)


TOOLS_SCHEMA = {"action": {"properties": {"type": {"const": "call_tool"}, "tool_name": {}, "arguments": {}}}}
GUESS = {"name": "guess", "description": "Guess.", "input_schema": SCHEMA["action"]}


async def serve_tools(connection: Any) -> None:
    """Two guesses by a tool. What the reset shows is in its metadata, as OpenEnv's environments of tools have it."""

    async def observe(observation: dict[str, Any], reward: float | None = None, done: bool = False) -> None:
        data = {"observation": observation, "reward": reward, "done": done}
        await connection.send(json.dumps({"type": "observation", "data": data}))

    guesses = 0
    async for text in connection:
        message = json.loads(text)
        given = message["data"] if message["type"] == "step" else {}
        if message["type"] == "reset":
            await observe({"metadata": {"question": "Guess what?"}}, 0.0)
        elif given.get("type") == "list_tools":
            await observe({"metadata": {}, "tools": [GUESS]})
        elif given.get("type") == "call_tool":
            guesses += 1
            right = given == {"type": "call_tool", "tool_name": "guess", "arguments": {"guess": 1}}
            error = None if right else {"error_type": "execution_error", "message": "not\nthat"}
            result = {"content": [{"type": "text"}], "data": {"found": 1}} if right else None
            await observe({"tool_name": "guess", "result": result, "error": error}, float(right), guesses == 2)


PLAYING: list[Any] = []


async def serve_one(connection: Any) -> None:
    """Room for one connection: the others are told so unasked, and closed."""
    if PLAYING:
        data = {"message": "Server at capacity", "code": "CAPACITY_REACHED"}
        await connection.send(json.dumps({"type": "error", "data": data}))
        return
    PLAYING.append(connection)
    try:
        await serve(connection)
    finally:
        PLAYING.remove(connection)


def started(handler: Any, schema: Any) -> str:
    from websockets.asyncio.server import serve as listen

    def process(connection: Any, request: Any) -> Any:
        if request.path == "/schema":
            return connection.respond(HTTPStatus.OK, json.dumps(schema))
        return None

    ready, found, loop = threading.Event(), [], asyncio.new_event_loop()

    async def main() -> None:
        async with listen(handler, "127.0.0.1", 0, process_request=process) as server:
            found.append(server.sockets[0].getsockname()[1])
            ready.set()
            await asyncio.get_running_loop().create_future()

    threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True).start()
    assert ready.wait(30)
    return f"http://127.0.0.1:{found[0]}"


@pytest.fixture(scope="module")
def url() -> str:
    return started(serve, SCHEMA)


def make(url: str, **options: Any) -> OpenEnvTask:
    settings = {"url": url, "train": 4, "low": -0.5, "high": 1.0, **options}
    task = build_task(build_recipe({"model": "none", "task": {"name": "openenv", **settings}}))
    assert isinstance(task, OpenEnvTask)
    return task


def act(name: str = "act", **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def play(task: OpenEnvTask, *said: str) -> tuple[list[Rollout], list[str]]:
    def rule(prompt: str) -> str:
        return [*said, "done"][min(prompt.count("<|im_start|>assistant") - 1, len(said))]

    engine = ScriptedEngine(make_tokenizer(TOOLS), rule=rule)
    pairs = [(example, Context(dict(task.seed_texts))) for example in task.examples("train")]
    player = Player(task, engine, ChatFormat(engine.tokenizer))
    rollouts = player.play(pairs, Sampling(1.0, 1.0, 300), policy_step=0, seed=0, strict=False)[0]
    return rollouts, [engine.tokenizer.decode(list(turn.prompt_ids)) for each in rollouts for turn in each.turns]


def test_an_episode_is_reset_with_its_seed_and_stepped_to_its_end(url: str) -> None:
    task = make(url)
    rollouts, prompts = play(task, act(guess=0), act(guess=1), act(guess=1))
    assert len({example.data["seed"] % 2 for example in task.examples("train")}) == 2
    for rollout in rollouts:
        odd = int(rollout.example.data["seed"]) % 2
        assert len(rollout.turns) == 1 + odd  # it ends when the guess is right
        assert rollout.score == pytest.approx(((0.75 if odd else 1.0) + 0.5) / 1.5)
        assert dict(rollout.faults) == {}
        assert list(rollout.feedback.rewards) == ([-0.25, 1.0] if odd else [1.0])  # by turn, for slow.credit
    assert "Guess." in prompts[0]
    assert "hidden" not in "".join(prompts)
    assert '"guess"' in prompts[0]  # the action's schema is the tool's
    last = make(url, score="last")
    assert {rollout.score for rollout in play(last, act(guess=0), act(guess=1))[0]} == {1.0}


def test_errors_of_the_environment_and_of_the_policy(url: str) -> None:
    rollouts, prompts = play(make(url), act(guess="x"), "I give up")
    assert all("error: Invalid; guess: not a number" in prompt for prompt in prompts[1::2])
    assert {rollout.score for rollout in rollouts} == {0.0}  # no reward counts as the least
    for rollout in play(make(url, reset={"level": "broken"}))[0]:
        assert dict(rollout.faults) == {"grader": 1}
        assert "cannot be reset: no such level" in rollout.error
    with pytest.raises(TaskError, match=r"no OpenEnv server answers at http://127.0.0.1:1/schema"):
        make("http://127.0.0.1:1")
    with pytest.raises(TaskError, match="low=1 and high=0"):
        make(url, low=1, high=0)


def test_the_tools_of_an_environment_are_those_of_the_policy() -> None:
    task = make(started(serve_tools, TOOLS_SCHEMA), train=1, low=0)
    (rollout,), prompts = play(task, act("act", guess=1), act("guess", guess=0), act("guess", guess=1))
    assert '"name": "guess"' in prompts[0]
    assert "tool_name" not in prompts[0]
    assert '{"question": "Guess what?"}' in prompts[0]  # there is nothing else that the reset shows
    assert "error: the tools are guess;" in prompts[1]
    assert "<tool_response>\nerror: not that\n" in prompts[2]
    assert rollout.score == 1.0
    assert list(rollout.feedback.rewards) == [0.0, 0.0, 1.0]
    assert "gave 1 in 2 steps" in rollout.feedback.text
    (_,), prompts = play(task, act("guess", guess=1))
    assert '<tool_response>\n{"found": 1}\n' in prompts[1]


def test_rollouts_wait_for_a_server_that_has_room_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    url = started(serve_one, SCHEMA)
    rollouts, _ = play(make(url, train=6), act(guess=0), act(guess=1))
    assert [dict(rollout.faults) for rollout in rollouts] == [{}] * 6
    assert min(rollout.score for rollout in rollouts) > 0.8
    monkeypatch.setattr("fastslow.tasks.adapters.openenv.PATIENCE", 0.3)
    monkeypatch.setattr("test_openenv.PLAYING", [object()])  # somebody else's
    (rollout,), _ = play(make(url, train=1))
    assert "cannot be reset: Server at capacity" in rollout.error


WRONG: list[Any] = [{}, [], None, {"action": 5}, {"action": {"properties": None}}, {"action": {"properties": []}}]


@pytest.mark.parametrize("schema", WRONG, ids=json.dumps)
def test_a_server_that_does_not_describe_its_actions_is_refused(schema: Any) -> None:
    with pytest.raises(TaskError, match="it does not say what an action is"):
        make(started(serve, schema))


def test_a_type_that_is_no_constant_is_a_property_like_others() -> None:
    assert not make(started(serve, {"action": {"properties": {"type": "x"}}}))._has_tools


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([b"hello"], "hello"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], "Expecting property name"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "IncompleteRead"),
        ([b"HTTP/1.1 200 OK\r\n\r\n", *[b" " * 2**20] * 40], "more than 1,048,576 bytes"),
        ([b"HTTP/1.1 200 OK\r\n\r\n", b"[" * 10**5], "recursion"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"x"] * 100], "more than 2 seconds"),
    ],
    ids=["no http", "half", "no chunk", "endless", "deep", "drip"],
)
def test_a_server_of_something_else_is_refused_in_time(
    sent: list[bytes], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastslow.tasks.adapters.openenv.QUICK", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(2**16)
                for part in sent:
                    connection.sendall(part)
                    time.sleep(0.1 if len(part) == 1 else 0)

        threading.Thread(target=answer, daemon=True).start()
        started = time.monotonic()
        with pytest.raises(TaskError, match=said):
            make(f"http://127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - started < 8
