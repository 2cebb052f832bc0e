"""Messages to tokens and back, for conversations with tools.

A conversation that goes on is never rendered again: `extend` keeps the tokens of its last answer, and those before it, and
renders only what is new. Model families that the package `renderers` knows are rendered and read by it. All others by their
chat template: in its own form of tools where that is the one that Qwen and Hermes models share, else as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from jinja2.exceptions import TemplateError

from fastslow.base.errors import ModelError
from fastslow.base.text import one_line
from fastslow.models.chat import ChatFormat, TextEncoder, merge_context, replace_texts, whole
from fastslow.models.tool_text import loaded, plain_messages, read_calls

Message = Mapping[str, Any]
"""Of a conversation in the shape of OpenAI: the role system, user, assistant or tool, the content a string."""
Tool = Mapping[str, Any]
"""A function's name, description and parameters."""


class Unrenderable(Exception):
    """The model's chat template refuses the messages."""


@dataclass(frozen=True)
class Call:
    """A tool call of the model; the arguments are JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Reading:
    """What a completion says."""

    content: str
    reasoning: str = ""
    calls: Sequence[Call] = ()


@dataclass(frozen=True)
class Exchange:
    """A prompt and the completion that was sampled for it, as tokens and as messages, the last of which is the answer."""

    messages: Sequence[Message]
    prompt: Sequence[int]
    completion: Sequence[int]


class Rendering(Protocol):
    """How one model reads and writes conversations."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """The tokens of a conversation, and of the beginning of an answer to it."""
        ...

    def extend(self, said: Exchange, new: Sequence[Message], tools: Sequence[Tool]) -> list[int] | None:
        """The tokens of an exchange followed by those of new messages; None if its form cannot be continued."""
        ...

    def read(self, said: Exchange, tools: Sequence[Tool]) -> Reading:
        """What a completion says; the messages are those before it."""
        ...

    def token(self, token: int) -> str:
        """The text of one token."""
        ...


@lru_cache(maxsize=4)
def rendering_of(chat: ChatFormat) -> Rendering:
    """The rendering of a tokenizer's model."""
    try:
        from renderers import create_renderer
        from renderers.base import MODEL_RENDERER_MAP
    except ImportError:
        return Templated(chat)
    if getattr(chat.tokenizer, "name_or_path", None) not in MODEL_RENDERER_MAP:
        return Templated(chat)
    try:
        renderer = create_renderer(chat.tokenizer, chat_template_kwargs=chat.template_arguments or None)
        if "thinking_retention" in type(renderer.config).model_fields:  # thoughts are part of what was sampled
            kept = renderer.config.model_copy(update={"thinking_retention": "all"})
            renderer = type(renderer)(chat.tokenizer, kept)
    except Exception as error:
        raise ModelError(
            f"the package renderers cannot render {chat.tokenizer.name_or_path}: {one_line(error)}; "
            "correct sampling.chat_template_kwargs"
        ) from error
    return Rendered(chat, renderer)


