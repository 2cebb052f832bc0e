"""Coroutines as generators: an environment awaits an answer, and whoever drives the generator is asked for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

from fastslow.tasks.base import SYSTEM, Ask, Message

T = TypeVar("T")
Say = Callable[[list[Message]], Coroutine[Any, Any, str]]
"""What a coroutine awaits for an answer to messages."""


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The loop environments run on, in a thread of its own: the caller's may have a loop already, as in a notebook."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers environments", daemon=True).start()
    return loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that asks for nothing to its end."""
    return asyncio.run_coroutine_threadsafe(coroutine, event_loop()).result()


def converse(play: Callable[[Say], Coroutine[Any, Any, T]]) -> Generator[Ask, str, T]:
    """Run `play`, ask for the answers it waits for, and return what it returns. One that is not driven to its end is
    cancelled, so that environments can clean up."""
    loop = event_loop()
    waiting: SimpleQueue[tuple[list[Message], asyncio.Future[str]] | None] = SimpleQueue()

    async def say(messages: list[Message]) -> str:
        answer = loop.create_future()
        waiting.put((messages, answer))
        return await answer

    def reply(answer: asyncio.Future[str], text: str) -> None:
        if not answer.done():  # whoever asked may have been cancelled
            answer.set_result(text)

    playing = asyncio.run_coroutine_threadsafe(play(say), loop)
    playing.add_done_callback(lambda _: waiting.put(None))
    try:
        while (asked := waiting.get()) is not None:
            messages, answer = asked
            loop.call_soon_threadsafe(reply, answer, (yield Ask(SYSTEM, messages)))
        return playing.result()
    finally:
        playing.cancel()
