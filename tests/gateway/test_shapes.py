"""Responses and messages, asked by the clients of OpenAI and Anthropic."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import httpx
import openai
import pytest
from gateway_helpers import TOOL, call_text
from test_gateway_server import with_session

CALLED: dict[str, Any] = {"type": "function", "strict": False, **TOOL}
USED: Any = {"name": "look", "description": "looks", "input_schema": TOOL["parameters"]}


def rule(prompt: str) -> str:
    last = prompt.rpartition("<|im_start|>user")[2]
    if "Answer with JSON only" in last:
        return "{}"
    return "sea\ntea" if "tool_response" in last else f"so {call_text(at='sea')}" if '"look"' in prompt else "tea"


def test_the_responses_of_openai() -> None:
    def plain(url: str, key: str) -> None:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        create: Any = client.responses.create
        assert create(model="policy", input="tea?", instructions="be kind").output_text == "tea"
        first = create(model="policy", input="tea?", tools=[CALLED])
        assert [item.type for item in first.output] == ["message", "function_call"]
        result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "the sea"}
        second = create(model="policy", input=[result], tools=[CALLED], previous_response_id=first.id)
        assert second.output_text == "sea\ntea"
        assert second.usage.input_tokens > first.usage.total_tokens
        whole = [{"role": "user", "content": "tea?"}, *(item.model_dump() for item in first.output), result]
        events = list(create(model="policy", input=whole, tools=[CALLED], stream=True))
        assert events[0].type == "response.created"
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == "sea\ntea"
        assert events[-1].response.usage.input_tokens == second.usage.input_tokens
        with client.responses.stream(model="policy", input="tea?", tools=[CALLED]) as stream:  # type: ignore[list-item]
            final = stream.get_final_response()
        assert [item.type for item in final.output] == ["message", "function_call"]
        cut = create(model="policy", input="tea?", max_output_tokens=1)
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        for bad in ({"previous_response_id": "resp_no"}, {"tools": [{"type": "web_search"}]}, {"input": []}):
            with pytest.raises(openai.APIStatusError):
                create(**{"model": "policy", "input": "x", **bad})

    async def use(_: httpx.AsyncClient, url: str, key: str) -> None:
        await asyncio.to_thread(plain, url, key)

    session = with_session(rule, use)
    assert (session.turns, session.faults) == (6, {})


def test_the_messages_of_anthropic() -> None:
    def plain(url: str, key: str) -> None:
        client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
        create: Any = client.messages.create
        asked: dict[str, Any] = {"model": "policy", "max_tokens": 100, "system": "be kind"}
        question: list[Any] = [{"role": "user", "content": "tea?"}]
        answer = create(messages=question, **asked)
        assert (answer.content[0].text, answer.stop_reason) == ("tea", "end_turn")
        called = create(messages=question, tools=[USED], tool_choice={"type": "any"}, **asked)
        assert called.stop_reason == "tool_use"
        text, use = called.content
        assert (text.text, use.name, use.input) == ("so", "look", {"at": "sea"})
        result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "the sea"}]}
        question += [{"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
        with client.messages.stream(messages=question, tools=[USED], **asked) as stream:
            final = stream.get_final_message()
        assert (final.content[0].text, final.stop_reason) == ("sea\ntea", "end_turn")  # type: ignore[union-attr]
        assert final.usage.input_tokens > called.usage.input_tokens + called.usage.output_tokens
        with client.messages.stream(messages=question[:1], tools=[USED], **asked) as stream:
            assert stream.get_final_message().content[1].input == {"at": "sea"}  # type: ignore[union-attr]
        stopped = create(messages=question[:1], stop_sequences=["a"], **asked)
        assert (stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence) == ("te", "stop_sequence", "a")
        assert create(messages=question[:1], **asked | {"max_tokens": 1}).stop_reason == "max_tokens"
        form = {"type": "json_schema", "schema": {"type": "object", "title": "thing"}}
        assert create(messages=question[:1], output_config={"format": form}, **asked).content[0].text == "{}"
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
        with pytest.raises(anthropic.BadRequestError, match="type 'image'"):
            create(messages=[{"role": "user", "content": [picture]}], **asked)
        with pytest.raises(anthropic.BadRequestError, match="tools with a schema"):
            create(messages=question[:1], tools=[{"type": "bash_20250124", "name": "bash"}], **asked)
        with pytest.raises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=url, api_key="no").messages.create(messages=question[:1], **asked)

    async def use(_: httpx.AsyncClient, url: str, key: str) -> None:
        await asyncio.to_thread(plain, url, key)

    session = with_session(rule, use)
    assert (session.turns, session.faults) == (7, {})


def test_the_mark_in_what_an_agent_sends_is_the_text_whatever_its_shape() -> None:
    def marked(prompt: str) -> str:
        return "yes" if "system\na: be brief.<|im_end|>" in prompt and "fastslow" not in prompt else "no"

    def plain(url: str, key: str) -> None:
        system, question = "a: {{fastslow}}.", [{"role": "user", "content": "tea?"}]
        client: Any = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        whole = [{"role": "developer", "content": system}, *question]
        answer = client.chat.completions.create(model="policy", messages=whole)
        assert answer.choices[0].message.content == "yes"
        assert client.responses.create(model="policy", input=question, instructions=system).output_text == "yes"
        other: Any = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
        blocks = [{"type": "text", "text": system}]
        with other.messages.stream(model="policy", max_tokens=9, messages=question, system=blocks) as stream:
            assert "".join(stream.text_stream) == "yes"

    async def use(_: httpx.AsyncClient, url: str, key: str) -> None:
        await asyncio.to_thread(plain, url, key)

    assert with_session(marked, use).turns == 3


def choices(*names: str, mode: str) -> dict[str, Any]:
    return {"mode": mode, "tools": [{"type": "function", "name": name} for name in names]}


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("auto", ""),
        ("required", "Answer with a call of one of the tools."),
        ({"type": "function", "name": "look"}, "Answer with a call of the tool look."),
        ({"type": "allowed_tools", **choices("look", mode="auto")}, "Call no other tools than look."),
        (
            {"type": "allowed_tools", **choices("look", "go", mode="required")},
            "Answer with a call of one of the tools look, go.",
        ),
        ({"type": "allowed_tools", "allowed_tools": choices("go", mode="auto")}, "Call no other tools than go."),
        ({"type": "allowed_tools", **choices(mode="auto")}, "tool_choice names 'None'; the tools are look, go"),
        ({"type": "allowed_tools", **choices("fly", mode="auto")}, "tool_choice names 'fly'; the tools are look, go"),
        ({"type": "function", "name": "fly"}, "tool_choice names 'fly'; the tools are look, go"),
        ({"type": "web_search"}, "expected auto, none, required or a tool of the request"),
        ("sometimes", "expected auto, none, required or a tool of the request"),
    ],
)
def test_which_tools_may_be_called_is_told_or_refused(choice: Any, told: str) -> None:
    prompts: list[str] = []

    def heard(prompt: str) -> str:
        prompts.append(prompt)
        return "tea"

    async def use(client: httpx.AsyncClient, url: str, _: str) -> None:
        named = [{**CALLED, "name": name} for name in ("look", "go")]
        asked = {"model": "policy", "input": "tea?", "tools": named, "tool_choice": choice}
        answer = await client.post(f"{url}/v1/responses", json=asked)
        if told.startswith(("tool_choice", "expected")):
            assert answer.status_code == 400
            assert told in answer.json()["error"]["message"]
            return
        assert answer.json()["tool_choice"] == choice
        (prompt,) = prompts
        assert told in prompt
        assert ("call of" in prompt or "Call no" in prompt) == bool(told)
        question = [{"role": "user", "content": "tea?"}]
        functions = [{"type": "function", "function": {**TOOL, "name": name}} for name in ("look", "go")]
        asked = {"model": "policy", "messages": question, "tools": functions, "tool_choice": choice}
        assert (await client.post(f"{url}/v1/chat/completions", json=asked)).status_code == 200
        assert told in prompts[-1]

    with_session(heard, use)
