"""The processes, coroutines and threads of a run, the signals that stop it, and its seeds.

All processes run the same program on the same rollouts, so all take the same decisions."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import errno
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from types import FrameType
from typing import Any, ClassVar, TypeVar

from fastslow.base.errors import TaskError

T = TypeVar("T")
GRACE = 1.0
"""Seconds after which a step of a coroutine blocks the others."""
PATIENCE = 5.0
"""Seconds in which interrupted coroutines must have ended."""
SAME = 2.0
"""Seconds in which a second SIGINT is the first again: launchers repeat Ctrl+C to processes that have it already."""


def derive_seed(*parts: object) -> int:
    """A separate seed for each random decision, so that none depends on earlier draws."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).digest()[:4])


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; handled like an interruption from the keyboard."""


class Stops:
    """The signals of one run. A signal is raised between two pieces of work: at the end of a `whole` block, or between two
    steps of coroutines. Elsewhere it would find tasks half started, and libraries that wrap or swallow it. What goes on for
    `GRACE` seconds without such a place is interrupted where it is."""

    listening_to: ClassVar[Stops | None] = None
    """The stops of the run that listens, if one does; only the main thread can."""

    def __init__(self) -> None:
        self.waiting: KeyboardInterrupt | None = None
        """What is raised at the next such place, or by `World.stop_together`."""
        self._blocks = 0
        self._asked: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due, self._over, self._lock = False, threading.Event(), threading.Lock()

    @contextlib.contextmanager
    def listening(self, *, together: bool = False) -> Iterator[None]:
        """Raise `Stopped` on SIGTERM and SIGHUP, and KeyboardInterrupt on SIGINT. A signal that the process ignores, as under
        nohup, or has a handler of its own for, stays so. Several processes stop `together`: there, signals only wait."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        usual = {
            signal.SIGTERM: None,
            signal.SIGHUP: None,
            signal.SIGINT: signal.default_int_handler,
        }
        before = {number: signal.getsignal(number) for number in usual}
        taken = [
            number
            for number, only in usual.items()
            if before[number] != signal.SIG_IGN and only in (None, before[number])
        ]
        outer, Stops.listening_to = Stops.listening_to, self
        self.waiting, self._asked, self._due, self._over = None, None, False, threading.Event()
        self._blocks += together
        for number in taken:
            signal.signal(number, self._ask)
        try:
            yield
            if self.waiting and not self._blocks:
                raise self.waiting
        except KeyboardInterrupt:
            self.waiting = None
            raise
        finally:
            self._blocks -= together
            self._over.set()
            with self._lock:  # a signal that is repeated by now finds the same handler
                pass
            for number in taken:
                handler = before[number]
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            Stops.listening_to = outer

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        now, free = time.monotonic(), self._loop is not None or not self._blocks
        if self._due:
            self._due = False
            if self.waiting and free:
                raise self.waiting  # whoever stops for it says so: until then, it may have been swallowed
        elif self._asked is None:
            self._asked = now
            self.waiting = KeyboardInterrupt() if number == signal.SIGINT else Stopped(signal.Signals(number).name)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._between)
            try:
                threading.Thread(target=self._repeat, args=(number,), name="interrupting", daemon=True).start()
            except (RuntimeError, MemoryError):
                if free:
                    raise self.waiting from None
        elif number == signal.SIGINT and now - self._asked >= SAME:
            self._asked = now
            raise KeyboardInterrupt  # the impatient press Ctrl+C again; any other signal must not interrupt the ending

    def _repeat(self, number: int) -> None:
        """In a thread: send a signal again that was not heard."""
        if not self._over.wait(GRACE):
            with self._lock:
                if not self._over.is_set():
                    self._due = True
                    signal.pthread_kill(threading.main_thread().ident or 0, number)

    def _between(self) -> None:
        if self.waiting and self._loop is not None:
            raise self.waiting

    def stopping(self) -> None:
        """The run stops for what waits; what it does until then is not interrupted any more."""
        self.waiting = None

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """A block that is not interrupted: a signal is raised at its end."""
        self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1
        if self.waiting and not self._blocks:
            raise self.waiting

    @contextlib.contextmanager
    def driving(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """A block, all of a `whole` one, that runs a loop: a signal ends its run."""
        if self._blocks > 1:  # an outer block is not to be interrupted
            yield
            return
        self._loop = loop
        if self.waiting:
            loop.call_soon(self._between)
        try:
            yield
        except KeyboardInterrupt:
            self.waiting = None
            raise
        finally:
            self._loop = None


class World:
    """Rank, size and collective operations; with one process, each operation is the identity."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.stops = Stops()

    @classmethod
    def launched(cls, cpu: bool) -> World:
        """The processes started by a launcher. The process group is destroyed at exit: its threads can otherwise abort the
        process, and the launcher then reports a finished run as failed."""
        from accelerate import PartialState  # imports torch, so not at the top of the file

        state = PartialState(cpu=cpu)
        if state.num_processes > 1:
            atexit.register(state.destroy_process_group)
        return cls(state.process_index, state.num_processes)

    @property
    def main(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank, on every process."""
        if self.size == 1:
            return [value]
        from accelerate.utils import gather_object

        return list(gather_object([value]))

    def stop_together(self) -> None:
        """With several processes: raise `Stopped` on all of them if a signal waits on one."""
        if self.size > 1 and (found := [each for each in self.gather(self.stops.waiting) if each]):
            raise Stopped(str(found[0]) or "SIGINT")

    def largest(self, number: int) -> int:
        return max(self.gather(number))

    def from_main(self, make: Callable[[], T]) -> T:
        """What `make` returns on the main process, on every process; an exception is raised on all, so that none waits."""
        if self.size == 1:
            return make()
        from accelerate.utils import broadcast_object_list

        box: list[tuple[T | None, Exception | None] | None] = [None]
        if self.main:
            try:
                box = [(make(), None)]
            except Exception as error:
                box = [(None, error)]
        broadcast_object_list(box)
        assert box[0] is not None
        value, raised = box[0]
        if raised is not None:
            raise raised
        return value  # type: ignore[return-value]


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop per process: clients and locks of tasks are bound to the loop they were first used in."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


_lost: list[asyncio.AbstractEventLoop] = []
"""Event loops whose descriptors somebody closed; one that is collected would complain about them."""


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
    stops = Stops.listening_to if threading.current_thread() is threading.main_thread() else None
    try:
        with stops.whole() if stops else contextlib.nullcontext():
            try:
                with stops.driving(loop) if stops else contextlib.nullcontext():
                    return loop.run_until_complete(coroutine)
            finally:
                _clear(loop)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        _lost.append(loop)
        _loop.cache_clear()
        raise TaskError(
            "a file descriptor of this process was closed while rollouts were played; a grader, tool or environment may "
            "close only what it opened"
        ) from error


def _clear(loop: asyncio.AbstractEventLoop) -> None:
    """End what an interruption left running. A task group raises it again when its tasks have ended, and code of a task may
    go on although it is cancelled."""
    deadline = time.monotonic() + PATIENCE
    while (left := asyncio.all_tasks(loop)) and time.monotonic() < deadline:
        for task in left:
            task.cancel()
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE / 10))
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()  # seen: it is not reported


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waits for any more; an interruption is raised elsewhere too."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


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
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            # Of the function itself: no signal reaches a thread. A task that raised it would end the loop, or seem cancelled.
            own = TaskError(f"{type(error).__name__}: {error}")
            own.__cause__ = error
            outcome = (None, own)
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


def in_time(seconds: float, call: Callable[[], T]) -> T:
    """What a call returns in so many seconds, else a TimeoutError; it is then left behind in its thread."""
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(call())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=run, name="in time", daemon=True).start()
    try:
        return ended.result(seconds)
    except TimeoutError as error:
        raise error if ended.done() else TimeoutError(f"an answer took more than {seconds:g} seconds") from None
