"""What the task needs of an environment of either interface of the library, in plain text that a policy reads and writes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.models import tool_text
from fastslow.tasks.base import Message

Part = Literal["train", "evaluation"]


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
        rest, blocks, unreadable = tool_text.read_calls(text)
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


def plain_messages(messages: Sequence[Any], tools: Sequence[Mapping[str, Any]], system: str | None) -> list[Message]:
    """What the policy is shown: text only, without the system message that the context replaces, tools described."""
    given: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        text = content_text(message.content)
        if message.role == "system" and place == 0 and text == system:
            continue
        called = (message.tool_calls or []) if message.role == "assistant" else []
        calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in called]
        given.append({"role": message.role, "content": text, "tool_calls": calls})
    return tool_text.plain_messages(given, tools)


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
