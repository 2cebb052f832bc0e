"""The process of a `Worker`: replies to requests with the `handle` function of a file, which is imported here.

When a request takes too long the kernel ends the process: SIGPROF after so many seconds of work, SIGALRM after four times as
many on the clock (it may be asleep).
"""

from __future__ import annotations

import contextlib
import os
import resource
import runpy
import signal
import sys
from typing import Any

from . import wire

_REFUSED = ("socket.", "subprocess.", "shutil.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.kill")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")


def main(connection: str, handler: str, seconds: str, gigabytes: str) -> None:
    """Say that the handler is there, then reply until the caller hangs up or the handler raises."""
    try:
        handle = runpy.run_path(handler)["handle"]
        with contextlib.suppress(ValueError, OSError):  # not every system has this limit
            resource.setrlimit(resource.RLIMIT_AS, (int(float(gigabytes) * 2**30),) * 2)
        sys.addaudithook(_refuse)
        wire.send(int(connection), {})
        while True:
            request = wire.receive(int(connection))
            _arm(float(seconds))
            value = handle(request)
            _arm(0)
            wire.send(int(connection), {"value": value})
    except EOFError:
        return
    except Exception as error:
        reason = "memory" if isinstance(error, MemoryError) else "error"
        wire.send(int(connection), {"reason": reason, "error": f"{type(error).__name__}: {error}"})


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Against accidents: no request has a reason to change files, reach the network or start a process."""
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith(_REFUSED + _CHANGES):
        raise PermissionError(f"{event} is refused here")


def _arm(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 4 * seconds)
