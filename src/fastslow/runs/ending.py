"""How a run ends: whatever ends it, run.json says so, and the terminal, the lock and the signal handlers are released."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fastslow.base.errors import Interrupted, RunError, cause
from fastslow.base.text import redacted
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import View

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; handled like an interruption from the keyboard."""


@contextmanager
def ending(run: RunFolder | None, folder: Path, view: View) -> Iterator[None]:
    """Record how the run ended, whether it finished, failed, was interrupted, or its task's code called `sys.exit`."""
    try:
        with _stopped_by_signals():
            yield
    except BaseException as error:
        if isinstance(error, MemoryError):
            traceback.clear_frames(error.__traceback__)  # what they hold is needed to record the end
        view.close()
        _record(run, error)
        if isinstance(error, KeyboardInterrupt):
            by = f"stopped by {error}" if isinstance(error, Stopped) else "interrupted"
            raise Interrupted(f"{by}; resume with `fastslow train --resume {folder}`") from None
        if isinstance(error, SystemExit):
            raise RunError(
                f"code of the task called sys.exit({error.code!r}); raise an exception there instead, then resume with "
                f"`fastslow train --resume {folder}`"
            ) from error
        raise
    finally:
        view.close()
        if run:
            run.close()


def _record(run: RunFolder | None, error: BaseException) -> None:
    if run is None:
        return
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    try:
        run.set_status(status, error=redacted(cause(error)))
    except (RunError, MemoryError) as problem:  # the disk is full, say: what ended the run matters more
        error.add_note(str(problem))


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise `Stopped` on SIGTERM and SIGHUP; one that the process ignores, as under nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the ending
        raise Stopped(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
