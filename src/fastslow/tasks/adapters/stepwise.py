"""Code that calls the model like a function, played as a generator: somebody else's program becomes a task this way."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class Abandoned(BaseException):
    """Raised inside the function when nobody will answer any more. No `Exception`, so that retries do not catch it."""


def stepwise(function: Callable[[Callable[[Question], Answer]], Result]) -> Generator[Question, Answer, Result]:
    """Run `function(ask)`, yielding what it asks and returning what it returns, or raising what it raises.

    The function runs in a thread of its own, and only while the generator is being advanced: the two take turns. Its
    context variables are the caller's. It may ask from further threads of its own, whose questions come in the order they
    are asked in. A generator that is closed, or dropped, ends its thread: the question it waits on, and any later one,
    raises `Abandoned`.
    """
    asked: SimpleQueue[tuple[Question, Future[Answer]] | None] = SimpleQueue()
    outcome: Future[Result] = Future()
    gate = threading.Lock()
    closed = False

    def ask(question: Question) -> Answer:
        answer: Future[Answer] = Future()
        with gate:
            if closed:
                raise Abandoned
            asked.put((question, answer))
        return answer.result()

    def run() -> None:
        try:
            outcome.set_result(function(ask))
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            asked.put(None)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="stepwise", daemon=True)
    thread.start()
    waiting: Future[Answer] | None = None
    try:
        while (step := asked.get()) is not None:
            question, waiting = step
            waiting.set_result((yield question))
            waiting = None
        return outcome.result()
    finally:
        with gate:
            closed = True
        if waiting is not None:
            waiting.set_exception(Abandoned())
        while not asked.empty():
            if (step := asked.get()) is not None:
                step[1].set_exception(Abandoned())
        thread.join()
