"""The one place that starts processes for code that may take forever, eat all memory or crash.

Time limits by signal only work in the main thread, and cannot stop a computation inside a C library. A process can always be
ended, and works from any thread. It is connected by a socket and talks in messages (see inside/wire.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.base.errors import TaskError
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
