"""The models that a reflector can ask: a hosted one by name, any OpenAI-compatible server by address, one that this process
has loaded, and the policy in training."""

from __future__ import annotations

import contextlib
import difflib
import email.utils
import os
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

from fastslow.base.providers import quiet_litellm
from fastslow.base.text import redacted
from fastslow.base.world import in_time, wait_for
from fastslow.engine.base import Engine
from fastslow.fast.reflection.base import ChatFailed, Reply
from fastslow.models.chat import ChatFormat, TextEncoder, defused_for_servers
from fastslow.recipe.parts import REFLECTOR
from fastslow.records import Sampling

LONGEST_PAUSE = 300.0
"""The longest pause, in seconds, even if a server asks for a longer one."""
COLDEST = 1e-3
"""The temperature that 0 stands for."""
LARGEST = 2**24
"""Bytes of an answer that are read."""
PERMANENT = {401, 402, 403, 404}
"""Statuses about the key, the account or the model, which fail every prompt; a 400 may concern one that is too long."""


@dataclass
class PolicyChat:
    """Answers through the policy's engine. All processes call it together and hear the main one's answer."""

    engine: Engine
    chat: ChatFormat
    sampling: Sampling
    collective = True

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        prompt = self.chat.prompt(messages, "")
        room = self.sampling.max_tokens if self.engine.max_length is None else self.engine.max_length - len(prompt)
        limit = min(self.sampling.max_tokens, room)
        if limit <= 0:
            reason = f"the reflection prompt of {len(prompt)} tokens fills the model's {self.engine.max_length}"
            raise ChatFailed(reason, asked=False)
        sampling = Sampling(self.sampling.temperature, self.sampling.top_p, limit)
        (mine,) = wait_for(self.engine.sample([prompt], sampling, seed))
        completion = self.engine.world.from_main(lambda: mine)
        return Reply(
            self.chat.answer(completion.ids), len(prompt), len(completion.ids), truncated=len(completion.ids) == limit
        )


@dataclass
class LocalChat:
    """Answers with a loaded causal language model. Every answer has a seed; training's random state is restored."""

    model: Any
    tokenizer: Any
    temperature: float = 1.0
    max_tokens: int = 4096

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        import torch

        from fastslow.engine.local.generate import generate
        from fastslow.models.load import end_tokens

        if not self.tokenizer.chat_template:
            raise ChatFailed(
                "the reflection model's tokenizer has no chat template; choose a chat model",
                permanent=True,
                asked=False,
            )
        prompt = TextEncoder(self.tokenizer).chat(messages, add_generation_prompt=True)
        sampling = Sampling(max(self.temperature, COLDEST), 1.0, self._room(len(prompt)))
        ends, pad = end_tokens(self.model, self.tokenizer), self.tokenizer.pad_token_id
        was_training = self.model.training
        self.model.eval()
        try:
            # Every CUDA device is listed because manual_seed reaches all of them, whichever holds the model.
            with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                torch.manual_seed(seed)
                (drawn,) = generate(
                    self.model, [prompt], sampling, pad_id=ends[0] if pad is None else pad, eos_ids=ends, batch=1
                )
        finally:
            self.model.train(was_training)
        return Reply(
            text=self.tokenizer.decode(drawn.ids, skip_special_tokens=True),
            prompt_tokens=len(prompt),
            completion_tokens=len(drawn.ids),
            truncated=len(drawn.ids) == sampling.max_tokens and drawn.ids[-1] not in ends,
        )

    def _room(self, prompt_tokens: int) -> int:
        window = getattr(self.model.config, "max_position_embeddings", None)
        room = self.max_tokens if window is None else min(self.max_tokens, window - prompt_tokens)
        if room < 1:
            reason = f"the reflection prompt has {prompt_tokens} tokens, the reflection model holds {window}"
            raise ChatFailed(reason, asked=False)
        return room


