"""What a task is: problems, how they are shown, how they are graded.

A rollout is one attempt at one problem. It is a coroutine: it awaits the model's answer to an `Ask` (messages for one named
component of the program) and returns `Feedback`. One question, many turns, tools and programs of several prompted modules
are then the same thing to everything above. Most tasks need no coroutine of their own: `QuestionTask` takes `messages` and
`grade`, and `Task.play` is a generator that yields asks and is sent the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from importlib.util import find_spec
from numbers import Complex, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, SupportsFloat

from pydantic import ConfigDict

from fastslow.base.errors import TaskError
from fastslow.base.world import in_thread
from fastslow.recipe.parts import Checked
from fastslow.records import Component, Example, Feedback, Rollout
from fastslow.sandbox.process import unwatched
from fastslow.tasks.skills import Skills

Split = Literal["train", "validation", "test"]
Message = dict[str, str]
ROUNDING = 1e-6
"""How far beyond its bounds a score may be, relative to what lies between them: sums of fractions are rarely exact, and
graders compute in float32."""
SYSTEM = "system"
"""The component of a task that asks one question: its text is the system message."""


def is_number(value: object) -> bool:
    """Whether a grader may mean this as a score: a number, or a single value of an array library, as `np.all` returns."""
    single = getattr(value, "ndim", None) == 0 and isinstance(value, SupportsFloat) and not isinstance(value, Complex)
    return isinstance(value, Real | Decimal) or single


def within(value: object, low: float = 0.0, high: float = 1.0) -> float | None:
    """A score as a plain number within its bounds, to which one beyond them by rounding is moved; None if it is none."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, str) else math.nan
    except (ArithmeticError, TypeError, ValueError):
        return None
    nearest = min(max(number, low), high)
    return nearest if abs(number - nearest) <= ROUNDING * (high - low) else None


@dataclass(frozen=True)
class Ask:
    """One call of the model: the messages, and the component whose context text goes in front of them."""

    component: str
    messages: Sequence[Message]
    complete: bool = False
    """The messages hold the context's text already, and none goes in front of them."""
    ids: Sequence[int] | None = None
    """The whole prompt as tokens, where whoever asks has rendered it; the messages then only say what is asked."""
    limit: int | None = None
    """The most tokens of the answer, where that is fewer than the recipe allows."""
    stop: Sequence[str] = ()
    """Texts that end the answer. What was sampled after one of them, or after the limit, is dropped."""
    skills: Sequence[str] | None = None
    """The skills that are loaded, by name, in place of those that match the messages best (skills.py)."""

    def context(self, texts: Mapping[str, str]) -> str:
        """The text that goes in front of the messages."""
        if self.complete:
            return ""
        if isinstance(texts, Skills):
            return "\n\n".join(filter(None, texts.shown(self.component, self.messages, self.skills).values()))
        return texts[self.component]

    @property
    def question(self) -> str:
        """What is asked, without the context."""
        shown = [message for message in self.messages if not (self.complete and message["role"] == "system")]
        return "\n\n".join(message["content"] for message in shown)


class PromptTooLong(Exception):
    """The prompt and its completion do not fit the model."""


class Answer(str):
    """What the model wrote, as a task gets it: the text, with its tokens (end token included) and their
    log-probabilities."""

    ids: Sequence[int]
    logprobs: Sequence[float]

    def __new__(cls, text: str, ids: Sequence[int] = (), logprobs: Sequence[float] = ()) -> Answer:
        answer = super().__new__(cls, text)
        answer.ids, answer.logprobs = ids, logprobs
        return answer


Asking = Callable[[Ask], Awaitable[str]]
"""What a rollout calls and awaits for the model's answer; in a run it is an `Answer`."""


class Options(Checked):
    """The settings of a task, given beside its name in a recipe. One docstring a field."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)


class TaskMemory(ABC):
    """What a task keeps of the rollouts of a run, where its later problems follow from earlier answers. It is saved with the
    run; every process has the same."""

    done: bool = False
    """The run has what it was started for, or has spent what it may."""

    @abstractmethod
    def begin(self, recorder: Any) -> None:
        """The run starts, or resumes with what `restore` has read (runs/recorder.py)."""

    @abstractmethod
    def take(self, rollouts: Sequence[Rollout], by: str = "policy") -> None:
        """Take in rollouts that were sampled for training, in order, by the policy or another model."""

    @abstractmethod
    def turn(self) -> None:
        """From here on problems may show what was taken in: a step or the fast loop's part of a cycle has ended."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """What was taken in since the last call, for `candidates.jsonl`."""

    @abstractmethod
    def numbers(self) -> Mapping[str, float]:
        """What to show of it in the row of a step."""

    @abstractmethod
    def to_data(self) -> dict[str, Any]:
        """The memory as JSON data."""

    @abstractmethod
    def restore(self, data: Mapping[str, Any]) -> None:
        """Read what `to_data` returned."""


