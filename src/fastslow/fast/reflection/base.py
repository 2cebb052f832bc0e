"""The protocols of reflection: a `Reflector` proposes a text, given a parent's text and its attempts; a `Chat` is the model
that it asks, wherever that runs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from fastslow.fast.kinds import KINDS, Kind


@dataclass(frozen=True)
class Attempt:
    """One traced rollout as the reflector sees it."""

    question: str
    """The messages that the policy was shown, without the context, as text."""
    answer: str
    """What the policy answered in this component."""
    feedback: str
    """The grader's feedback."""
    score: float


@dataclass(frozen=True)
class Request:
    """A request for one edit of a parent's text."""

    component: str
    text: str
    """The parent's text for this component."""
    attempts: Sequence[Attempt]
    proposer: Literal["light", "full"]
    max_tokens: int
    """Token budget of the new text."""
    count_tokens: Callable[[str], int]
    seed: int
    """All randomness of the edit depends on it."""
    kind: Kind = KINDS["prompt"]


@dataclass(frozen=True)
class TextRequest:
    """A request for any other text that an optimizer needs: the prompt for a model, and how to write it without one."""

    prompt: str
    """Asks for the text inside a block fenced by `fence`."""
    by_hand: Callable[[random.Random], str]
    """Writes the text without a model, from no more than the prompt shows; raises `ReflectionFailed` where it cannot."""
    max_tokens: int
    count_tokens: Callable[[str], int]
    fence: str = "```"
    kind: Kind = KINDS["prompt"]


@dataclass
class Usage:
    """What reflection has cost so far. The reflector adds to it; the loop books it."""

    calls: int = 0
    """Answers requested from a model; asking again after an unusable answer counts again."""
    retries: int = 0
    """Retries after a transient fault of the connection to a model."""
    failures: int = 0
    """Requests that ended in `ReflectionFailed`."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Time inside the reflector, pauses included."""
    cost: float = 0.0
    """US dollars, for models whose price is known."""

    def add(self, **more: float) -> None:
        for name, amount in more.items():
            setattr(self, name, getattr(self, name) + amount)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time that one request takes, and its failure."""
        started = time.perf_counter()
        try:
            yield
        except ReflectionFailed:
            self.add(failures=1)
            raise
        finally:
            self.add(seconds=time.perf_counter() - started)


class ReflectionFailed(Exception):
    """No usable edit came back; str(error) is the reason.

    `permanent` says that every further request would fail in the same way (a refused key, an unknown model).
    """

    def __init__(self, reason: str, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class Reflector(Protocol):
    """Edits a context's text. The new text differs from the parent's, is not empty and is within the token budget.

    It is called on the main process alone; one that samples the policy, so that all processes must call it together, has an
    attribute `collective` that is true.
    """

    usage: Usage
    """Replaced by an empty one whenever the loop has booked it."""

    def __call__(self, request: Request) -> str:
        """The new text; raises `ReflectionFailed` and nothing else when there is none."""
        ...

    def write(self, request: TextRequest, seed: int) -> str:
        """The text that an optimizer other than gepa requests; fails in the same way."""
        ...


@dataclass(frozen=True)
class Reply:
    """One answer and what it cost."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    retries: int = 0
    """Retries before this answer."""
    truncated: bool = False
    """The answer reached its length limit."""


class ChatFailed(Exception):
    """There is no answer; str(error) is the reason. `permanent` says that a retry cannot help, `asked` whether the model was
    asked at all."""

    def __init__(self, reason: str, retries: int = 0, permanent: bool = False, asked: bool = True) -> None:
        super().__init__(reason)
        self.retries = retries
        self.permanent = permanent
        self.asked = asked


class Chat(Protocol):
    """Answers a list of `role`/`content` messages; the same seed asks for the same answer. Raises `ChatFailed`."""

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply: ...
