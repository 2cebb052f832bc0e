"""A time limit for other people's code: graders, tools and environments.

The limit covers every stretch of a rollout in which the task's own code works: the clock stands still while the model
answers and while the rollout waits for a free thread. Asynchronous code is cancelled. Code that blocks the event loop is
interrupted by a timer signal, which Python delivers to the main thread only; a call inside a C library ends first.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Coroutine, Generator, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any, TypeVar

from fastslow.base.errors import TaskError

T = TypeVar("T")


class _Overrun(BaseException):
    """Raised inside code that blocks. No `Exception`, so that the code does not catch it."""


class Watch:
    """The clock of one rollout."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._timer: asyncio.Timeout | None = None
        self._pauses = 0

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a rollout within the limit."""
        token = _current.set(self)
        try:
            async with asyncio.timeout(self.seconds) as self._timer:
                return await _Stepped(coroutine, self.seconds)
        except _Overrun:
            raise self._error() from None
        except TimeoutError:
            if self._timer is None or not self._timer.expired():
                raise  # the task's own
            raise self._error() from None
        finally:
            self._timer = None
            _current.reset(token)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands still; afterwards the whole limit is available again."""
        self._pauses += 1
        self._reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._reschedule(asyncio.get_running_loop().time() + self.seconds)

    def _reschedule(self, when: float | None) -> None:
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(when)

    def _error(self) -> TaskError:
        return TaskError(f"it took more than {self.seconds:g} seconds, the limit that grading.timeout sets")


_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Stop the clock of the current rollout, if it has one."""
    watch = _current.get()
    if watch is None:
        yield
    else:
        with watch.paused():
            yield


class _Stepped:
    """A coroutine whose every step, from one await to the next, has a time limit."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], seconds: float) -> None:
        self.coroutine, self.seconds = coroutine, seconds

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.coroutine.__await__()
        advance: Any = steps.send
        given: Any = None
        while True:
            try:
                with _alarm(self.seconds):
                    awaited = advance(given)
            except StopIteration as stop:
                return stop.value
            try:
                given = yield awaited
                advance = steps.send
            except BaseException as error:
                advance, given = steps.throw, error


class _alarm:
    """Raises `_Overrun` in the main thread after so many seconds; does nothing in other threads."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.armed = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.handler = signal.signal(signal.SIGALRM, self._ring)
        self.armed = True
        self.others = signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise _Overrun

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.armed = False  # first: a signal that is already on its way must find nothing to interrupt
        signal.setitimer(signal.ITIMER_REAL, *self.others)
        signal.signal(signal.SIGALRM, self.handler)
