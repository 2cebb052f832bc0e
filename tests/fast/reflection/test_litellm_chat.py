"""LiteLLM for real: requests travel over HTTP to a server on this machine, and a transformers model answers them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from openai_server import LONGEST, Fault, OpenAIServer

from fastslow.fast.reflection import (
    ChatFailed,
    LanguageModelReflector,
    LiteLLMChat,
    LocalChat,
    ReflectionFailed,
    Request,
)

MESSAGES = [{"role": "user", "content": "sort every number"}]
Make = Callable[..., Request]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def chat_with(server: OpenAIServer, **changes: Any) -> LiteLLMChat:
    settings = {"max_tokens": 12, "timeout": 60.0, "retries": 2, "first_pause": 0.01, **changes}
    return LiteLLMChat("Some/tiny-model", server.base_url, **settings)


def test_an_answer_comes_back_whole(server: OpenAIServer, tiny: tuple[Any, Any]) -> None:
    reply = chat_with(server)(MESSAGES, 7)
    assert reply == LocalChat(*tiny, max_tokens=12)(MESSAGES, 7)
    (body,) = server.requests
    assert (body["model"], body["seed"], body["max_tokens"]) == ("Some/tiny-model", 7, 12)


def test_a_known_provider_is_not_part_of_the_name(server: OpenAIServer) -> None:
    LiteLLMChat("openai/tiny", server.base_url, max_tokens=2)(MESSAGES, 0)
    assert server.requests[0]["model"] == "tiny"


def test_a_model_reflects_over_http(server: OpenAIServer, tiny: tuple[Any, Any], make_request: Make) -> None:
    # A random model ends by chance, about every 25 tokens: with this much room the answer is whole, not cut off.
    request = make_request("Answer.", proposer="full")
    reflector = LanguageModelReflector(chat_with(server, max_tokens=400))
    text = reflector(request)
    assert text == LanguageModelReflector(LocalChat(*tiny, max_tokens=400))(request)
    assert reflector.usage.calls == len(server.requests)
    assert reflector.usage.prompt_tokens > 100
    assert reflector.usage.completion_tokens >= len(text.split())


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_a_transient_status_is_tried_again(server: OpenAIServer, status: int) -> None:
    server.faults.extend([Fault(status), Fault(status)])
    reply = chat_with(server)(MESSAGES, 7)
    assert reply.text
    assert (reply.retries, len(server.requests)) == (2, 3)


def test_retries_run_out(server: OpenAIServer, make_request: Make) -> None:
    server.faults.extend([Fault(500)] * 3)
    reflector = LanguageModelReflector(chat_with(server))
    with pytest.raises(ReflectionFailed, match=r"injected fault.*after 2 retries") as failure:
        reflector(make_request())
    assert not failure.value.permanent
    assert (reflector.usage.calls, reflector.usage.retries, reflector.usage.failures) == (1, 2, 1)
    assert len(server.requests) == 3


@pytest.mark.parametrize(("status", "permanent"), [(401, True), (403, True), (404, True), (400, False), (422, False)])
def test_other_statuses_fail_at_once(
    server: OpenAIServer, make_request: Make, status: int, permanent: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults.append(Fault(status))
    reflector = LanguageModelReflector(chat_with(server))
    with pytest.raises(ReflectionFailed, match=r"model 'Some/tiny-model' at http.*injected fault") as failure:
        reflector(make_request())
    assert failure.value.permanent == permanent
    assert (reflector.usage.calls, reflector.usage.retries, reflector.usage.failures) == (1, 0, 1)
    assert len(server.requests) == 1
    assert "LiteLLM" not in capsys.readouterr().out, "its own advice would stand between the lines of a run"


def test_pauses_double(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = record_pauses(monkeypatch)
    server.faults.extend([Fault(500)] * 3)
    chat_with(server, retries=3, first_pause=1.5)(MESSAGES, 0)
    assert pauses == [1.5, 3.0, 6.0]


def test_the_server_may_say_when_to_come_back(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = record_pauses(monkeypatch)
    wishes = ["7", "0.25", "-1", "9999", "Wed, 21 Oct 2015 07:28:00 GMT", "soon"]
    server.faults.extend(Fault(429, {"Retry-After": after}) for after in wishes)
    chat_with(server, retries=6)(MESSAGES, 0)
    assert pauses == [7.0, 0.25, 0.0, 300.0, 0.0, 0.32]


def record_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr("fastslow.fast.reflection.chats.time.sleep", pauses.append)
    return pauses


def test_a_slow_server_times_out_and_is_tried_again(server: OpenAIServer) -> None:
    server.faults.append(Fault(delay=300))
    started = time.perf_counter()
    reply = chat_with(server, timeout=2.0)(MESSAGES, 0)
    assert reply.retries == 1
    assert time.perf_counter() - started < 60


@pytest.mark.parametrize(
    ("size", "pause", "reason", "most"),
    [(1, 0.1, "Timeout", LONGEST), (2**20, 0.0, "more than 16,777,216 bytes", 2**25)],
)
def test_an_answer_without_end_is_given_up(
    server: OpenAIServer, size: int, pause: float, reason: str, most: int
) -> None:
    fault = Fault(endless=(size, pause))
    server.faults.append(fault)
    with pytest.raises(ChatFailed, match=reason):
        chat_with(server, retries=0, timeout=2.0 if pause else 60.0)(MESSAGES, 0)
    assert sum(fault.sent) < most


@pytest.mark.parametrize(("name", "size"), [("openai/tiny", 1), ("openai/tiny", 2**20), ("hosted_vllm/tiny", 1)])
def test_an_answer_without_end_is_given_up_wherever_it_comes_from(
    server: OpenAIServer, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a server that only the environment names, and to the clients of other providers, whose limits are per byte."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    fault = Fault(endless=(size, 0.1 if size == 1 else 0.0))
    server.faults.append(fault)
    address = None if name.startswith("openai/") else server.base_url
    with pytest.raises(ChatFailed, match=r"more than 2 seconds|more than 16,777,216 bytes"):
        LiteLLMChat(name, address, retries=0, timeout=2.0 if size == 1 else 60.0)(MESSAGES, 0)
    assert sum(fault.sent) < (LONGEST if size == 1 else 2**25)


def test_an_answer_that_is_too_long_is_refused_whoever_sent_it(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastslow.fast.reflection.chats.LARGEST", 1000)
    server.faults.append(Fault(text="x" * 1001))
    with pytest.raises(ChatFailed, match="more than 1,000 characters"):
        LiteLLMChat("hosted_vllm/tiny", server.base_url, retries=0)(MESSAGES, 0)


@pytest.mark.parametrize("count", [-5, 10**30])
def test_a_count_that_is_none_is_not_booked(server: OpenAIServer, count: int) -> None:
    server.faults.append(Fault(text="plain", usage=count))
    reply = chat_with(server)(MESSAGES, 0)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("plain", 0, 0)


def test_an_answer_of_another_shape_is_refused_without_a_traceback(server: OpenAIServer) -> None:
    server.faults.append(Fault(text={"not": "text"}))
    with pytest.raises(ChatFailed, match="Invalid response object") as failure:
        chat_with(server, retries=0)(MESSAGES, 0)
    assert "Traceback" not in str(failure.value)


def test_an_answer_is_not_unpacked(server: OpenAIServer) -> None:
    """A short answer could become a long one: a server is not asked for that, and not believed."""
    server.faults.append(Fault(text="plain", headers={"Content-Encoding": "gzip"}))
    assert chat_with(server, retries=0)(MESSAGES, 0).text == "plain"
    assert server.encodings == {"identity"}


def test_a_refused_connection_is_tried_again_and_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(ChatFailed, match=r"Connection error.*after 1 retries") as failure:
        LiteLLMChat("tiny", address, retries=1, first_pause=0.01)(MESSAGES, 0)
    assert failure.value.retries == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(text=""), "was empty"),
        (Fault(no_choice=True), "was empty"),
        (Fault(text="@@ ## ]] %%"), "not readable"),
    ],
)
def test_empty_and_garbled_answers_are_asked_for_again(
    server: OpenAIServer, make_request: Make, fault: Fault, reason: str
) -> None:
    reflector = LanguageModelReflector(chat_with(server))
    server.faults.extend([fault, Fault(text="```\nSort downwards.\n```")])
    assert reflector(make_request()) == "Sort downwards."
    assert reason in server.requests[1]["messages"][-1]["content"]
    server.faults.extend([fault, fault])
    with pytest.raises(ReflectionFailed, match=reason):
        reflector(make_request())
    assert (reflector.usage.calls, reflector.usage.retries, reflector.usage.failures) == (4, 0, 1)


@pytest.mark.parametrize(("name", "advice"), [("gpt-5.2", "OPENAI_API_KEY"), ("no-such-model", "PROVIDER/MODEL")])
def test_a_name_that_cannot_work_fails_before_any_call(name: str, advice: str) -> None:
    with pytest.raises(ChatFailed, match=advice) as failure:
        LiteLLMChat(name)(MESSAGES, 0)
    assert failure.value.permanent


def test_known_prices_become_a_cost(server: OpenAIServer) -> None:
    server.faults.append(Fault(text="Sort downwards."))
    assert LiteLLMChat("openai/gpt-4o", server.base_url)(MESSAGES, 0).cost > 0