@dataclass
class LiteLLMChat:
    """Answers with `litellm.completion`. Transient faults are retried with doubling pauses; others fail at once."""

    model: str
    base_url: str | None = None
    _: KW_ONLY
    temperature: float = 1.0
    max_tokens: int = 4096
    timeout: float = 120.0
    retries: int = 4
    first_pause: float = 1.0
    concurrent = True
    """Several requests may be under way at a time."""

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        litellm = quiet_litellm()
        arguments = self._arguments(litellm, messages, seed)
        retries = 0
        while True:
            try:
                # Most clients below LiteLLM begin their limit anew with each byte.
                response = in_time(self.timeout, lambda: litellm.completion(**arguments))
                break
            except Exception as error:  # litellm lets some faults of its own through beside the openai classes
                if not _is_transient(litellm, error):
                    permanent = getattr(error, "status_code", None) in PERMANENT
                    raise ChatFailed(self._reason(error), retries, permanent) from error
                if retries == self.retries:
                    raise ChatFailed(f"{self._reason(error)} (after {retries} retries)", retries) from error
                time.sleep(_pause(error, self.first_pause * 2**retries))
                retries += 1
        return _reply(litellm, response, retries)

    def _arguments(self, litellm: Any, messages: list[dict[str, str]], seed: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": [{**message, "content": defused_for_servers(message["content"])} for message in messages],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": seed % 2**31,
            "timeout": self.timeout,
            # Retries are ours to count, and the client below litellm has its own.
            "num_retries": 0,
            "max_retries": 0,
            # Not every provider knows a seed, and some models accept no temperature but 1.
            "drop_params": True,
        }
        if self.base_url is not None:
            provider = self.model.partition("/")[0] if "/" in self.model else ""
            # Only a known provider is a prefix: in "Qwen/Qwen3-8B" the part before the slash belongs to the name.
            if provider not in {getattr(known, "value", known) for known in litellm.provider_list}:
                arguments["model"], provider = f"openai/{self.model}", "openai"
            arguments["api_base"] = self.base_url
        else:
            provider = self._check_name()
        if provider == "openai":
            address = self.base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
            key = os.environ.get("OPENAI_API_KEY") or "none-needed"
            arguments["client"] = _bounded(address, key, self.timeout)
        return arguments

    def _check_name(self) -> str:
        # Asked first: the call itself gives an unknown name as any bad request and a missing key as a server's 500.
        provider = provider_of(self.model)
        if provider == "openai" and not os.environ.get("OPENAI_API_KEY"):
            raise ChatFailed(
                f"model '{self.model}' needs an API key; set OPENAI_API_KEY in the environment, or the base_url of a "
                f"server that needs none",
                permanent=True,
                asked=False,
            )
        return provider

    def _reason(self, error: Exception) -> str:
        where = f" at {self.base_url}" if self.base_url else ""
        # LiteLLM shows its own traceback where it cannot read an answer.
        told = str(error).partition("Traceback (most recent call last)")[0]
        name, words = type(error).__name__, " ".join(told.split())
        words = words.removeprefix("litellm.").removeprefix(f"{name}: ").removeprefix(f"{name}: ")  # it says it twice
        return redacted(f"model '{self.model}'{where}: {name}: {words[:500]}")


def provider_of(model: str) -> str:
    """The provider that LiteLLM asks for a model; raises `ChatFailed` if it knows none."""
    litellm = quiet_litellm()
    try:
        return litellm.get_llm_provider(model)[1]
    except litellm.BadRequestError as error:
        near = difflib.get_close_matches(model.lower(), REFLECTOR.registry.names(), n=1)
        advice = f"did you mean '{near[0]}'? To ask a model, write" if near else "write"
        raise ChatFailed(
            f"model '{model}' names no provider LiteLLM knows; {advice} PROVIDER/MODEL such as openai/gpt-5.2, set the "
            f"base_url of a server of your own, or kind: local for a model that this machine loads",
            permanent=True,
            asked=False,
        ) from error


@cache
def _bounded(address: str | None, key: str, timeout: float) -> Any:
    """A client that bounds the time and the size of every answer: the limits of others begin anew with each byte."""
    import httpx
    import openai
    from litellm.llms.custom_httpx.http_handler import get_ssl_configuration

    class Bounded(httpx.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self.stream, self.size, self.ends = stream, 0, time.monotonic() + timeout

        def __iter__(self) -> Iterator[bytes]:
            for part in self.stream:
                self.size += len(part)
                if time.monotonic() > self.ends:
                    raise httpx.ReadTimeout(f"an answer took more than {timeout:g} seconds")
                if self.size > LARGEST:
                    raise openai.OpenAIError(f"an answer has more than {LARGEST:,} bytes")
                yield part

        def close(self) -> None:
            self.stream.close()

    def bound(response: httpx.Response) -> None:
        response.headers.pop("Content-Encoding", None)  # compressed, a short answer could become a long one
        response.stream = Bounded(response.stream)

    headers = {"Accept-Encoding": "identity"}
    hooks = {"response": [bound]}
    session = httpx.Client(verify=get_ssl_configuration(), follow_redirects=True, headers=headers, event_hooks=hooks)
    return openai.OpenAI(base_url=address, api_key=key, timeout=timeout, max_retries=0, http_client=session)


def _is_transient(litellm: Any, error: Exception) -> bool:
    kinds = (TimeoutError, litellm.Timeout, litellm.RateLimitError, litellm.APIConnectionError)
    return isinstance(error, kinds) or (getattr(error, "status_code", None) or 0) >= 500


def _pause(error: Exception, planned: float) -> float:
    headers = getattr(error, "litellm_response_headers", None) or {}
    after = headers.get("retry-after")
    if after is None:
        return planned
    with contextlib.suppress(ValueError):
        return min(max(0.0, float(after)), LONGEST_PAUSE)
    with contextlib.suppress(ValueError):
        return min(max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time()), LONGEST_PAUSE)
    return planned


def _reply(litellm: Any, response: Any, retries: int) -> Reply:
    choice = response.choices[0] if response.choices else None  # a content filter may leave none
    usage = getattr(response, "usage", None)
    text = (choice and choice.message.content) or ""
    if len(text) > LARGEST:
        raise ChatFailed(f"an answer has more than {LARGEST:,} characters", retries)
    try:
        cost = float(litellm.completion_cost(completion_response=response))
    except Exception:  # it raises a bare Exception for a model without a price
        cost = 0.0
    return Reply(
        text=text,
        prompt_tokens=_count(getattr(usage, "prompt_tokens", 0)),
        completion_tokens=_count(getattr(usage, "completion_tokens", 0)),
        cost=cost,
        retries=retries,
        truncated=choice is not None and choice.finish_reason == "length",
    )


def _count(tokens: Any) -> int:
    """What a server says that it has counted; 0 where that is no count."""
    return tokens if isinstance(tokens, int) and 0 <= tokens < LARGEST else 0
