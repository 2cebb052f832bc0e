"""The protocols of reflection: a `Reflector` proposes a text, given a parent's text and its attempts; a `Chat` is the model
that it asks, wherever that runs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Attempt:
    """One traced rollout as the reflector sees it."""

    question: str
    """The messages shown to the model, without the context, as readable text."""
    answer: str
    """What the model wrote for this component."""
    feedback: str
    """The grader's words."""
    score: float


@dataclass(frozen=True)
class Request:
    """One edit that is wanted."""

    component: str
    text: str
    """The parent's text for this component."""
    attempts: Sequence[Attempt]
    proposer: Literal["light", "full"]
    max_tokens: int
    """Token budget of the new text."""
    count_tokens: Callable[[str], int]
    seed: int
    """Everything random follows from it."""


@dataclass(frozen=True)
class Wish:
    """A text of another kind that an optimizer wants written: what to ask of a model, and how to do it without one."""

    prompt: str
    """It asks for the text inside a block fenced by `fence`."""
    by_hand: Callable[[random.Random], str]
    """The model-free way, from no more than the prompt tells; raises `ReflectionFailed` where there is none."""
    max_tokens: int
    count_tokens: Callable[[str], int]
    fence: str = "```"


_COUNTING = threading.Lock()


@dataclass
class Usage:
    """What reflection has cost so far. The reflector counts up, in several threads where need be; whoever keeps the ledger
    reads."""

    calls: int = 0
    """Answers asked of a model; asking again after a refused edit is one more."""
    retries: int = 0
    """Further tries after a transient fault on the way to a model."""
    failures: int = 0
    """Requests that ended in `ReflectionFailed`."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Time inside the reflector, pauses included; of requests that ran side by side the sum."""
    cost: float = 0.0
    """US dollars, as far as prices are known."""

    def add(self, **more: float) -> None:
        with _COUNTING:
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

    `permanent` says that every further request would fail alike (a refused key, an unknown model): a caller may stop.
    """

    def __init__(self, reason: str, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class Reflector(Protocol):
    """Edits a context's text. The new text differs from the parent's, is not empty and keeps to the token budget."""

    usage: Usage

    def __call__(self, request: Request) -> str:
        """The new text; raises `ReflectionFailed` and nothing else when there is none."""
        ...

    def write(self, wish: Wish, seed: int) -> str:
        """What an optimizer other than GEPA wants written; fails in the same way."""
        ...


@dataclass(frozen=True)
class Reply:
    """One answer and what it took."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    retries: int = 0
    """Further tries before this answer came."""
    cut: bool = False
    """The answer ran into its length limit."""


class ChatFailed(Exception):
    """No answer came; str(error) is the reason. `permanent` says that trying again later cannot help, `asked` whether the
    model was asked at all."""

    def __init__(self, reason: str, retries: int = 0, permanent: bool = False, asked: bool = True) -> None:
        super().__init__(reason)
        self.retries = retries
        self.permanent = permanent
        self.asked = asked


class Chat(Protocol):
    """Answers a list of `role`/`content` messages; the same seed asks for the same answer. Raises `ChatFailed`."""

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply: ...
