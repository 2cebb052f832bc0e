"""Run coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop per process: clients and locks of tasks are bound to the loop they were first used in."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(max(32, os.cpu_count() or 1), "grading"))
    return loop


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
