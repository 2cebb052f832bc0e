"""Run coroutines from synchronous code, and code that blocks from coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop per process: clients and locks of tasks are bound to the loop they were first used in."""
    return asyncio.new_event_loop()


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion; in another thread if this one already runs a loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _drive(coroutine)
    with ThreadPoolExecutor(1, "fastslow loop") as thread:
        return thread.submit(contextvars.copy_context().run, _drive, coroutine).result()


def _drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Unlike `asyncio.run`, this does not delay Ctrl-C until a batch is sampled."""
    loop = _loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        if left := asyncio.all_tasks(loop):  # interrupted
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that blocks in a thread of its own; one that never returns does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def settle(outcome: tuple[T | None, BaseException | None]) -> None:
        if not ended.done():  # whoever waited has gone
            ended.set_result(outcome)

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = (function(*arguments), None)
        except BaseException as error:
            outcome = (None, error)
        with contextlib.suppress(RuntimeError):  # the loop that waits was closed
            loop.call_soon_threadsafe(settle, outcome)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="grading", daemon=True).start()
    result, raised = await ended
    if raised is not None:
        raise raised
    return result  # type: ignore[return-value]
