"""The first process of a small machine: it starts shell commands, one after another, for whoever made it.

The machine has an empty root of its own in memory, the programs of this one to read and to run, no processes but its own and
no network but, where that is wanted, one address that is listened to from outside. Commands run as one ordinary user. It ends
with whoever made it, and everything that was started in it ends with it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from . import isolation, wire

OUTPUT = 2**20
"""Bytes of standard output, and of standard error, that are kept: the first half of them and the last."""
_SETTLED = 0.2
"""Seconds in which what is left in the pipes is read after a command has ended: its background processes may hold them."""
_PASSWD = "root:x:{0}:{0}:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n"


def main(connection: str) -> None:
    """Make the machine and serve it; the outer of the two processes only waits for the inner."""
    control = socket.socket(fileno=int(connection))
    given = wire.receive(control.fileno())
    try:
        isolation.be_expendable()
        user = isolation.choose_user()
        isolation.leave(user, given["network"])
        first = os.fork()
    except OSError as error:
        wire.send(control.fileno(), {"refused": str(error)})
        return
    if first:
        control.close()
        os.waitpid(first, 0)
        return
    try:
        isolation.prctl(isolation.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        listening = _furnish(given, user)
        isolation.become(user)
        isolation.prctl(isolation.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has taken it away
        isolation.prctl(isolation.PR_SET_DUMPABLE, 0)
    except OSError as error:
        wire.send(control.fileno(), {"refused": str(error)})
        os._exit(1)
    wire.send(control.fileno(), {"ready": True})
    if listening is not None:
        socket.send_fds(control, [b"."], [listening.fileno()])
        listening.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = wire.receive(control.fileno())
            if "stop" in request:  # of a command that has ended meanwhile
                continue
            _, files, _, _ = socket.recv_fds(control, 1, 1)
            wire.send(control.fileno(), _Command(request, files[0], control.fileno(), given).outcome())
    os._exit(0)


def _furnish(given: dict[str, Any], user: int) -> socket.socket | None:
    isolation.furnish(given["stage"], given["readable"], user, given["disk"])
    os.umask(0o022)
    for folder in ("/root", "/tmp", "/var/tmp", "/run", "/etc", "/opt", "/srv", "/mnt", "/home", "/logs"):
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(OSError):
            os.chown(folder, user, -1)
    files = {"passwd": _PASSWD.format(user), "group": f"root:x:{user}:\n", "hosts": "127.0.0.1 localhost\n"}
    for name, text in files.items():
        with contextlib.suppress(OSError), open(f"/etc/{name}", "x") as file:
            file.write(text)
    if given["network"]:
        return None
    isolation.raise_loopback()
    if not given["port"]:
        return None
    listening = socket.socket()
    listening.bind(("127.0.0.1", given["port"]))
    listening.listen(64)
    return listening


class _Command:
    def __init__(self, request: dict[str, Any], given: int, control: int, limits: dict[str, Any]) -> None:
        self._request, self._control, self._limits = request, control, limits
        (self._output, output), (self._errors, errors) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._become(given, output, errors)
        for each in (given, output, errors):
            os.close(each)
        self._stopped = False
        self._kept = {self._output: b"", self._errors: b""}
        self._lost = dict.fromkeys(self._kept, 0)

    def _become(self, given: int, output: int, errors: int) -> NoReturn:
        try:
            os.setsid()
            for place, file in enumerate((given, output, errors)):
                os.dup2(file, place)
            os.closerange(3, 1024)
            os.makedirs(self._request["folder"], exist_ok=True)
            os.chdir(self._request["folder"])
            megabytes = 2**20
            for kind, most in (
                (resource.RLIMIT_DATA, self._limits["memory"] * megabytes),
                (resource.RLIMIT_NPROC, self._limits["processes"]),
                (resource.RLIMIT_CORE, 0),
            ):
                resource.setrlimit(kind, (most, most))
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            isolation.refuse_calls(writing=True, programs=True)
            os.execve("/bin/bash", ["bash", "-c", self._request["command"]], self._request["environment"])
        except BaseException as error:
            sys.stderr.write(f"the command cannot be started: {error}\n")
            sys.stderr.flush()
        os._exit(126)

    def outcome(self) -> dict[str, Any]:
        """Wait for the end of the command, or of its time, when its process group is ended. Whoever asked may stop it before,
        or hang up, which ends the machine."""
        end, code = time.monotonic() + self._request["seconds"], None
        with contextlib.closing(select.epoll()) as events:
            for stream in self._kept:
                events.register(stream, select.EPOLLIN)
            events.register(self._control, select.EPOLLIN | select.EPOLLRDHUP)
            while code is None and time.monotonic() < end and not self._stopped:
                self._read(events, 0.02)
                code = self._reap()
            timed_out = code is None
            if timed_out:
                with contextlib.suppress(OSError):
                    os.killpg(self._pid, signal.SIGKILL)
            settled = time.monotonic() + _SETTLED
            while self._read(events, 0.02) and time.monotonic() < settled:
                code = self._reap() if code is None else code
        while code is None:
            code = self._reap(os.WEXITED)
        texts = [self._text(stream) for stream in self._kept]
        for stream in self._kept:
            os.close(stream)
        return {"code": code, "output": texts[0], "errors": texts[1], "timed_out": timed_out, "left": self._left()}

    def _read(self, events: select.epoll, seconds: float) -> bool:
        """Read what is there; whether there was anything."""
        ready = events.poll(seconds)
        for stream, _ in ready:
            if stream == self._control:
                try:
                    self._stopped |= wire.receive(self._control)["stop"] == self._request["number"]
                except EOFError:
                    os._exit(0)
                continue
            piece = os.read(stream, 2**16)
            if not piece:
                events.unregister(stream)
            kept = self._kept[stream] + piece
            if len(kept) > 2 * OUTPUT:
                self._lost[stream] += len(kept) - OUTPUT
                kept = kept[: OUTPUT // 2] + kept[-OUTPUT // 2 :]
            self._kept[stream] = kept
        return bool(ready)

    def _text(self, stream: int) -> str:
        kept, lost = self._kept[stream], self._lost[stream]
        if lost:
            half = OUTPUT // 2
            kept = kept[:half] + f"\n… {lost:,} bytes …\n".encode() + kept[half:]
        return base64.b64encode(kept).decode()

    def _reap(self, wait: int = 0) -> int | None:
        """The exit code of the command, if it has ended; whatever else has ended is forgotten."""
        code = None
        with contextlib.suppress(ChildProcessError):
            while True:
                ended, status = os.waitpid(-1, 0 if wait else os.WNOHANG)
                if ended == self._pid:
                    return os.waitstatus_to_exitcode(status)
                if not ended:
                    return code
        return -signal.SIGKILL if wait else code

    def _left(self) -> bool:
        """Whether processes of the machine are left, this one aside."""
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and name != "1":
                    with open(f"/proc/{name}/stat") as file:
                        if file.read().rpartition(")")[2].split()[0] not in "ZX":
                            return True
        return False
