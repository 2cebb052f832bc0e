"""What a task is: problems, how they are shown, how they are graded.

A task is a generator over one problem: it yields an `Ask` (messages for one named component of the program), is sent the
model's answer as text, and returns `Feedback`. One question, many turns, tools and programs of several prompted modules are
then the same thing to everything above.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

Split = Literal["train", "validation", "test"]
Message = dict[str, str]
SYSTEM = "system"
"""The component of a task that asks one question: its text is the system message."""


@dataclass(frozen=True)
class Example:
    """One problem. The id is stable across runs and cycles, never a list position; `data` is the task's own."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Feedback:
    """What a grader returns: a score in [0, 1] and words that say what was wrong and what would be right."""

    score: float
    text: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    by_component: Mapping[str, str] = field(default_factory=dict)
    """Words for one component alone, in place of `text`; empty where the attempt has nothing to teach it."""
    progress: float = 0.0
    """How far an answer got that is not right, from 0 to 1. While no context has led to a right answer the fast loop prefers
    the one under which answers get further: there is nothing else to go by. Nothing is trained on it."""


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
        """Ask the model as often as needed, then grade. An exception scores 0 with its text as feedback."""

    def play_under(self, example: Example, texts: Mapping[str, str]) -> Generator[Ask, str, Feedback]:
        """Play under a context's texts. A task that writes them into its messages itself overrides this and yields asks
        that are `complete`; for all others they go in front of the messages."""
        return self.play(example)

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