class Task(ABC):
    """A family of problems. Subclass `QuestionTask` unless one problem takes more than one model call."""

    Options: ClassVar[type[Options]] = Options
    named: ClassVar[str | None] = None
    """The option that NAME fills where a recipe says `task: FAMILY/NAME`."""
    grades_apart: bool = False
    """Grade in threads: for grading that blocks, because it waits for another process or a server, and that is safe in
    several threads at once. The other rollouts proceed meanwhile."""
    grades_at_once: int = os.cpu_count() or 1
    """With `grades_apart`: how many answers are graded at a time."""
    memory: TaskMemory | None = None
    """What it keeps of a run's rollouts, if anything."""

    def __init__(self, options: Any) -> None:
        self.options = options

    seed_text: str
    """The text that a task of one prompt, `system`, starts from: the short form of `components`."""

    @property
    def components(self) -> Sequence[Component]:
        """The parts of the program that evolve. A task of prompts alone may have `seed_texts` instead."""
        return [Component(name, seed=text) for name, text in self.seed_texts.items()]

    @property
    def seed_texts(self) -> Mapping[str, str]:
        """The text that each component starts from, by its name."""
        if type(self).components is not Task.components:
            return {component.name: component.seed for component in self.components}
        if not hasattr(self, "seed_text"):
            raise TaskError(
                f"task {type(self).__name__} says nothing of what evolves; give it components or a seed_text"
            )
        return {SYSTEM: self.seed_text}

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """The least and the most that the parts of its scores can be, by name, as far as that was said."""
        return {}

    @abstractmethod
    def examples(self, split: Split) -> Sequence[Example]:
        """The problems of a split, always the same ones in the same order."""

    def play(self, example: Example) -> Generator[Ask, str, Feedback | Awaitable[Feedback]]:
        """Yield what to ask the model, as often as needed, be sent its answers, and return the feedback, or an awaitable of
        it. Tasks implement this or `rollout`."""
        raise TaskError(f"task {type(self).__name__} implements neither play nor rollout; implement one of them")

    def play_under(
        self, example: Example, texts: Mapping[str, str]
    ) -> Generator[Ask, str, Feedback | Awaitable[Feedback]]:
        """`play`, for tasks that write the context's texts into their messages themselves and yield asks that are
        `complete`. For all others the text of the component goes in front of the messages."""
        return self.play(example)

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        """One attempt under a context's texts. While it awaits a completion or a grader, the other rollouts proceed.

        This drives `play_under`. A task whose code is asynchronous overrides it and calls `await ask(Ask(…))`. An exception
        costs this rollout only and is counted. A rollout that is cancelled cleans up before it ends.
        """
        game = self.play_under(example, texts)
        answer: str | None = None
        try:
            while True:
                if answer is not None and self.grades_apart:
                    with unwatched():
                        await self._slots.acquire()
                    try:
                        step = await in_thread(_advance, game, answer)
                    finally:
                        self._slots.release()
                else:
                    step = _advance(game, answer)
                if not isinstance(step, Ask):
                    feedback: Feedback = await step if inspect.isawaitable(step) else step
                    return feedback
                answer = await ask(step)
        finally:
            with contextlib.suppress(ValueError):  # cancelled while a thread is inside the generator, which ends it
                game.close()

    @cached_property
    def _slots(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.grades_at_once)

    def shown(self, example: Example) -> object:
        """What distinguishes a problem when splits are compared (see stages.py); None where it cannot be compared,
        because the first question does not distinguish it, as in games that all begin alike."""
        return None


class QuestionTask(Task):
    """A task of one question and one graded answer."""

    seed_text = "Answer the question."

    @abstractmethod
    def messages(self, example: Example) -> list[Message]:
        """What the model is shown, without the context."""

    def shown(self, example: Example) -> object:
        return self.messages(example)

    @abstractmethod
    def grade(self, example: Example, answer: str) -> Feedback | Awaitable[Feedback]:
        """Score an answer and say in words what is wrong with it. May be `async def`."""

    def play(self, example: Example) -> Generator[Ask, str, Feedback | Awaitable[Feedback]]:
        answer = yield Ask(SYSTEM, self.messages(example))
        return self.grade(example, answer)


def _advance(game: Generator[Ask, str, Any], answer: str | None) -> Any:
    """The next ask, or what the generator returns."""
    try:
        return next(game) if answer is None else game.send(answer)
    except StopIteration as stop:  # which no coroutine may raise
        return stop.value


def require_package(task: str, module: str, package: str, extra: str = "tasks") -> Path:
    """The folder of a package that only some tasks need, found without importing it; an error says how to install it."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise TaskError(
            f"task '{task}' needs the package {package}, which is not installed; "
            f"install the task families' packages with: pip install 'fastslow[{extra}]'"
        )
    return Path(next(iter(spec.submodule_search_locations)))
