"""The one place that bounds code that may take forever, eat all memory or crash, in a process or in this one.

Time limits by signal only work in the main thread, and cannot stop a computation inside a C library. A process can always be
ended, and works from any thread. It is connected by a socket and talks in messages (see inside/wire.py).

Graders, tools and environments run in this process, under a `Watch`. Its limit covers every stretch of a rollout in which the
task's own code works: the clock stands still while the model answers and while the rollout waits for a free thread.
Asynchronous code is cancelled. Code that blocks the event loop is interrupted by a timer signal; a call inside a C library
ends first. Code that closes a standard stream stops the run: what is opened next would take its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.text import one_line
from fastslow.sandbox.inside import wire

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Process:
    """A Python that runs `main` of a module in `inside`, given a socket to here. It has no memory, files or streams of this
    process, and of its environment only what is named: it has no use for keys and tokens. It ends when this one does."""

    # The folder holds modules with everyday names, which must not hide libraries; nor must those of the current one (-P).
    _START = (
        "import sys; sys.path.insert(0, sys.argv[1]); from inside.{} import main; del sys.path[0]; main(*sys.argv[2:])"
    )

    def __init__(
        self,
        module: str,
        *arguments: str,
        flags: Sequence[str],
        inherited: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        self.connection, theirs = socket.socketpair()
        kept = {name: os.environ[name] for name in inherited if name in os.environ}
        with theirs:
            end, start = str(theirs.fileno()), self._START.format(module)
            self.popen = subprocess.Popen(
                [sys.executable, "-P", *flags, "-c", start, str(Path(__file__).parent), end, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**kept, **_ONE_THREAD, **environment},
                cwd="/",
                start_new_session=True,
            )
        self.end = weakref.finalize(self, _end, self.popen, self.connection)


def _end(popen: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    popen.kill()  # another process that was forked from this one may hold the connection too
    popen.wait()


@dataclass(frozen=True)
class Reply:
    """What a handler returned; None where it did not, with the reason in the words of `Outcome`."""

    value: Any = None
    reason: str = ""
    error: str = ""


class Worker:
    """Answers with the `handle` function of a Python file, which runs in a process of its own within limits. It is not
    isolated, but kept from changing files, reaching the network and starting processes (see inside/handler.py)."""

    def __init__(
        self, handler: Path, seconds: float, gigabytes: float = 4, environment: Mapping[str, str] | None = None
    ) -> None:
        self._arguments = (str(handler), str(seconds), str(gigabytes))
        self._environment = environment or {}
        self._lock = threading.Lock()
        self._process: Process | None = None

    def ask(self, request: Any) -> Reply:
        """The handler's reply. After a fault the next request finds a new process."""
        with self._lock:
            self._process = self._process or self._start()
            reply = self._receive(self._process, request)
            if reply.reason:
                self._process = None
            return reply

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._process is not None:
                self._process.end()
            self._process = None

    def _start(self) -> Process:
        inherited = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")
        process = Process("handler", *self._arguments, flags=["-B"], inherited=inherited, environment=self._environment)
        reply = self._receive(process)
        if reply.reason:
            reason = one_line(reply.error) or "no reason given"
            raise TaskError(f"the helper process for grading cannot start: {reason}")
        return process

    def _receive(self, process: Process, *requests: Any) -> Reply:
        try:
            for request in requests:
                wire.send(process.connection.fileno(), request)
            reply = Reply(**wire.receive(process.connection.fileno()))
        except wire.TooLong:
            reply = Reply(reason="output")
        except (OSError, EOFError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(1)
            overrun = process.popen.returncode in (-signal.SIGPROF, -signal.SIGALRM)
            reply = Reply(reason="time" if overrun else "crash")
        if reply.reason:
            process.end()
        return reply


T = TypeVar("T")


class _Overrun(BaseException):
    """Raised inside code that blocks. No `Exception`, so that the code does not catch it."""


class Watch:
    """The clock of one rollout."""

    def __init__(self, seconds: float, queue: Callable[[bool], None] = lambda waits: None) -> None:
        self.seconds, self.queue = seconds, queue
        _duplicates()
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


@contextlib.contextmanager
def queued() -> Iterator[None]:
    """Wait for a free place: the clock of the current rollout stands still, and no round of completions waits for it."""
    watch = _current.get() or Watch(0)
    with unwatched():
        watch.queue(True)
        try:
            yield
        finally:
            watch.queue(False)


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
            finally:
                _require_streams()
            try:
                given = yield awaited
                advance = steps.send
            except BaseException as error:
                advance, given = steps.throw, error


@cache
def _duplicates() -> dict[int, int]:
    """Duplicates of the standard streams that are open."""
    found = {}
    for stream in range(3):
        with contextlib.suppress(OSError):
            found[stream] = os.dup(stream)
    return found


def _require_streams() -> None:
    """Refuse code that has closed a standard stream, and open it again, so that this can be said."""
    closed = []
    for stream, duplicate in _duplicates().items():
        try:
            os.fstat(stream)
        except OSError:
            closed.append(("standard input", "standard output", "standard error")[stream])
            with contextlib.suppress(OSError):
                os.dup2(duplicate, stream)
    if closed:
        raise RecipeError(
            f"the task closed {' and '.join(closed)}; a grader, tool or environment may close only what it opened"
        )


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
