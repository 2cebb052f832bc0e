"""Signals that ask a run to end. They are raised at once where nothing can be left half done, and wait elsewhere."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAME = 2.0
"""Seconds in which a second SIGINT is the first again: launchers repeat Ctrl+C to processes that have it already."""


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; handled like an interruption from the keyboard."""


class Stops:
    """The signals of one run."""

    def __init__(self) -> None:
        self.waiting: KeyboardInterrupt | None = None
        """What is raised at the end of the block, or by `World.stop_together`."""
        self._blocks = 0
        self._asked: float | None = None

    @contextmanager
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
        self._blocks += together
        for number in taken:
            signal.signal(number, self._ask)
        try:
            yield
        finally:
            self._blocks -= together
            for number in taken:
                handler = before[number]
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        first, now = self._asked is None, time.monotonic()
        if not first and (number != signal.SIGINT or now - (self._asked or now) < SAME):
            return  # another signal must not interrupt the ending; the impatient press Ctrl+C again
        self._asked = now
        error = KeyboardInterrupt() if number == signal.SIGINT else Stopped(signal.Signals(number).name)
        if first and self._blocks:
            self.waiting = error
        else:
            raise error

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A block that is not interrupted: a signal is raised at its end."""
        self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1
        if self.waiting and not self._blocks:
            raise self.waiting
