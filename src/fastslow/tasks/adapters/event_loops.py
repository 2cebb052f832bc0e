"""Awaiting a coroutine that runs on another event loop.

Other people's asynchronous code keeps clients and locks that are bound to one event loop. It runs on a loop that lasts as
long as the process; the loops on which rollouts are played come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
GRACE = 5.0
"""Seconds that cancelled code has to clean up; after that it is left behind."""


@cache
def lasting_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own, one for the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lasting event loop", daemon=True).start()
    return loop


def settle(future: asyncio.Future[T], result: T) -> None:
    """Give a future its result, unless whoever waited for it has gone."""
    if not future.done():
        future.set_result(result)


async def run_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another loop and await its result here.

    Cancelled here, it is cancelled there, and has cleaned up before this returns, unless that takes longer than `GRACE`.
    """
    here = asyncio.get_running_loop()
    finished: asyncio.Future[asyncio.Task[T]] = here.create_future()
    started: list[asyncio.Task[T]] = []

    def start() -> None:
        started.append(loop.create_task(coroutine))
        started[0].add_done_callback(report)

    def stop() -> None:
        started[0].cancel()

    def report(task: asyncio.Task[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop that waits was closed
            here.call_soon_threadsafe(settle, finished, task)

    loop.call_soon_threadsafe(start)
    try:
        return (await asyncio.shield(finished)).result()
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(stop)
        await asyncio.wait({finished}, timeout=GRACE)
        raise
