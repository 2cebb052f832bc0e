"""Between an environment's messages and the plain text a policy reads and writes.

The policy is a chat model without a tool interface, so tools are described in the system message, and calls are read from
the text of the answer: JSON between <tool_call> and </tool_call>, the form that Qwen and Hermes models are trained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import Message

Tool = Mapping[str, Any]
"""Name, description and the JSON schema of the parameters."""
Say = Callable[[list[Message]], Awaitable[str]]
"""What an environment awaits for the policy's answer to messages."""
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A tool call; the arguments are JSON text, as the library wants them."""

    id: str
    name: str
    arguments: str


@dataclass
class Policy:
    """The model that plays, as an environment sees it. The context stands in the place of the message `system`."""

    say: Say
    system: str | None = None
    answers: int = 0
    calls: int = 0
    unreadable: list[str] = field(default_factory=list)

    async def answer(self, messages: Sequence[Any], tools: Sequence[Tool]) -> tuple[str, list[Call]]:
        """The next turn: the text, and the tool calls that were in it."""
        text = await self.say(plain_messages(messages, tools, self.system))
        self.answers += 1
        if not tools:
            return text, []
        rest, blocks, unreadable = read_calls(text)
        self.unreadable += unreadable
        calls = [Call(f"call-{self.calls + number}", *block) for number, block in enumerate(blocks, 1)]
        self.calls += len(calls)
        return rest, calls


def describe_tools(tools: Sequence[Tool]) -> str:
    """The tools and how to call them, for the system message."""
    lines = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in tools)
    return (
        f"You can call tools. These are their names, what they do and the JSON schemas of their parameters:\n{lines}\n"
        "To call one, write its name and its arguments as JSON between tags:\n"
        '<tool_call>{"name": "NAME", "arguments": {}}</tool_call>\n'
        "Its result comes back between <tool_response> and </tool_response>."
    )


def read_calls(text: str) -> tuple[str, list[tuple[str, str]], list[str]]:
    """The text without its tool calls, their names and arguments, and the blocks that are none."""
    calls: list[tuple[str, str]] = []
    unreadable: list[str] = []

    def take(block: re.Match[str]) -> str:
        try:
            call = json.loads(block[1])
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            name, arguments = None, None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            unreadable.append(block[0])
            return block[0]
        calls.append((name, json.dumps(arguments, ensure_ascii=False)))
        return ""

    return _CALL.sub(take, text).strip(), calls, unreadable


def plain_messages(messages: Sequence[Any], tools: Sequence[Tool], system: str | None) -> list[Message]:
    """What the policy is shown: text only, without the system message that the context replaces, tools described."""
    shown: list[Message] = []
    for place, message in enumerate(messages):
        text = content_text(message.content)
        if message.role == "system" and place == 0 and text == system:
            continue
        if message.role == "assistant":
            calls = [{"name": call.name, "arguments": _json(call.arguments)} for call in message.tool_calls or []]
            blocks = [f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>" for call in calls]
            shown.append({"role": "assistant", "content": "\n".join([text, *blocks] if text else blocks)})
        elif message.role == "tool":
            result = f"<tool_response>\n{text}\n</tool_response>"
            if place and messages[place - 1].role == "tool":
                shown[-1] = {"role": "user", "content": f"{shown[-1]['content']}\n{result}"}
            else:
                shown.append({"role": "user", "content": result})
        else:
            shown.append({"role": message.role, "content": text})
    if tools:
        first = next((place for place, message in enumerate(shown) if message["role"] != "system"), len(shown))
        shown.insert(first, {"role": "system", "content": describe_tools(tools)})
    return shown


def content_text(content: Any) -> str:
    """The text of a message; pictures and sound cannot be shown."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else getattr(part, "text", None)
        if text is None:
            raise TaskError(
                f"a message holds {one_line(part, 80)}, but the policy reads text only; use a text environment"
            )
        texts.append(text)
    return "\n".join(texts)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
