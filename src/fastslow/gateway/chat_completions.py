"""OpenAI's chat completions."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from fastslow.gateway.session import Refused, Said, Session, Wanted


class _Function(BaseModel):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    arguments: str = "{}"


class _Part(BaseModel):
    type: str = "text"
    text: str | None = None
    refusal: str | None = None


class _Call(BaseModel):
    id: str = ""
    function: _Function


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class _Tool(BaseModel):
    type: str = "function"
    function: _Function | None = None


class _Stream(BaseModel):
    include_usage: bool | None = None


class _Named(BaseModel):
    name: str | None = None


class _Chosen(BaseModel):
    type: str = "function"
    name: str | None = None
    function: _Named | None = None

    @property
    def tool(self) -> str | None:
        return self.name or (self.function.name if self.function else None)


class _Allowed(BaseModel):
    mode: Literal["auto", "required"] = "auto"
    tools: list[_Chosen] = []


class Choice(_Chosen, _Allowed):
    """Which tool is to be called, or may be."""

    type: str = "auto"
    allowed_tools: _Allowed | None = None


class _Schema(BaseModel):
    given: dict[str, Any] | None = Field(default=None, alias="schema")


class Form(BaseModel):
    """The form that an answer is to have."""

    type: str | None = None
    json_schema: _Schema | None = None
    given: dict[str, Any] | None = Field(default=None, alias="schema")


class Body(BaseModel):
    """What is read of a request; everything else in it is accepted and has no effect, but for what is refused."""

    refused: ClassVar = {"functions": "the older form of tools", "audio": "sound"}

    model: str = ""
    messages: list[_Message] = Field(min_length=1)
    tools: list[_Tool] | None = None
    tool_choice: str | Choice | None = None
    n: int | None = Field(default=None, ge=1, le=128)
    stop: str | list[str] | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: Form | None = None
    stream: bool | None = None
    stream_options: _Stream | None = None
    logprobs: bool | None = None
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None

    def wanted(self, session: Session) -> Wanted:
        tools, note = offered(self.tool_choice, [_tool(each) for each in self.tools or ()])
        return Wanted(
            self.model,
            [_message(each) for each in self.messages],
            tools,
            "\n".join(filter(None, [note, form_note(self.response_format)])),
            self.n or 1,
            self.max_completion_tokens or self.max_tokens,
            [self.stop] if isinstance(self.stop, str) else self.stop or (),
            bool(self.logprobs),
            self.temperature,
            self.top_p,
            self.seed,
        )

    def response(self, said: Sequence[Said], session: Session, wanted: Wanted) -> dict[str, Any]:
        choices = [
            {
                "index": place,
                "message": _assistant(each),
                "finish_reason": each.finish,
                "logprobs": _logprobs(each) if self.logprobs else None,
            }
            for place, each in enumerate(said)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": usage(said)}

    def events(self, said: Sequence[Said], session: Session, wanted: Wanted) -> Iterator[str]:
        head = self._head("chat.completion.chunk")

        def chunk(place: int, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> str:
            choice = {"index": place, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
            return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"

        for place, each in enumerate(said):
            yield chunk(place, {"role": "assistant", "content": ""})
            if each.reasoning:
                yield chunk(place, {"reasoning_content": each.reasoning})
            for piece in pieces(each.content):
                yield chunk(place, {"content": piece})
            for number, (key, call) in enumerate(each.calls):
                function = {"name": call.name, "arguments": call.arguments}
                yield chunk(
                    place, {"tool_calls": [{"index": number, "id": key, "type": "function", "function": function}]}
                )
            yield chunk(place, {}, each.finish, _logprobs(each) if self.logprobs else None)
        if self.stream_options and self.stream_options.include_usage:
            yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage(said)})}\n\n"
        yield "data: [DONE]\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": self.model}


def error_body(error: Refused) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}


def usage(said: Sequence[Said]) -> dict[str, int]:
    prompt, completion = said[0].prompt_tokens, sum(each.completion_tokens for each in said)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def pieces(text: str) -> list[str]:
    """The text in lines: the answer is sampled as a whole before it is sent."""
    return text.splitlines(keepends=True)


def text_of(content: Any) -> str:
    """The text of a message's content."""
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if part.text is None and part.refusal is None:
            raise Refused(
                400, "unsupported", f"a message holds a part of type '{part.type}'; the policy reads text only"
            )
    return "".join(part.text or part.refusal or "" for part in content)


def offered(choice: str | Choice | None, tools: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], str]:
    """The tools that the model is shown, and what the request demands of them: the model is told, nothing forces it."""
    chosen = choice if isinstance(choice, Choice) else Choice(type=choice or "auto")
    if chosen.type == "none" or not tools:
        return (), ""
    known = dict.fromkeys(tool["name"] for tool in tools)
    if chosen.type == "allowed_tools":
        allowed = chosen.allowed_tools or chosen
        named, must = _known([each.tool for each in allowed.tools], known), allowed.mode == "required"
        words = f"Answer with a call of one of the tools {named}." if must else f"Call no other tools than {named}."
        return tools, words
    if chosen.tool or chosen.type in ("function", "tool"):
        return tools, f"Answer with a call of the tool {_known([chosen.tool], known)}."
    if chosen.type in ("auto", "required", "any"):
        return tools, "" if chosen.type == "auto" else "Answer with a call of one of the tools."
    raise Refused(
        400, "unsupported", f"tool_choice is '{chosen.type}'; expected auto, none, required or a tool of the request"
    )


def _known(names: Sequence[str | None], known: Collection[str]) -> str:
    for name in names or [None]:
        if name not in known:
            raise Refused(400, "invalid_request", f"tool_choice names '{name}'; the tools are {', '.join(known)}")
    return ", ".join(filter(None, names))


def form_note(form: Form | None) -> str:
    """What a request demands of the answer's form."""
    if form is None or form.type not in ("json_object", "json_schema"):
        return ""
    schema = (form.json_schema and form.json_schema.given) or form.given
    follows = f" that follows this schema: {json.dumps(schema, ensure_ascii=False)}" if schema else ""
    return f"Answer with JSON only{follows}."


def _message(given: _Message) -> dict[str, Any]:
    role = {"developer": "system", "function": "tool"}.get(given.role, given.role)
    message: dict[str, Any] = {"role": role, "content": text_of(given.content)}
    if role == "assistant" and given.tool_calls:
        calls = [{"name": call.function.name, "arguments": call.function.arguments} for call in given.tool_calls]
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(given.tool_calls, calls, strict=True)
        ]
    if role == "tool":
        message |= {"tool_call_id": given.tool_call_id or "", "name": given.name or ""}
    return message


def _tool(given: _Tool) -> dict[str, Any]:
    if given.function is None:
        raise Refused(400, "unsupported", f"there is a tool of type '{given.type}'; expected functions")
    return tool_spec(given.function.name, given.function.description, given.function.parameters)


def tool_spec(name: str, description: str | None, parameters: dict[str, Any] | None) -> dict[str, Any]:
    return {"name": name, "description": description or "", "parameters": parameters or {}}


def _assistant(said: Said) -> dict[str, Any]:
    message = said.message | {"content": said.content or (None if said.calls else ""), "refusal": None}
    return message | ({"reasoning_content": said.reasoning} if said.reasoning else {})


def _logprobs(said: Said) -> dict[str, Any]:
    content = [
        {"token": text, "logprob": max(number, -1e9), "bytes": list(text.encode(errors="replace")), "top_logprobs": []}
        for text, number in said.tokens
    ]
    return {"content": content, "refusal": None}
