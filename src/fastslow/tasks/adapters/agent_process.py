"""An agent that is a program: started for every rollout, and ended with everything it has started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fastslow.base.world import in_thread
from fastslow.gateway.server import gateway
from fastslow.sandbox.box import PATH, Box
from fastslow.tasks.adapters.harbor.machines import LONGEST, SandboxMachine, talk

LARGEST = 2**20
"""Bytes of a file that are read."""
GRACE = 0.5
"""Seconds in which a program's children may end after it."""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    output: str
    errors: str
    leaked: bool
    """It left processes behind, which were ended."""


class Place(Protocol):
    """Where the command of a rollout runs."""

    async def run(self, command: str, given: Mapping[str, str]) -> Ended:
        """Run a shell command, with variables added to its environment and the problem as its standard input."""

    async def read(self, name: str) -> str | None:
        """A file that it wrote, if there is one."""


class Files(Protocol):
    """What a place is furnished with."""

    folder: str | None
    readable: list[str]


@contextlib.asynccontextmanager
async def in_folder(files: Files, problem: Mapping[str, Any]) -> AsyncIterator[Place]:
    """A folder of this machine, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fastslow-", ignore_cleanup_errors=True) as folder:
        await in_thread(prepare, Path(folder), files.folder, problem)
        yield _Folder(Path(folder), problem)


@dataclass(frozen=True)
class _Folder:
    folder: Path
    problem: Mapping[str, Any]

    async def run(self, command: str, given: Mapping[str, str]) -> Ended:
        return await run_command(command, self.folder, given, self.problem)

    async def read(self, name: str) -> str | None:
        file = self.folder / name
        if not file.is_file() or not file.resolve().is_relative_to(self.folder.resolve()):
            return None
        with file.open("rb") as opened:
            return opened.read(LARGEST).decode("utf-8", "replace")


@contextlib.asynccontextmanager
async def in_box(files: Files, problem: Mapping[str, Any]) -> AsyncIterator[Place]:
    """The sandbox, which ends afterwards with all that runs in it."""
    readable = [str(Path(each).expanduser().resolve()) for each in files.readable]
    box = await in_thread(lambda: Box(readable=readable, port=gateway().port))
    machine = SandboxMachine(box, "/agent", {"PATH": ":".join([*(f"{each}/bin" for each in readable), PATH])})
    try:
        assert box.listening is not None
        async with gateway().reached_from(box.listening):
            with tempfile.TemporaryDirectory(prefix="fastslow-") as folder:
                await in_thread(prepare, Path(folder), files.folder, problem)
                await machine.put(Path(folder), "/agent")
            yield _Boxed(machine, problem)
    finally:
        await machine.close()


@dataclass(frozen=True)
class _Boxed:
    machine: SandboxMachine
    problem: Mapping[str, Any]

    async def run(self, command: str, given: Mapping[str, str]) -> Ended:
        stdin = json.dumps(self.problem, default=str).encode()
        ran = await self.machine.run(command, seconds=LONGEST, environment=given, given=stdin)
        return Ended(ran.code, ran.output, ran.errors, ran.left)

    async def read(self, name: str) -> str | None:
        ran = await self.machine.run(f"cat -- {shlex.quote(name)}", seconds=60)
        return None if ran.code else ran.output


def prepare(folder: Path, files: str | None, problem: Mapping[str, Any]) -> None:
    """Fill the folder of a rollout: a copy of the agent's files, and the problem."""
    if files:
        shutil.copytree(Path(files).expanduser(), folder, dirs_exist_ok=True, symlinks=True)
    (folder / "problem.json").write_text(json.dumps(problem, default=str))


async def run_command(command: str, folder: Path, given: Mapping[str, str], problem: Mapping[str, Any]) -> Ended:
    """Run a shell command in a folder. `given` is added to its environment, and marks whatever it starts."""
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        env={**os.environ, **given},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    talking, ends = talk(process, json.dumps(problem, default=str).encode())
    mark = next(iter(given.items()))
    try:
        code = await _exit(process)
        leaked = await _left(process.pid, mark)
    finally:
        _kill(process.pid, mark)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await _exit(process)
        _, held = await asyncio.wait(talking, timeout=GRACE)  # by processes that have left group and environment
        for each in held:
            each.cancel()
    output, errors = (each.decode("utf-8", "replace") for each in ends)
    return Ended(code, output, errors, leaked or bool(held))


async def _exit(process: asyncio.subprocess.Process) -> int:
    """Its exit code. `wait` would wait for others that hold its pipes too."""
    while process.returncode is None:
        await asyncio.sleep(GRACE / 20)
    return process.returncode


async def _left(group: int, mark: tuple[str, str]) -> bool:
    """Whether processes are left after a while."""
    for _ in range(10):
        if not _remaining(group, mark):
            return False
        await asyncio.sleep(GRACE / 10)
    return True


def _remaining(group: int, mark: tuple[str, str]) -> list[int]:
    """The processes of a group, and those that carry a mark in their environment: a process can leave its group."""
    wanted, found = f"{mark[0]}={mark[1]}".encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with contextlib.suppress(OSError, ValueError):
                state = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                own = int(state[2]) == group or wanted in Path(entry.path, "environ").read_bytes().split(b"\0")
                if own and state[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def _kill(group: int, mark: tuple[str, str]) -> None:
    for _ in range(10):  # those that are started meanwhile, too
        left = _remaining(group, mark)
        for number in left:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        if not left:
            return
