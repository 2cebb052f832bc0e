"""Running Python that nobody has read: limits on everything, no network, no files of this machine, and always an end.

Linux only. Machines differ in the isolation they support: `protections` says what this one has (docs/sandbox.md).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import selectors
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastslow.base.errors import FastSlowError, FastSlowWarning

NAMESPACES, LANDLOCK, SECCOMP = "namespaces", "landlock", "seccomp"
OUTPUT = 256 * 1024
"""Bytes of standard output, and of standard error, after which a program is ended."""
DISK = 64
"""Megabytes of files, and of one file, that a program may write where it may write at all."""
FILES, OPEN_FILES, THREADS = 1000, 64, 32
_REPORT = 4 * 2**20
_GRACE = 5.0
"""Seconds after which a supervisor that should have ended itself is ended from here."""
_NOT_STARTED = f"model-written code cannot be run here: the process for it ({sys.executable}) does not start"
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same sets in the same order, so that an answer is graded the same way every time
    "MALLOC_ARENA_MAX": "1",  # else every thread takes a large part of the address space, which is what is limited
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}


class SandboxError(FastSlowError):
    """Model-written code cannot be run on this machine."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended. `reason` is empty when all went well, else one word: `error` (it raised, or left with a code other
    than 0), `time`, `memory`, `output` (it wrote without end) or `crash` (a signal ended it)."""

    ok: bool
    stdout: str
    stderr: str
    reason: str


@dataclass(frozen=True)
class Protections:
    """What stands between a program and this machine. Limits on time, memory, threads and output are always there."""

    layers: tuple[str, ...]
    """Of `namespaces`, `landlock` (only used without the first) and `seccomp`, those that this machine has."""

    @property
    def missing(self) -> list[str]:
        """What a program could do here that it should not, a sentence each; empty where isolation is complete."""
        has = set(self.layers)
        lacks = []
        if not has & {NAMESPACES, SECCOMP}:
            lacks.append("It can use the network.")
            lacks.append("It can send signals to other processes of the same user.")
        if not has & {NAMESPACES, LANDLOCK}:
            lacks.append("It can read all files of the user, and the memory and environment of the user's processes.")
        if not has & {NAMESPACES, LANDLOCK, SECCOMP}:
            lacks.append("It can write every file that the user can write, and fill the disk.")
        return lacks


@dataclass(frozen=True)
class Ran:
    """What is known about a run: the first of what it wrote, what the processes beside it said, and what it went over."""

    stdout: str
    stderr: str
    said: dict[str, Any]
    reason: str


def run_code(
    source: str,
    *,
    stdin: str = "",
    seconds: float = 5,
    megabytes: int = 512,
    packages: bool = False,
    layers: Sequence[str] | None = None,
) -> Outcome:
    """Run a Python script to its end, or to the end of its time: `seconds` of work, about twice as many on the clock.

    It has Python's standard library, and with `packages` the installed ones; an empty folder for files, which is gone
    afterwards; no network, no other processes, no environment. `layers` names the protections to use, by default all that
    this machine has.
    """
    ran = run(source, None, stdin=stdin, seconds=seconds, megabytes=megabytes, packages=packages, layers=layers)
    return Outcome(not ran.reason, ran.stdout, ran.stderr, ran.reason)


def protections() -> Protections:
    """What this machine can do, found out by trying; a machine that cannot run such code at all is a SandboxError."""
    return Protections(_possible())


def run(
    source: str,
    tests: dict[str, Any] | None,
    *,
    setup: str = "",
    stdin: str = "",
    seconds: float = 5,
    megabytes: int = 512,
    packages: bool = False,
    layers: Sequence[str] | None = None,
) -> Ran:
    """A script, or with tests a module that they are run against (see inside/judge.py)."""
    if sys.platform != "linux":
        raise SandboxError(
            f"model-written code is run on Linux only, and this is {sys.platform}, where it cannot be isolated; "
            "use a Linux machine, a virtual one will do"
        )
    if layers is None:
        layers = _possible()
        _warn()
    job = {
        "source": source,
        "setup": setup,
        "judged": tests is not None,
        "layers": list(layers),
        "packages": [os.path.realpath(folder) for folder in site.getsitepackages()] if packages else [],
        "seconds": max(1, math.ceil(seconds)),
        "wall": 2 * seconds + 1,
        "megabytes": megabytes,
        "disk": DISK,
        "files": FILES,
        "open_files": OPEN_FILES,
        "threads": THREADS,
    }
    with tempfile.TemporaryDirectory(prefix="fastslow-", ignore_cleanup_errors=True) as folder:
        ran = _run(job | {"folder": folder}, tests or {}, stdin)
        if not ran.said:  # the fork server was ended in this very moment; the next one will do
            ran = _run(job | {"folder": folder}, tests or {}, stdin)
    if "started" not in ran.said and ran.reason != "output":  # who writes too much may be ended before that is reported
        why = ran.said.get("refused")
        raise SandboxError(f"model-written code cannot be run here: {why}" if why else _NOT_STARTED)
    return ran


@cache
def _possible() -> tuple[str, ...]:
    def works(*layers: str) -> bool:
        try:
            return run_code("", layers=layers, seconds=20).ok
        except SandboxError:
            return False

    files: tuple[str, ...] = next((layer for layer in ((NAMESPACES,), (LANDLOCK,)) if works(*layer)), ())
    layers = (*files, SECCOMP) if works(*files, SECCOMP) else files
    run_code("", layers=layers, seconds=20)  # where not even the limits can be set, this says why
    return layers


@cache
def _warn() -> None:
    missing = protections().missing
    if missing:
        words = f"model-written code is not fully isolated here. {' '.join(missing)} See docs/sandbox.md."
        warnings.warn(words, FastSlowWarning, stacklevel=4)


class _ForkServer:
    """The process that forks for every program (see inside/main.py). It has nothing of this one: neither its memory, its
    environment nor its files; and it ends when this one does."""

    _START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.main import fork_server; fork_server(int(sys.argv[2]))"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, files: list[int]) -> None:
        """Hand over the open files of one program."""
        with self._lock:
            for _ in range(2):  # it may have been ended since: by the machine, for want of memory, or by a person
                with contextlib.suppress(OSError):
                    socket.send_fds(self._connection or self._start(), [b"."], files)
                    return
                self._end()
        raise SandboxError(_NOT_STARTED)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        # No packages, no user's folder, no modules from the current one.
        command = [sys.executable, "-S", "-s", "-P", "-X", "utf8", "-c", self._START, str(Path(__file__).parent)]
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**_ENVIRONMENT, **kept},
                cwd="/",
                start_new_session=True,
            )
        self._connection = ours
        atexit.register(self._end)
        return ours

    def _end(self) -> None:
        if self._connection is not None and self._process is not None:
            self._connection.close()
            self._process.terminate()  # another process that was forked from this one may hold the connection too
            self._process.wait()
        self._connection = None


_FORK_SERVER = _ForkServer()


def _run(job: dict[str, Any], tests: dict[str, Any], stdin: str) -> Ran:
    with contextlib.ExitStack() as stack:
        files = [_file(stack, text) for text in (json.dumps(job), json.dumps(tests), stdin)]
        report, report_end = socket.socketpair()
        stack.enter_context(report)
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        stack.callback(os.close, output)
        stack.callback(os.close, errors)
        try:
            _FORK_SERVER.fork([*files, output_end, errors_end, report_end.fileno()])
        finally:
            os.close(output_end)
            os.close(errors_end)
            report_end.close()
        limits = {output: OUTPUT, errors: OUTPUT, report.fileno(): _REPORT}
        collected, over = _collect(report, limits, job["wall"] + _GRACE)
    stdout, stderr, lines = (text.decode("utf-8", "replace") for text in collected)
    said = _read_report(lines)
    return Ran(stdout, stderr, said, "output" if over else _reason(said, stderr, job["seconds"]))


def _collect(report: socket.socket, limits: dict[int, int], seconds: float) -> tuple[list[bytes], bool]:
    """The first bytes of every stream, up to its limit, and whether one went over. The report ends when everything has been
    cleared away; the others, which the program might hold open, are not waited for."""
    texts = dict.fromkeys(limits, b"")
    over = False
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for stream in limits:
            selector.register(stream, selectors.EVENT_READ)

        def read_from(ready: list[tuple[selectors.SelectorKey, int]]) -> None:
            nonlocal over
            for key, _ in ready:
                piece = os.read(key.fd, 2**16)
                if len(texts[key.fd]) + len(piece) > limits[key.fd]:
                    over, piece = True, piece[: limits[key.fd] - len(texts[key.fd])]
                    selector.unregister(key.fd)
                    report.shutdown(socket.SHUT_WR)  # the supervisor takes this for the end
                elif not piece:
                    selector.unregister(key.fd)
                texts[key.fd] += piece

        while report.fileno() in selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                _kill(_read_report(texts[report.fileno()].decode()).get("supervisor"))
                break
            read_from(selector.select(left))
        while ready := selector.select(0):
            read_from(ready)
    return list(texts.values()), over


def _kill(supervisor: int | None) -> None:
    if supervisor is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGKILL)


def _read_report(lines: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for line in lines.split("\n"):
        with contextlib.suppress(ValueError):  # the last one is empty, or unfinished
            said.update(json.loads(line))
    return said


def _reason(said: dict[str, Any], errors: str, seconds: int) -> str:
    status = said.get("status")
    if said.get("ended") == "time" or status == -signal.SIGXCPU:
        return "time"
    if status == -signal.SIGKILL and said["worked"] >= seconds:
        return "time"
    if status == 0:
        return ""
    if status is None or status < 0:
        return "crash"
    return "memory" if errors.rstrip().rpartition("\n")[2].startswith("MemoryError") else "error"


def _file(stack: contextlib.ExitStack, text: str) -> int:
    """A file without a name: whatever its size, nobody has to wait for it to be read."""
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    file.write(text.encode("utf-8", "surrogatepass"))
    file.seek(0)
    return file.fileno()
