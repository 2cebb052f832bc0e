"""What a task is: problems, how they are shown, how they are graded.

A task is a generator over one problem: it yields an `Ask` (messages for one named component of the program), is sent the
model's answer as text, and returns `Feedback`. One question, many turns, tools and programs of several prompted modules are
then the same thing to everything above.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from fastslow.records import Example, Feedback

Split = Literal["train", "validation", "test"]
Message = dict[str, str]
SYSTEM = "system"
"""The component of a task that asks one question: its text is the system message."""


@dataclass(frozen=True)
class Ask:
    """One call of the model: the messages, and the component whose context text goes in front of them."""

    component: str
    messages: Sequence[Message]
    complete: bool = False
    """The context's text stands in the system message already (see `Task.play_under`), and none goes in front."""

    def context(self, texts: Mapping[str, str]) -> str:
        """The text that goes in front of the messages."""
        return "" if self.complete else texts[self.component]

    @property
    def question(self) -> str:
        """What is asked, without the context."""
        shown = [message for message in self.messages if not (self.complete and message["role"] == "system")]
        return "\n\n".join(message["content"] for message in shown)


class Answer(str):
    """What the model wrote, as a task is sent it: text, with its tokens (end token included) for those who count them."""

    ids: Sequence[int]

    def __new__(cls, text: str, ids: Sequence[int] = ()) -> Answer:
        answer = super().__new__(cls, text)
        answer.ids = ids
        return answer


Asking = Callable[[Ask], Awaitable[Answer]]
"""What a rollout awaits for the model's answer."""


class Options(BaseModel):
    """The settings of a task, given beside its name in a recipe. One docstring a field."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)


class Task(ABC):
    """A family of problems. Subclass `QuestionTask` unless one problem takes more than one model call."""

    Options: ClassVar[type[Options]] = Options
    named: ClassVar[str | None] = None
    """The option that NAME fills where a recipe says `task: FAMILY/NAME`."""
    grades_apart: bool = False
    """Grading mostly waits for another process and is safe in several threads at once: answers are then graded beside one
    another, while others are still being written."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @property
    @abstractmethod
    def seed_texts(self) -> Mapping[str, str]:
        """The component names and the text each starts from."""

    @abstractmethod
    def examples(self, split: Split) -> Sequence[Example]:
        """The problems of a split, always the same ones in the same order."""

    @abstractmethod
    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        """Ask the model as often as needed, then grade; an awaitable that is returned is awaited. An exception costs the
        rollout and is counted."""

    def play_under(self, example: Example, texts: Mapping[str, str]) -> Generator[Ask, str, Feedback]:
        """Play under a context's texts. A task that writes them into its messages itself overrides this and yields asks
        that are `complete`; for all others they go in front of the messages."""
        return self.play(example)

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        """One attempt as a coroutine, which is how it is played: it awaits its completions, and while it waits the others
        proceed. This drives `play_under`; code that is asynchronous itself overrides it and calls `await ask(Ask(…))`."""
        game = self.play_under(example, texts)
        answer: str | None = None
        try:
            while True:
                step = asyncio.to_thread(_advance, game, answer) if self.grades_apart else None
                asked = _advance(game, answer) if step is None else await step
                if not isinstance(asked, Ask):
                    return await asked if inspect.isawaitable(asked) else asked
                answer = await ask(asked)
        finally:
            game.close()

    def shown(self, example: Example) -> object:
        """What tells a problem from another when splits are compared (see contamination.py). None where the first question
        does not, as in games that all begin alike: such problems are not compared."""
        return None


class QuestionTask(Task):
    """A task of one question and one graded answer."""

    seed_text: str = "Answer the question."

    @property
    def seed_texts(self) -> Mapping[str, str]:
        return {SYSTEM: self.seed_text}

    @abstractmethod
    def messages(self, example: Example) -> list[Message]:
        """What the model is shown, without the context."""

    def shown(self, example: Example) -> object:
        return self.messages(example)

    @abstractmethod
    def grade(self, example: Example, answer: str) -> Feedback:
        """Score an answer and say in words what is wrong with it."""

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        answer = yield Ask(SYSTEM, self.messages(example))
        return self.grade(example, answer)


def _advance(game: Generator[Ask, str, Any], answer: str | None) -> Any:
    """The next ask, or what the generator returns."""
    try:
        return next(game) if answer is None else game.send(answer)
    except StopIteration as stop:  # which no coroutine may raise
        return stop.value
