"""OpenAI's responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from fastslow.gateway.chat_completions import Choice, Form, form_note, offered, pieces, text_of, tool_spec
from fastslow.gateway.messages import event
from fastslow.gateway.session import Refused, Said, Session, Wanted


class _Part(BaseModel):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Item(BaseModel):
    type: str = "message"
    role: str = ""
    content: str | list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | list[_Part] | None = None


class _Tool(BaseModel):
    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Text(BaseModel):
    format: Form | None = None


class Body(BaseModel):
    """What is read of a request; everything else in it is accepted and has no effect, but for what is refused."""

    refused: ClassVar = {
        "conversation": "a conversation that is kept elsewhere",
        "prompt": "a prompt that is kept elsewhere",
    }

    model: str = ""
    input: str | list[_Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[_Tool] | None = None
    tool_choice: str | Choice | None = None
    text: _Text | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)

    def wanted(self, session: Session) -> Wanted:
        for tool in self.tools or ():
            if tool.type != "function":
                raise Refused(400, "unsupported", f"there is a tool of type '{tool.type}'; expected functions")
        given_tools = [tool_spec(each.name, each.description, each.parameters) for each in self.tools or ()]
        tools, note = offered(self.tool_choice, given_tools)
        before: Sequence[Any] = ()
        if self.previous_response_id is not None:
            found = session.stored.get(self.previous_response_id)
            if found is None:
                raise Refused(404, "not_found", f"there is no response '{self.previous_response_id}' of this rollout")
            before = [each for each in found if each["role"] != "system"]
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        given = [_Item(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        messages = [*system, *before, *_messages(given)]
        if not messages:
            raise Refused(400, "invalid_request", "input: expected at least one message")
        notes = [note, form_note(self.text.format if self.text else None)]
        return Wanted(
            self.model,
            messages,
            tools,
            "\n".join(filter(None, notes)),
            limit=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
        )

    def response(self, said: Sequence[Said], session: Session, wanted: Wanted) -> dict[str, Any]:
        (answer,) = said
        name = f"resp_{uuid.uuid4().hex}"
        session.store(name, [*wanted.messages, answer.message])
        cut = answer.finish == "length"
        used = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {
            "id": name,
            "object": "response",
            "created_at": int(time.time()),
            "model": self.model,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "instructions": self.instructions,
            "metadata": {},
            "output": _output(answer),
            "parallel_tool_calls": True,
            "previous_response_id": self.previous_response_id,
            "temperature": self.temperature,
            "tool_choice": self.model_dump(exclude_unset=True).get("tool_choice") or "auto",
            "tools": [each.model_dump(exclude_none=True) | {"strict": None} for each in self.tools or ()],
            "top_p": self.top_p,
            "usage": {**used, "total_tokens": sum(used.values()), **details},
        }

    def events(self, said: Sequence[Said], session: Session, wanted: Wanted) -> Iterator[str]:
        whole = self.response(said, session, wanted)
        number = iter(range(10**9))

        def sent(kind: str, **data: Any) -> str:
            return event({"type": f"response.{kind}", "sequence_number": next(number), **data})

        begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield sent("created", response=begun)
        yield sent("in_progress", response=begun)
        for place, item in enumerate(whole["output"]):
            where = {"item_id": item["id"], "output_index": place}
            if item["type"] == "function_call":
                empty = item | {"arguments": "", "status": "in_progress"}
                yield sent("output_item.added", output_index=place, item=empty)
                yield sent("function_call_arguments.delta", **where, delta=item["arguments"])
                named = {"name": item["name"], "arguments": item["arguments"]}
                yield sent("function_call_arguments.done", **where, **named)
            else:
                (part,) = item["content"]
                empty = item | {"content": [], "status": "in_progress"}
                yield sent("output_item.added", output_index=place, item=empty)
                yield sent("content_part.added", **where, content_index=0, part=part | {"text": ""})
                for piece in pieces(part["text"]):
                    yield sent("output_text.delta", **where, content_index=0, delta=piece, logprobs=[])
                yield sent("output_text.done", **where, content_index=0, text=part["text"], logprobs=[])
                yield sent("content_part.done", **where, content_index=0, part=part)
            yield sent("output_item.done", output_index=place, item=item)
        yield sent("incomplete" if whole["status"] == "incomplete" else "completed", response=whole)


def _output(said: Said) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.content or not said.calls:
        part = {"type": "output_text", "text": said.content, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{uuid.uuid4().hex}", "role": "assistant"}
        items.append({**message, "status": "completed", "content": [part]})
    for key, call in said.calls:
        named = {"call_id": key, "name": call.name, "arguments": call.arguments}
        items.append({"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "status": "completed", **named})
    return items


def _messages(items: Sequence[_Item]) -> list[dict[str, Any]]:
    """The items in the shape of OpenAI's chat; text and calls of one answer are one message again."""
    messages: list[dict[str, Any]] = []
    for item in items:
        if item.type == "function_call":
            function = {"name": item.name, "arguments": item.arguments}
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            messages[-1].setdefault("tool_calls", []).append(
                {"id": item.call_id, "type": "function", "function": function}
            )
        elif item.type == "function_call_output":
            messages.append({"role": "tool", "content": text_of(item.output), "tool_call_id": item.call_id, "name": ""})
        elif item.type == "message":
            role = "system" if item.role == "developer" else item.role
            if role not in ("system", "user", "assistant"):
                raise Refused(400, "invalid_request", f"input: there is a message of role '{item.role}'")
            messages.append({"role": role, "content": text_of(item.content)})
        elif item.type != "reasoning":
            raise Refused(
                400, "unsupported", f"there is an item of type '{item.type}'; the policy reads text and calls"
            )
    return messages
