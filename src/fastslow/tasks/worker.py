"""A child process that answers questions which may take forever, eat all memory or crash.

Time limits by signal only work in the main thread, and cannot stop a computation inside a C library. A child can always be
ended, works from any thread, and needs no timer on this side: it ends itself (see worker_child.py). It is no
sandbox, but it is kept from changing files, reaching the network and starting processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line

_CHILD = Path(__file__).with_name("worker_child.py")
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Worker:
    """Answers with the `handle` function of a Python file, which runs in a process of its own within limits."""

    def __init__(
        self, handler: Path, seconds: float, gigabytes: float = 4, environment: Mapping[str, str] | None = None
    ) -> None:
        # -P: the folder of the script holds modules with everyday names, which must not hide libraries; -B: no files.
        self._command = [sys.executable, "-P", "-B", str(_CHILD), str(handler), str(seconds), str(gigabytes)]
        # Nothing else is inherited: a child has no use for keys and tokens.
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._environment = {**kept, **_ONE_THREAD, **(environment or {})}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Any) -> Any | None:
        """The handler's reply; None when it ran out of time or memory or crashed. The next request finds a new child."""
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            reply = ""
            with contextlib.suppress(BrokenPipeError):  # it was ended between two requests
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                reply = process.stdout.readline()
            if reply.endswith("\n"):
                return json.loads(reply)
            self._process = None
            _end(process)
            return None

    def close(self) -> None:
        """End the child."""
        with self._lock:
            if self._process is not None:
                _end(self._process)
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            cwd=tempfile.gettempdir(),
            text=True,
            encoding="utf-8",
        )
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "ready\n":
            reason = process.stderr.read().strip().rpartition("\n")[2]
            _end(process)
            raise TaskError(f"the helper process for grading cannot start: {one_line(reason) or 'no reason given'}")
        self._process = process
        weakref.finalize(self, _end, process)
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()
