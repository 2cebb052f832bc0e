"""A small machine for shell commands that nobody has read: its own files, processes and network (inside/box.py)."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.sandbox.inside import wire
from fastslow.sandbox.process import Process
from fastslow.sandbox.runner import SandboxError

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = (
    *(
        "alternatives",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "localtime",
        "mime.types",
        "nsswitch.conf",
        "profile",
    ),
    *("protocols", "services", "ssl", "ca-certificates", "python3", "python3.11", "python3.12", "terminfo"),
)
"""What is seen of /etc."""
_NETWORK_SETTINGS = ("resolv.conf", "gai.conf", "pip.conf")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    output: str
    errors: str
    timed_out: bool = False
    left: bool = False
    """Processes are left that it started."""


class Box:
    """The machine. `run` may be called from any thread, and `close` meanwhile."""

    def __init__(
        self,
        *,
        readable: Sequence[str] = (),
        network: bool = False,
        port: int | None = None,
        disk: int = 1024,
        memory: int = 4096,
        processes: int = 512,
    ) -> None:
        """Folders that can be read beside the programs of this machine; whether it has this machine's network, or the one
        port of its own that `listening` serves; and its limits: megabytes of files and of a process's memory, processes."""
        if sys.platform != "linux":
            raise SandboxError(f"commands can be isolated on Linux only, and this is {sys.platform}; use Docker there")
        seen = [*_PROGRAMS, *(f"/etc/{name}" for name in (*_SETTINGS, *(_NETWORK_SETTINGS if network else ())))]
        self._stage = tempfile.TemporaryDirectory(prefix="fastslow-", ignore_cleanup_errors=True)
        settings = {
            **{"stage": self._stage.name, "readable": [*seen, *readable], "network": network, "port": port},
            **{"disk": disk, "memory": memory, "processes": processes},
        }
        flags, inherited = ("-S", "-s", "-X", "utf8"), ["LD_LIBRARY_PATH"]
        os.chmod(self._stage.name, 0o755)
        self._process = Process("box", flags=flags, inherited=inherited, environment={})
        self._connection, self._lock, self._sending = self._process.connection, threading.Lock(), threading.Lock()
        self._number, self._running = 0, False
        self.listening: socket.socket | None = None
        try:
            wire.send(self._connection.fileno(), settings)
            said = self._receive()
            if "refused" in said:
                raise SandboxError(
                    f"commands cannot be isolated here ({said['refused']}): that needs namespaces; run as root, allow "
                    "unprivileged user namespaces, or use Docker"
                )
            if port and not network:
                _, files, _, _ = socket.recv_fds(self._connection, 1, 1)
                self.listening = socket.socket(fileno=files[0])
        except BaseException:
            self.close()
            raise

    def run(
        self,
        command: str,
        *,
        folder: str = "/",
        environment: Mapping[str, str] | None = None,
        seconds: float = 600,
        given: bytes = b"",
    ) -> Ran:
        """Run a command of bash to its end, or to the end of its time, when its process group is ended."""
        request = {
            **{"command": command, "folder": folder, "seconds": seconds},
            "environment": {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **(environment or {})},
        }
        with self._lock, tempfile.TemporaryFile() as file:
            file.write(given)
            file.seek(0)
            try:
                with self._sending:
                    self._number += 1
                    wire.send(self._connection.fileno(), {**request, "number": self._number})
                    socket.send_fds(self._connection, [b"."], [file.fileno()])
                    self._running = True
                said = self._receive()
                with self._sending:
                    self._running = False
            except (OSError, EOFError) as error:
                raise SandboxError("the machine that commands run in has ended") from error
        output, errors = (base64.b64decode(said[name]).decode("utf-8", "replace") for name in ("output", "errors"))
        return Ran(said["code"], output, errors, said["timed_out"], said["left"])

    def stop(self) -> None:
        """End the command that runs, if there is one."""
        with self._sending, contextlib.suppress(OSError):
            if self._running:
                wire.send(self._connection.fileno(), {"stop": self._number})

    def _receive(self) -> Any:
        try:
            return wire.receive(self._connection.fileno())
        except EOFError:
            raise SandboxError("the machine that commands run in has ended") from None

    def close(self) -> None:
        """End it, and everything that runs in it."""
        if self.listening is not None:
            self.listening.close()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._process.end()
        self._stage.cleanup()
