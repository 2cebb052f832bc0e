"""Awaiting a program that calls the model like a function: somebody else's code becomes a rollout this way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastslow.tasks.adapters.event_loops import GRACE, settle

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class Abandoned(BaseException):
    """Raised inside the program when its rollout is cancelled. No `Exception`, so that retries do not catch it."""


async def run_in_thread(
    program: Callable[[Callable[[Question], Answer]], Result], ask: Callable[[Question], Awaitable[Answer]]
) -> Result:
    """Await `program(ask)`, which runs in a thread of its own and for which `ask` is a plain function that blocks.

    A pool of threads would limit how many rollouts are under way, and so the size of their batches. The context variables
    of the program are the caller's. It may ask from further threads of its own. Where this is cancelled, the question that
    the program waits on, and any later one, raises `Abandoned`, and this returns when the program has ended, or after
    `GRACE`.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Result | None, BaseException | None]] = loop.create_future()
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
        result: Result | None = None
        raised: BaseException | None = None
        try:
            result = program(blocking_ask)
        except BaseException as error:
            raised = error
        with contextlib.suppress(RuntimeError):  # the loop that waits was closed
            loop.call_soon_threadsafe(settle, ended, (result, raised))

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
