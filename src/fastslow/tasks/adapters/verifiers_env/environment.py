"""What the task needs of an environment of either interface of the library, in plain text that a policy reads and writes.

The policy is a chat model without a tool interface, so tools are described in the system message, and calls are read from
the text of the answer: JSON between <tool_call> and </tool_call>, the form that Qwen and Hermes models are trained on.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import Message

Part = Literal["train", "evaluation"]
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
TOOLS = """You can call tools. These are their names, what they do and the JSON schemas of their parameters:
%s
To call one, write its name and its arguments as JSON between tags:
<tool_call>{"name": "NAME", "arguments": {}}</tool_call>
Its result comes back between <tool_response> and </tool_response>."""


@dataclass(frozen=True)
class Problem:
    """One row of an environment: a name that comes from its content, what is shown, and the library's own object."""

    id: str
    system: str | None
    question: str
    row: Any
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Reward:
    """What one reward function gave, how much it counts, and what its author wrote about it."""

    name: str
    value: float
    weight: float
    about: str = ""


@dataclass(frozen=True)
class Outcome:
    """A played and scored problem. `said` is what the environment itself has to say about it, `form` the form it reads
    answers in."""

    reward: float
    rewards: Sequence[Reward]
    stop: str | None = None
    said: str = ""
    form: str = ""


class Call(NamedTuple):
    """A tool call; the arguments are JSON text, as the library wants them."""

    id: str
    name: str
    arguments: str


@dataclass
class Policy:
    """The model that plays, as an environment sees it. The context stands in the place of the message `system`."""

    say: Callable[[list[Message]], Awaitable[str]]
    system: str | None = None
    answers: int = 0
    calls: int = 0
    unreadable: list[str] = field(default_factory=list)

    async def answer(self, messages: Sequence[Any], tools: Sequence[Mapping[str, Any]]) -> tuple[str, list[Call]]:
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


class Environment(Protocol):
    """An environment that is loaded."""

    def problems(self, limit: int | None) -> dict[Part, list[Problem]]:
        """Its rows, those it keeps for evaluation apart where it has any."""

    async def play(self, problem: Problem, policy: Policy, words: str) -> Outcome:
        """One rollout, scored; `words` names the entry in which the environment leaves words about it."""


def first_paragraph(function: Any) -> str:
    """What a function says about itself."""
    return one_line((inspect.getdoc(function) or "").partition("\n\n")[0])


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


def plain_messages(messages: Sequence[Any], tools: Sequence[Mapping[str, Any]], system: str | None) -> list[Message]:
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
        lines = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in tools)
        shown.insert(first, {"role": "system", "content": TOOLS % lines})
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
