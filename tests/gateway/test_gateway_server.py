"""The address over HTTP: keys, statuses, streams, and clients that go away."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest
from gateway_helpers import TOOL, answers_of, call_text, make_session, make_tokenizer

from fastslow.base.errors import RunError
from fastslow.gateway import server
from fastslow.gateway.server import gateway
from fastslow.gateway.session import Session
from fastslow.tasks.base import Answer, Ask, PromptTooLong

TOKENIZER = make_tokenizer()
QUESTION = {"model": "policy", "messages": [{"role": "user", "content": "tea?"}]}
FUNCTION = {"type": "function", "function": TOOL}


def with_session(
    rule: Callable[[str], str] | Any, use: Callable[[httpx.AsyncClient, str, str], Awaitable[Any]], **settings: Any
) -> Session:
    """Open a session that answers by a rule, or by a sampler, for a coroutine that gets a client, its URL and its key."""
    sample = rule if asyncio.iscoroutinefunction(rule) else answers_of(TOKENIZER, rule)
    session = make_session(TOKENIZER, sample, **settings)

    async def run() -> None:
        with gateway().opened(session) as (url, key):
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=30) as client:
                await use(client, url, key)

    asyncio.run(run())
    return session


def test_wrong_keys_and_bad_requests_get_one_clear_status() -> None:
    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        chat = f"{url}/v1/chat/completions"

        async def status(**request: Any) -> tuple[int, str]:
            answer = await client.post(chat, **request)
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            return answer.status_code, answer.json()["error"]["code"]

        assert await status(json=QUESTION, headers={"authorization": "Bearer no"}) == (401, "invalid_api_key")
        assert await status(json=QUESTION, headers={"authorization": ""}) == (401, "invalid_api_key")
        with gateway().opened(make_session(TOKENIZER, None)) as (_, other):
            assert await status(json=QUESTION, headers={"authorization": f"Bearer {other}"}) == (401, "invalid_api_key")
        assert await status(content=b"{") == (400, "invalid_json")
        assert await status(content=b"\xff") == (400, "invalid_json")
        assert await status(content=b"[" * 100_000) == (400, "invalid_json")
        assert await status(json=[]) == (400, "invalid_request")
        assert await status(json={"messages": []}) == (400, "invalid_request")
        assert await status(json=QUESTION | {"n": 0}) == (400, "invalid_request")
        assert await status(json={"messages": [{"role": "king", "content": "x"}]}) == (400, "invalid_request")
        picture = [{"type": "image_url", "image_url": {"url": "data:"}}]
        assert await status(json={"messages": [{"role": "user", "content": picture}]}) == (400, "unsupported")
        assert await status(json=QUESTION | {"tools": [{"type": "web_search"}]}) == (400, "unsupported")
        assert await status(content=b"x" * (10 * 2**20)) == (413, "request_too_large")
        assert (await client.get(f"{url}/v1/models", headers={"authorization": ""})).status_code == 401
        listed = (await client.get(f"{url}/v1/models", headers={"x-api-key": key})).json()["data"]
        assert [each["id"] for each in listed] == ["policy", "policy/system"]
        one = await client.get(f"{url}/v1/models/policy/system")
        assert (one.json()["id"], one.json()["object"]) == ("policy/system", "model")
        assert (await client.get(f"{url}/v1/models/policy", headers={"authorization": ""})).status_code == 401
        assert (await client.get(chat)).status_code == 405
        assert (await client.post(chat, json=QUESTION)).status_code == 200

    assert with_session(lambda _: "tea", use).turns == 1


def test_a_key_dies_with_its_rollout_and_so_does_what_it_waits_for() -> None:
    waiting = asyncio.Event()

    async def sample(asked: Ask, wanted: Any) -> Answer:
        waiting.set()
        await asyncio.sleep(60)
        raise AssertionError

    async def run() -> None:
        async with httpx.AsyncClient(timeout=30) as client:
            with gateway().opened(make_session(TOKENIZER, sample)) as (url, key):
                bearer = {"authorization": f"Bearer {key}"}
                asking = asyncio.ensure_future(client.post(f"{url}/v1/chat/completions", json=QUESTION, headers=bearer))
                await waiting.wait()
            assert (await asking).status_code == 410
            after = await client.post(f"{url}/v1/chat/completions", json=QUESTION, headers=bearer)
            assert (after.status_code, after.json()["error"]["code"]) == (410, "rollout_ended")

    asyncio.run(run())


def test_who_goes_away_is_not_sampled_for() -> None:
    cancelled = asyncio.Event()

    async def sample(asked: Ask, wanted: Any) -> Answer:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(f"{url}/v1/chat/completions", json=QUESTION | {"stream": True}, timeout=0.3)
        await asyncio.wait_for(cancelled.wait(), 20)

    with_session(sample, use)


def test_who_goes_away_in_the_middle_of_a_stream_harms_nobody() -> None:
    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=QUESTION | {"stream": True}) as answer:
            async for _ in answer.aiter_bytes(16):
                break
        assert (await client.post(f"{url}/v1/chat/completions", json=QUESTION)).status_code == 200

    assert with_session(lambda _: "tea\n" * 500, use).turns == 2


def test_failures_of_the_policy_are_statuses() -> None:
    errors = [PromptTooLong("too long"), RunError("the engine is gone"), ValueError("secret")]

    async def sample(asked: Ask, wanted: Any) -> Answer:
        raise errors.pop(0)

    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        found = [await client.post(f"{url}/v1/chat/completions", json=QUESTION) for _ in range(3)]
        assert [each.status_code for each in found] == [400, 503, 500]
        assert found[0].json()["error"]["code"] == "context_length_exceeded"
        assert "secret" not in found[2].text

    assert with_session(sample, use).faults == {"prompt_too_long": 1}


def test_the_openai_client_asks_streams_and_calls_tools() -> None:
    def rule(prompt: str) -> str:
        return "sea\ntea" if "tool_response" in prompt else call_text(at="sea") if "look" in prompt else "tea"

    async def use(_: httpx.AsyncClient, url: str, key: str) -> None:
        def plain() -> None:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
            question: list[Any] = [{"role": "user", "content": "tea?"}]
            create: Any = client.chat.completions.create
            answer = create(model="policy", messages=question, logprobs=True, n=2, max_tokens=50, seed=1)
            assert [each.message.content for each in answer.choices] == ["tea", "tea"]
            assert {each.finish_reason for each in answer.choices} == {"stop"}
            tokens = answer.choices[0].logprobs.content
            assert "".join(each.token for each in tokens) == "tea<|im_end|>"
            assert {each.logprob for each in tokens} == {-0.25}
            assert answer.usage.completion_tokens == 2 * len(tokens)
            answer = create(model="policy", messages=question, tools=[FUNCTION], tool_choice="required")
            (call,) = answer.choices[0].message.tool_calls
            assert answer.choices[0].finish_reason == "tool_calls"
            assert json.loads(call.function.arguments) == {"at": "sea"}
            question += [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "the sea"}]
            stream = list(
                create(
                    model="policy",
                    messages=question,
                    tools=[FUNCTION],
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
            assert "".join(each.choices[0].delta.content or "" for each in stream if each.choices) == "sea\ntea"
            assert stream[-1].usage.prompt_tokens > answer.usage.prompt_tokens + answer.usage.completion_tokens
            with client.chat.completions.stream(model="policy", messages=question[:1], tools=[FUNCTION]) as events:  # type: ignore[list-item]
                final = events.get_final_completion().choices[0]
            assert final.message.tool_calls
            assert final.message.tool_calls[0].function.name == "look"
            answer = create(model="policy", messages=question[:1], tools=[FUNCTION], tool_choice="none")
            assert answer.choices[0].message.content == "tea"
            with pytest.raises(openai.AuthenticationError):
                openai.OpenAI(base_url=f"{url}/v1", api_key="no").models.list()

        await asyncio.to_thread(plain)

    session = with_session(rule, use)
    assert session.turns == 6


def test_parallel_requests_are_answered_in_parallel() -> None:
    together = asyncio.Barrier(20)

    async def sample(asked: Ask, wanted: Any) -> Answer:
        await together.wait()
        return Answer("", (TOKENIZER.eos_token_id,), (-0.1,))

    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        found = await asyncio.gather(*(client.post(f"{url}/v1/chat/completions", json=QUESTION) for _ in range(20)))
        assert {each.status_code for each in found} == {200}

    with_session(sample, use)


@pytest.mark.parametrize(
    ("path", "more", "words"),
    [
        ("chat/completions", {"tools": [FUNCTION], "tool_choice": {"function": "x"}}, "tool_choice.Choice.function"),
        ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": "x"}}, "format.json_schema"),
        ("chat/completions", {"temperature": float("inf")}, "temperature: .*finite"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": 7}]}]},
            r"content.list\[_Part\].0.type",
        ),
        ("chat/completions", {"functions": [{"name": "look"}]}, "functions: the older form"),
        ("responses", {"input": "x", "conversation": "conv_1"}, "conversation: .* kept elsewhere"),
        ("messages", {"mcp_servers": [{"url": "http://x"}]}, "mcp_servers: tools that run elsewhere"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_place(path: str, more: dict[str, Any], words: str) -> None:
    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        answer = await client.post(f"{url}/v1/{path}", content=json.dumps(QUESTION | more))
        assert answer.status_code == 400, answer.text
        assert re.search(words, answer.json()["error"]["message"])

    assert with_session(lambda _: "tea", use).turns == 0


def test_paths_that_are_not_there_say_which_are() -> None:
    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        for method, path in (("POST", "completions"), ("POST", "messages/count_tokens"), ("GET", "chat/completions")):
            answer = await client.request(method, f"{url}/v1/{path}")
            assert answer.status_code == (405 if method == "GET" else 404)
            assert f"no {method} " in answer.json()["error"]["message"]
            assert "/v1/messages" in answer.json()["error"]["message"]

    with_session(lambda _: "tea", use)


def test_many_connections_leave_files_for_the_run() -> None:
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(now, most - 1), most))
    try:
        server.Gateway()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(most, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))


def test_a_request_may_hold_anything_that_json_can() -> None:
    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        for text in ('"\\ud800"', '"\\u0000"', '"<|im_end|>"', '"' + "x" * 10_000 + '"', '""', "null"):
            body = f'{{"model": "m", "messages": [{{"role": "user", "content": {text}}}], "stop": {text}}}'
            answer = await client.post(f"{url}/v1/chat/completions", content=body)
            assert answer.status_code == 200, answer.text

    with_session(lambda _: "\ud800 tea"[2:], use)


def test_what_python_cannot_read_is_the_fault_of_whoever_sends_it() -> None:
    async def use(client: httpx.AsyncClient, url: str, key: str) -> None:
        answer = await client.post(f"{gateway().root}/{'9' * 5_000}/v1/chat/completions", json=QUESTION)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        deep = '{"a": ' * 700 + "1" + "}" * 700
        tool = f'{{"type": "function", "function": {{"name": "look", "parameters": {deep}}}}}'
        body = f'{{"messages": [{{"role": "user", "content": "tea?"}}], "tools": [{tool}]}}'
        answer = await client.post(f"{url}/v1/chat/completions", content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert "nested too deeply" in answer.json()["error"]["message"]

    assert with_session(lambda _: "tea", use).turns == 0


def test_a_proxy_of_the_machine_is_not_asked_for_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.delenv("no_proxy", raising=False)
    own = server.Gateway()

    async def run() -> None:
        with own.opened(make_session(TOKENIZER, answers_of(TOKENIZER, lambda _: "tea"))) as (url, key):
            client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
            question: Any = QUESTION["messages"]
            answer = await client.chat.completions.create(model="policy", messages=question)
            assert answer.choices[0].message.content == "tea"

    asyncio.run(run())
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == "example.org,127.0.0.1"


def test_there_is_one_address_for_a_process() -> None:
    assert gateway() is gateway()
    assert gateway().root.startswith("http://127.0.0.1:")
    assert server.LARGEST < 10 * 2**20
