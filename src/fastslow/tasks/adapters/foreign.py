"""Other people's code as rollouts: a coroutine on a lasting event loop, or a program in a thread that calls the model."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Ask, Asking, Component, Example, Feedback, Options, Split
from fastslow.tasks.data import ListedTask, content_id, name_examples
from fastslow.tasks.skills import Skills

T = TypeVar("T")
Question = TypeVar("Question")
Answer = TypeVar("Answer")
GRACE = 5.0
"""Seconds that cancelled code has to clean up; after that it is left behind."""


@cache
def lasting_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own, one for the process: clients and locks of asynchronous code are bound to one loop, and
    those on which rollouts are played come and go."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lasting event loop", daemon=True).start()
    return loop


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], result: T) -> None:
    """Give a future of another thread's loop its result, unless whoever waited for it has gone."""

    def settle() -> None:
        if not future.done():
            future.set_result(result)

    with contextlib.suppress(RuntimeError):  # the loop that waits was closed
        loop.call_soon_threadsafe(settle)


async def run_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another loop and await its result here.

    Cancelled here, it is cancelled there, and has cleaned up before this returns, unless that takes longer than `GRACE`.
    """
    here = asyncio.get_running_loop()
    finished: asyncio.Future[asyncio.Task[T]] = here.create_future()
    started: list[asyncio.Task[T]] = []

    def start() -> None:
        started.append(loop.create_task(coroutine))
        started[0].add_done_callback(partial(_settle, here, finished))

    def stop() -> None:
        started[0].cancel()

    loop.call_soon_threadsafe(start)
    try:
        return (await asyncio.shield(finished)).result()
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(stop)
        await asyncio.wait({finished}, timeout=GRACE)
        raise


class Abandoned(BaseException):
    """Raised inside the program when its rollout is cancelled. No `Exception`, so that retries do not catch it."""


async def run_in_thread(
    program: Callable[[Callable[[Question], Answer]], T], ask: Callable[[Question], Awaitable[Answer]]
) -> T:
    """Await `program(ask)`, which runs in a thread of its own and for which `ask` is a plain function that blocks.

    A pool of threads would limit how many rollouts are under way, and so the size of their batches. The context variables
    of the program are the caller's. It may ask from further threads of its own. Where this is cancelled, the question that
    the program waits on, and any later one, raises `Abandoned`, and this returns when the program has ended, or after
    `GRACE`.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    gate = threading.Lock()
    waiting: set[concurrent.futures.Future[Answer]] = set()
    closed = False

    def blocking_ask(question: Question) -> Answer:
        async def answer() -> Answer:
            return await ask(question)

        with gate:
            if closed:
                raise Abandoned
            waits = asyncio.run_coroutine_threadsafe(answer(), loop)
            waiting.add(waits)
        try:
            return waits.result()
        except concurrent.futures.CancelledError:
            raise Abandoned from None
        finally:
            with gate:
                waiting.discard(waits)

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = (program(blocking_ask), None)
        except BaseException as error:
            outcome = (None, error)
        _settle(loop, ended, outcome)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="a rollout's program", daemon=True)
    thread.start()
    try:
        result, raised = await asyncio.shield(ended)
    finally:
        with gate:
            closed = True
            abandoned = list(waiting)
        for waits in abandoned:
            waits.cancel()
        await asyncio.wait({ended}, timeout=GRACE)
        if ended.done():
            thread.join()  # it has nothing left to do
    if raised is not None:
        raise raised
    return result  # type: ignore[return-value]


class ProgramTask(ListedTask):
    """A program with texts that evolve, run in a thread for every rollout, and its problems. Without a `valset`, problems of
    the `trainset` are validated on."""

    def __init__(
        self,
        texts: Mapping[str, str],
        sets: Mapping[Split, Sequence[Any] | None],
        content: Callable[[Any], Any],
        wanted: str,
    ) -> None:
        super().__init__(Options())
        self._texts = texts
        if not len(sets["train"] or ()):
            raise TaskError(f"trainset is empty; expected at least one {wanted}")
        rows = {
            split: [{"problem": each} for each in (sets["train"] if given is None else given) or ()]
            for split, given in sets.items()
        }
        self._examples = name_examples(rows, lambda row: content_id(content(row["problem"])))
        trained_on = self._examples["validation"] if sets["validation"] is None else ()
        self._trained_on = {example.id for example in trained_on}
        """Problems to validate on that are the trainset's by design."""

    @property
    def components(self) -> Sequence[Component]:
        return [Component(name, seed=text) for name, text in self._texts.items()]

    def shown(self, example: Example) -> object:
        return None if example.id in self._trained_on else self._asked(example.data["problem"])

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        problem = example.data["problem"]
        if isinstance(texts, Skills):
            texts = texts.narrowed(str(self._asked(problem)))
        return await run_in_thread(partial(self._attempt, problem, texts), ask)

    @abstractmethod
    def _asked(self, problem: Any) -> object:
        """What distinguishes a problem when splits are compared."""

    @abstractmethod
    def _attempt(self, problem: Any, texts: Mapping[str, str], ask: Callable[[Ask], str]) -> Feedback:
        """Run the program under a context's texts, and measure what it gives."""
