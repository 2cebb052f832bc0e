"""Anthropic's messages."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from fastslow.gateway.chat_completions import Choice, Form, form_note, offered, pieces, tool_spec
from fastslow.gateway.session import Refused, Said, Session, Wanted
from fastslow.models.tool_text import loaded


class _Block(BaseModel):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: str | list[_Block] | None = None


class _Message(BaseModel):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class _Tool(BaseModel):
    type: str | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _Output(BaseModel):
    format: Form | None = None


class Body(BaseModel):
    """What is read of a request; everything else in it is accepted and has no effect, but for what is refused."""

    refused: ClassVar = {"mcp_servers": "tools that run elsewhere", "container": "tools that run elsewhere"}

    model: str = ""
    messages: list[_Message] = Field(min_length=1)
    system: str | list[_Block] | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    tools: list[_Tool] | None = None
    tool_choice: Choice | None = None
    output_config: _Output | None = None
    output_format: Form | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)

    def wanted(self, session: Session) -> Wanted:
        for tool in self.tools or ():
            if tool.input_schema is None:
                raise Refused(
                    400, "unsupported", f"there is a tool of type '{tool.type}'; expected tools with a schema"
                )
        given_tools = [tool_spec(each.name, each.description, each.input_schema) for each in self.tools or ()]
        tools, note = offered(self.tool_choice, given_tools)
        system = [{"role": "system", "content": _text(self.system)}] if self.system else []
        form = self.output_config.format if self.output_config else self.output_format
        notes = [note, form_note(form)]
        return Wanted(
            self.model,
            [*system, *(message for each in self.messages for message in _messages(each))],
            tools,
            "\n".join(filter(None, notes)),
            limit=self.max_tokens,
            stop=self.stop_sequences or (),
            temperature=self.temperature,
            top_p=self.top_p,
        )

    def response(self, said: Sequence[Said], session: Session, wanted: Wanted) -> dict[str, Any]:
        (answer,) = said
        return {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": _blocks(answer),
            "stop_reason": _reason(answer),
            "stop_sequence": answer.stopped,
            "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens},
        }

    def events(self, said: Sequence[Said], session: Session, wanted: Wanted) -> Iterator[str]:
        whole = self.response(said, session, wanted)
        usage = whole["usage"] | {"output_tokens": 0}
        begun = {**whole, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield event({"type": "message_start", "message": begun})
        for index, block in enumerate(whole["content"]):
            kind = block["type"]
            empty = {**block, **({"input": {}} if kind == "tool_use" else {"text": ""})}
            yield event({"type": "content_block_start", "index": index, "content_block": empty})
            parts = [json.dumps(block["input"])] if kind == "tool_use" else pieces(block["text"])
            for part in parts:
                delta = (
                    {"type": "input_json_delta", "partial_json": part}
                    if kind == "tool_use"
                    else {"type": "text_delta", "text": part}
                )
                yield event({"type": "content_block_delta", "index": index, "delta": delta})
            yield event({"type": "content_block_stop", "index": index})
        ending = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
        yield event({"type": "message_delta", "delta": ending, "usage": whole["usage"]})
        yield event({"type": "message_stop"})


def event(data: dict[str, Any]) -> str:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"


def error_body(error: Refused) -> dict[str, Any]:
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
    kind = kinds.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": str(error), "code": error.code}}


def _blocks(said: Said) -> list[dict[str, Any]]:
    """The answer as blocks, without its thoughts, which a client would have to send back with a signature."""
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": key, "name": call.name, "input": loaded(call.arguments)} for key, call in said.calls
    ]
    return [{"type": "text", "text": said.content}, *blocks] if said.content or not blocks else blocks


def _reason(said: Said) -> str:
    if said.stopped is not None:
        return "stop_sequence"
    return {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[said.finish]


def _messages(given: _Message) -> Iterator[dict[str, Any]]:
    """A message in the shape of OpenAI: several, where it holds results of tools."""
    if isinstance(given.content, str):
        yield {"role": given.role, "content": given.content}
        return
    for block in given.content:
        if block.type == "tool_result":
            yield {"role": "tool", "content": _text(block.content), "tool_call_id": block.tool_use_id, "name": ""}
    text = _text([each for each in given.content if each.type not in ("tool_result", "tool_use")])
    calls = [
        {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": json.dumps(each.input)}}
        for each in given.content
        if each.type == "tool_use"
    ]
    if text or calls or not any(each.type == "tool_result" for each in given.content):
        yield {"role": given.role, "content": text, **({"tool_calls": calls} if calls else {})}


def _text(content: str | Sequence[_Block] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for block in content:
        if block.type not in ("text", "thinking", "redacted_thinking"):
            raise Refused(
                400, "unsupported", f"a message holds a block of type '{block.type}'; the policy reads text only"
            )
    return "".join(block.text for block in content)