class Templated:
    """By the tokenizer's chat template."""

    def __init__(self, chat: ChatFormat) -> None:
        self.chat, self.text = chat, TextEncoder(chat.tokenizer)
        self.native = self._has_tools()

    def _has_tools(self) -> bool:
        """Whether the template shows tools, and calls in the form that answers are read in."""
        function = {"name": "probe-name", "description": "probe-about", "parameters": {}}
        call = {"type": "function", "id": "1", "function": {"name": "probe-call", "arguments": {"a": "probe-value"}}}
        asked = [{"role": "user", "content": "-"}]
        made = [{"role": "assistant", "content": "", "tool_calls": [call]}]
        result = [{"role": "tool", "content": "probe-result", "tool_call_id": "1", "name": "probe-call"}]

        def shown(messages: list[dict[str, Any]], **tools: Any) -> str:
            arguments = {**self.chat.template_arguments, **tools}
            return str(self.chat.tokenizer.apply_chat_template(messages, tokenize=False, **arguments))

        try:
            described = shown(asked, tools=[{"type": "function", "function": function}])
            used = shown([*asked, *made, *result])
        except Exception:  # a template is a program, and may fail in any way
            return False
        calls = read_calls(used)[1]
        return "probe-name" in described and "probe-result" in used and ("probe-call", '{"a": "probe-value"}') in calls

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        try:
            return self.text.chat(self._shown(messages, tools), **self._template(tools))
        except TemplateError as error:
            raise Unrenderable(one_line(error)) from error

    def extend(self, said: Exchange, new: Sequence[Message], tools: Sequence[Tool]) -> list[int] | None:
        place = len(self._shown(said.messages, tools)) - 1
        shown = self._shown([*said.messages, *new], tools)
        shown[place] = {"role": "assistant", "content": ""}
        try:
            rest = self.text.following(shown, place, **self._template(tools))
        except TemplateError:
            return None
        if rest is None:
            return None
        # The template closes the answer with a token that the model has mostly written itself.
        closed = self.chat.has_ended(said.completion) and self.chat.has_ended(rest[:1])
        return [*said.prompt, *said.completion, *rest[closed:]]

    def read(self, said: Exchange, tools: Sequence[Tool]) -> Reading:
        text, reasoning = self.chat.answer(said.completion), ""
        if "</think>" in text:
            reasoning, _, text = text.partition("</think>")
            reasoning = reasoning.removeprefix("<think>").strip("\n")
        if not tools:
            return Reading(text, reasoning)
        rest, calls, _ = read_calls(text)
        return Reading(rest, reasoning, [Call(*call) for call in calls]) if calls else Reading(text, reasoning)

    def token(self, token: int) -> str:
        return str(self.chat.tokenizer.decode([token]))

    def _shown(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Any]:
        given = [_with_values(message) for message in messages] if self.native else plain_messages(messages, tools)
        return merge_context(given, "", self.chat.system_role)

    def _template(self, tools: Sequence[Tool]) -> dict[str, Any]:
        wrapped = [{"type": "function", "function": dict(tool)} for tool in tools]
        described = {"tools": wrapped} if tools and self.native else {}
        return {"add_generation_prompt": True, **self.chat.template_arguments, **described}


class Rendered:
    """By the package `renderers`."""

    def __init__(self, chat: ChatFormat, renderer: Any) -> None:
        self.chat, self.renderer, self.text = chat, renderer, TextEncoder(chat.tokenizer)

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        try:
            return list(
                self.renderer.render_ids(self._safe(messages), tools=self._tools(tools), add_generation_prompt=True)
            )
        except Exception as error:  # somebody else's code, given what anybody may send
            raise Unrenderable(one_line(error)) from error

    def extend(self, said: Exchange, new: Sequence[Message], tools: Sequence[Tool]) -> list[int] | None:
        before = [*said.prompt], [*said.completion]
        try:
            bridged = self.renderer.bridge_to_next_turn(*before, self._safe(new), tools=self._tools(tools))
        except Exception:  # as above; the session counts it as `rerendered`
            return None
        ids = None if bridged is None else list(bridged.token_ids)
        kept = [*said.prompt, *said.completion]
        return ids if ids and ids[: len(kept)] == kept else None

    def read(self, said: Exchange, tools: Sequence[Tool]) -> Reading:
        ids, prompt = list(said.completion), list(said.prompt)
        parsed = self.renderer.parse_response(ids, tools=self._tools(tools), prompt_ids=prompt)
        calls, content = [], parsed.content or ""
        for call in parsed.tool_calls:
            arguments = call.arguments if isinstance(call.arguments, dict) else loaded(call.arguments or "{}")
            if call.status == "ok" and call.name and isinstance(arguments, dict):
                calls.append(Call(call.name, json.dumps(arguments, ensure_ascii=False)))
            else:  # as it was written, so that the agent can say what is wrong with it
                content += call.raw
        return Reading(content, parsed.reasoning_content or "", calls)

    def token(self, token: int) -> str:
        return str(self.chat.tokenizer.decode([token]))

    def _safe(self, messages: Sequence[Message]) -> list[Any]:
        """The messages with a space inside the texts of special tokens, which the package would encode as those."""
        return [replace_texts(_with_values(each), lambda text: self.text.defused(whole(text))) for each in messages]

    def _tools(self, tools: Sequence[Tool]) -> list[Any] | None:
        return [replace_texts(dict(tool), lambda text: self.text.defused(whole(text))) for tool in tools] or None


def _with_values(message: Message) -> dict[str, Any]:
    """The message with the arguments of its calls as values, which templates write as JSON again."""
    calls = [
        {**call, "function": {**call["function"], "arguments": loaded(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)
