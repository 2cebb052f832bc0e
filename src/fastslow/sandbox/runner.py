"""Running Python that nobody has read: limits on everything, no network, no files of this machine, and always an end.

Linux only. Machines differ in the isolation they support: `protections` says what this one has (docs/sandbox.md).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastslow.base.errors import FastSlowError, FastSlowWarning
from fastslow.sandbox.inside import wire
from fastslow.sandbox.process import Process

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
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same sets in the same order, so that an answer is graded the same way every time
    "MALLOC_ARENA_MAX": "1",  # else every thread takes a large part of the address space, which is what is limited
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
            lacks.append("It can empty files of the user, and change their rights and times.")
        if not has & {NAMESPACES, LANDLOCK}:
            lacks.append("It can read all files of the user, and the memory and environment of the user's processes.")
        if not has & {NAMESPACES, LANDLOCK, SECCOMP}:
            lacks.append("It can write every file that the user can write, and fill the disk.")
        return lacks


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
    return run(source, None, Limits(seconds, megabytes, packages, layers), stdin=stdin)[0]


def protections() -> Protections:
    """What this machine can do, found out by trying; a machine that cannot run such code at all is a SandboxError."""
    return Protections(_possible())


@dataclass(frozen=True)
class Limits:
    """What a program may use, and the protections around it, by default all that this machine has."""

    seconds: float = 5
    megabytes: int = 512
    packages: bool = False
    layers: Sequence[str] | None = None
    wall: float | None = None
    """Seconds on the clock; None is twice the seconds of work, and one more."""
    output: int = OUTPUT
    """Bytes of standard output."""
    readable: Sequence[str] = ()
    """Files and folders of this machine that can be read, beside Python's."""
    processes: bool = False
    """Start other programs of this machine, such as a C compiler. Needs namespaces, and goes without the filter of calls."""

    @property
    def clock(self) -> float:
        return 2 * self.seconds + 1 if self.wall is None else self.wall


def run(
    source: str,
    tests: dict[str, Any] | None,
    limits: Limits,
    *,
    setup: str = "",
    stdin: str | socket.socket = "",
    file: str = "",
    folders: Sequence[str] = (),
) -> tuple[Outcome, dict[str, Any]]:
    """A script, or with tests a module that they are run against; and what the processes beside it said (inside/judge.py).
    With `file`, the name that the source has, it answers calls that come over `stdin` (inside/calls.py), and imports from
    `folders`."""
    if sys.platform != "linux":
        raise SandboxError(
            f"model-written code is run on Linux only, and this is {sys.platform}, where it cannot be isolated; "
            "use a Linux machine, a virtual one will do"
        )
    layers = limits.layers
    if layers is None:
        layers = _possible()
        _warn()
    if limits.processes:
        if NAMESPACES not in layers:
            raise SandboxError(
                "code that starts other programs needs the kernel's namespaces, which this machine does not have; "
                "use a machine that lets this user make them (docs/sandbox.md)"
            )
        layers = [layer for layer in layers if layer != SECCOMP]
    job = {
        "source": source,
        "setup": setup,
        "judged": tests is not None,
        "layers": list(layers),
        "packages": _package_folders() if limits.packages else [],
        "seconds": max(1, math.ceil(limits.seconds)),
        "wall": limits.clock,
        "output": limits.output,
        "readable": [*limits.readable, *((*_PROGRAMS, os.path.realpath(sys.executable)) if limits.processes else ())],
        "file": file,
        "folders": list(folders),
        "megabytes": limits.megabytes,
        "disk": DISK,
        "files": FILES,
        "open_files": OPEN_FILES,
        "threads": THREADS,
    }
    with tempfile.TemporaryDirectory(prefix="fastslow-", ignore_cleanup_errors=True) as folder:
        job["folder"] = folder
        outcome, said = _run(job, tests or {}, stdin)
        if not said:  # the fork server was ended in this very moment; the next one will do
            outcome, said = _run(job, tests or {}, stdin)
    if "started" not in said and outcome.reason != "output":  # who writes too much may be ended before that is reported
        why = said.get("refused")
        raise SandboxError(f"model-written code cannot be run here: {why}" if why else _NOT_STARTED)
    return outcome, said


def _package_folders() -> list[str]:
    """Where installed packages are; an environment may share those of another."""
    names = ("site-packages", "dist-packages")
    return [os.path.realpath(folder) for folder in sys.path if os.path.basename(folder) in names]


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
    """The process that forks for every program (see inside/main.py)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Process | None = None

    def fork(self, files: list[int]) -> None:
        """Hand over the open files of one program."""
        with self._lock:
            for _ in range(2):  # it may have been ended since: by the machine, for want of memory, or by a person
                self._process = self._process or self._start()
                with contextlib.suppress(OSError):
                    socket.send_fds(self._process.connection, [b"."], files)
                    return
                self._process.end()
                self._process = None
        raise SandboxError(_NOT_STARTED)

    def _start(self) -> Process:  # without packages and the user's folder
        flags = ("-S", "-s", "-X", "utf8")
        return Process("main", flags=flags, inherited=["LD_LIBRARY_PATH"], environment=ENVIRONMENT)


_FORK_SERVER = _ForkServer()


def _run(job: dict[str, Any], tests: dict[str, Any], stdin: str | socket.socket) -> tuple[Outcome, dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        files = []
        for text in (json.dumps(job), json.dumps(tests), stdin):
            if isinstance(text, socket.socket):
                files.append(text.fileno())
                continue
            file = stack.enter_context(tempfile.TemporaryFile())  # whatever its size, nobody waits for it to be read
            file.write(text.encode("utf-8", "surrogatepass"))
            file.seek(0)
            files.append(file.fileno())
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
        limits = {output: job["output"], errors: OUTPUT, report.fileno(): _REPORT}
        (*texts, told), over = _collect(report, limits, job["wall"] + _GRACE)
    said = wire.merged(told)
    stdout, stderr = (text.decode("utf-8", "replace") for text in texts)
    reason = "output" if over else _reason(said, stderr, job["seconds"])
    return Outcome(not reason, stdout, stderr, reason), said


def _collect(report: socket.socket, limits: dict[int, int], seconds: float) -> tuple[list[bytes], bool]:
    """The first bytes of every stream, up to its limit, and whether one went over. The report ends when everything has been
    cleared away; the others, which the program might hold open, are not waited for."""
    texts = dict.fromkeys(limits, b"")
    over = False
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for stream in limits:
            selector.register(stream, selectors.EVENT_READ)
        streams = selector.get_map()
        while ready := selector.select(max(0.0, end - time.monotonic()) if report.fileno() in streams else 0):
            for key, _ in ready:
                piece = os.read(key.fd, 2**16)
                if len(texts[key.fd]) + len(piece) > limits[key.fd]:
                    over, piece = True, piece[: limits[key.fd] - len(texts[key.fd])]
                    selector.unregister(key.fd)
                    report.shutdown(socket.SHUT_WR)  # the supervisor takes this for the end
                elif not piece:
                    selector.unregister(key.fd)
                texts[key.fd] += piece
        if report.fileno() in streams and "supervisor" in (said := wire.merged(texts[report.fileno()])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(said["supervisor"], signal.SIGKILL)
    return list(texts.values()), over


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
