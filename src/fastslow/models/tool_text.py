"""Tools in plain text, for a policy without a tool interface of its own: they are described in the system message, and calls
are read from the text of the answer: JSON between <tool_call> and </tool_call>, the form that Qwen and Hermes models are
trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
TOOLS = """You can call tools. These are their names, what they do and the JSON schemas of their parameters:
%s
To call one, write its name and its arguments as JSON between tags:
<tool_call>{"name": "NAME", "arguments": {}}</tool_call>
Its result comes back between <tool_response> and </tool_response>."""


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


def plain_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Messages in the shape of OpenAI as text only, with tools described after the system messages."""
    shown: list[tuple[str, list[str]]] = []
    for place, message in enumerate(messages):
        text = str(message.get("content") or "")
        if message["role"] == "assistant":
            called = [each["function"] for each in message.get("tool_calls") or ()]
            calls = [{"name": each["name"], "arguments": loaded(each["arguments"])} for each in called]
            blocks = [f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>" for call in calls]
            shown.append(("assistant", [text, *blocks] if text else blocks))
        elif message["role"] == "tool":
            result = f"<tool_response>\n{text}\n</tool_response>"
            if place and messages[place - 1]["role"] == "tool":
                shown[-1][1].append(result)
            else:
                shown.append(("user", [result]))
        else:
            shown.append((message["role"], [text]))
    if tools:
        first = next((place for place, (role, _) in enumerate(shown) if role != "system"), len(shown))
        lines = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in tools)
        shown.insert(first, ("system", [TOOLS % lines]))
    return [{"role": role, "content": "\n".join(parts)} for role, parts in shown]


def loaded(text: str) -> Any:
    """The value of a JSON text; the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
