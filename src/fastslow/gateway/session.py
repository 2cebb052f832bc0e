"""The conversations of one rollout.

Each answer is kept with its tokens under a hash of the conversation up to it. A request that repeats a conversation extends
the tokens of its longest known part. One whose history was changed, by compaction, a sub-agent, a parallel call or a retry,
begins a branch. Every completion is sampled, and trained, once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastslow.gateway.rendering import Call, Exchange, Message, Rendering, Tool, Unrenderable
from fastslow.models.tool_text import loaded
from fastslow.tasks.base import Answer, Ask, PromptTooLong

MODEL = "policy"
"""The model's name for agents; `policy/NAME` is the component of that name."""
MARK = "{{fastslow}}"
"""Where this stands in a system message of the agent, the component's text goes."""
RERENDERED, TOO_LONG, LIMIT = "rerendered", "prompt_too_long", "agent_limit"
"""Faults of a rollout: a conversation that went on was rendered again, because the form of its model cannot be continued;
a prompt did not fit the model; the agent was refused an answer because it has had as many as it may."""
Place = Literal["before", "instead"]


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Wanted:
    """A request, whatever its shape."""

    model: str
    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    note: str = ""
    """What the request demands of the answer's form, in words that follow the last message."""
    n: int = 1
    limit: int | None = None
    stop: Sequence[str] = ()
    logprobs: bool = False
    temperature: float | None = None
    """How it is sampled: only where the policy is served. In a run the recipe says that."""
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Said:
    """An answer."""

    content: str
    reasoning: str
    calls: Sequence[tuple[str, Call]]
    """Tool calls with their ids."""
    finish: Literal["stop", "length", "tool_calls"]
    stopped: str | None
    """The stop text that ended it."""
    prompt_tokens: int
    completion_tokens: int
    tokens: Sequence[tuple[str, float]]
    """The texts of its tokens with their log-probabilities, where they are wanted."""

    @property
    def message(self) -> dict[str, Any]:
        calls = [
            {"id": key, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for key, call in self.calls
        ]
        return {"role": "assistant", "content": self.content, **({"tool_calls": calls} if calls else {})}


Sampler = Callable[[Ask, Wanted], Awaitable[Answer]]


@dataclass
class Session:
    """The texts that one agent reads, and what was said to it."""

    rendering: Rendering
    texts: Mapping[str, str]
    sample: Sampler
    ended: Callable[[Sequence[int]], bool]
    """Whether a completion ends with an end token."""
    places: Mapping[str, Place] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    """The agent's own system message, by component, where that is the text that evolves."""
    most_turns: int | None = None
    most_tokens: int | None = None
    most_kept: int | None = None
    """Exchanges that are kept, the newest, where there is no end of them."""
    turns: int = 0
    """Answers that it was asked for, so far."""
    answered: int = 0
    """Answers that the policy has given, in a run."""
    tokens: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    stored: dict[str, Sequence[Message]] = field(default_factory=dict)
    """Whole conversations by the id of their last response, for requests that only name it."""
    _known: dict[bytes, Exchange] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """The names that stand for a component."""
        named = [f"{MODEL}/{name}" for name in self.texts]
        return [MODEL, *named] if len(named) == 1 else named

    def component(self, model: str) -> str:
        """The component that a model's name stands for. With one component any name will do."""
        name = model.rpartition("/")[2]
        if name in self.texts or len(self.texts) == 1:
            return name if name in self.texts else next(iter(self.texts))
        raise Refused(404, "model_not_found", f"there is no model '{model}'; the models are {', '.join(self.models)}")

    async def answers(self, wanted: Wanted) -> list[Said]:
        """As many answers as are wanted, to one prompt."""
        component = self.component(wanted.model)
        self._require_budget(wanted.n)
        said, new, key = self._prompt(component, wanted)
        asked = Ask(component, _readable(new), ids=said.prompt, limit=wanted.limit, stop=[*filter(None, wanted.stop)])
        self.turns += wanted.n
        try:
            drawn = await asyncio.gather(*(self.sample(asked, wanted) for _ in range(wanted.n)))
        except PromptTooLong as error:
            self.faults[TOO_LONG] += 1
            raise Refused(400, "context_length_exceeded", str(error)) from None
        return [self._said(said, key, answer, wanted) for answer in drawn]

    def _require_budget(self, asked: int) -> None:
        for name, used, most in (
            ("answers", self.turns + asked, self.most_turns),
            ("tokens", self.tokens + 1, self.most_tokens),
        ):
            if most is not None and used > most:
                self.faults[LIMIT] += 1
                raise Refused(403, "limit_exceeded", f"this rollout has had its {most} {name}, and may have no more")

    def _prompt(self, component: str, wanted: Wanted) -> tuple[Exchange, Sequence[Message], bytes]:
        """The prompt, the messages that are new in it, and the hash of the conversation."""
        key = _hash(b"", [component, list(wanted.tools)])
        found: tuple[Exchange, int] | None = None
        for count, message in enumerate(wanted.messages, 1):
            key = _hash(key, _identity(message))
            if message["role"] == "assistant" and key in self._known:
                found = self._known[key], count
        if found:
            before, count = found
            new = wanted.messages[count:]
            prompt = self.rendering.extend(before, _with_note(new, wanted.note), wanted.tools)
            if prompt is not None:
                return Exchange([*before.messages, *new], prompt, ()), new, key
            self.faults[RERENDERED] += 1
        place, own = self.places.get(component, "before"), self.own.get(component)
        text = Ask(component, _readable(wanted.messages)).context(self.texts)
        placed = place_text(wanted.messages, text, place, own)
        try:
            prompt = self.rendering.prompt(_with_note(placed, wanted.note), wanted.tools)
        except Unrenderable as error:
            raise Refused(400, "unsupported", f"the model's chat template refuses these messages: {error}") from None
        # What the agent said itself, without the messages that the context replaces.
        kept = {each["content"] for each in placed if each["role"] == "system"}
        asked = [
            each
            for each in wanted.messages
            if each["role"] != "system" or each["content"] in kept or MARK in each["content"]
        ]
        return Exchange(placed, prompt, ()), asked, key

    def _said(self, asked: Exchange, key: bytes, answer: Answer, wanted: Wanted) -> Said:
        self.tokens += len(answer.ids)
        exchange = Exchange(asked.messages, asked.prompt, tuple(answer.ids))
        reading = self.rendering.read(exchange, wanted.tools)
        content, stopped = _until(reading.content, wanted.stop)
        # The same in a run that is resumed: templates may show ids to the model.
        name = _hash(key, list(answer.ids)).hex()[:12]
        calls = [(f"call_{name}{place}", call) for place, call in enumerate(reading.calls)]
        cut = not stopped and not self.ended(answer.ids)
        tokens = zip(answer.ids, answer.logprobs, strict=True) if wanted.logprobs else ()
        said = Said(
            content,
            reading.reasoning,
            calls,
            "tool_calls" if calls else "length" if cut else "stop",
            stopped,
            len(asked.prompt),
            len(answer.ids),
            [(self.rendering.token(token), number) for token, number in tokens],
        )
        self._known[_hash(key, _identity(said.message))] = Exchange(
            [*asked.messages, said.message], asked.prompt, exchange.completion
        )
        self._forget(self._known)
        return said

    def store(self, name: str, messages: Sequence[Message]) -> None:
        self.stored[name] = messages
        self._forget(self.stored)

    def _forget(self, kept: dict[Any, Any]) -> None:
        while self.most_kept is not None and len(kept) > self.most_kept:
            kept.pop(next(iter(kept)), None)


def place_text(messages: Sequence[Message], text: str, place: Place, own: str | None = None) -> list[Message]:
    """The messages with the component's text: at its mark in the agent's system messages, else in the place of the one that
    the text evolved from, of all of them, or before them."""
    if any(each["role"] == "system" and MARK in each["content"] for each in messages):
        return [
            {**each, "content": each["content"].replace(MARK, text)} if each["role"] == "system" else each
            for each in messages
        ]
    rest = [each for each in messages if each["role"] != "system" or (place == "before" and each["content"] != own)]
    return [{"role": "system", "content": text}, *rest] if text else rest


def _until(content: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """The content before the first of the texts that stop it, and which that is."""
    found = [text for text in stop if text and text in content]
    first = min(found, key=content.index, default=None)
    return (content.partition(first)[0], first) if first else (content, None)


def _with_note(messages: Sequence[Message], note: str) -> list[Message]:
    if not note or not messages:
        return list(messages)
    return [*messages[:-1], {**messages[-1], "content": f"{messages[-1].get('content') or ''}\n\n{note}".lstrip()}]


def _identity(message: Message) -> list[Any]:
    """What makes a message the same one when it comes back: clients drop thoughts, rename ids and trim answers."""
    content, calls = message.get("content") or "", message.get("tool_calls") or ()
    if message["role"] != "assistant":
        return [message["role"], content]
    functions = [call["function"] for call in calls]
    return ["assistant", content.strip(), [[each["name"], loaded(each["arguments"])] for each in functions]]


def _hash(before: bytes, value: Any) -> bytes:
    return hashlib.sha256(before + json.dumps(value, sort_keys=True).encode()).digest()


def _readable(messages: Sequence[Message]) -> list[dict[str, str]]:
    """What is asked, for reflectors and for people."""
    shown = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        lines = [str(message.get("content") or ""), *(f"{each['name']}({each['arguments']})" for each in calls)]
        shown.append({"role": message["role"], "content": "\n".join(filter(None, lines))})
    return shown
