"""An agent that is a program: started for every rollout, and ended with everything it has started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTPUT = 2**20
"""Bytes of standard output, and of standard error, that are kept; the rest is dropped."""
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
    reading = [asyncio.ensure_future(_first(stream)) for stream in (process.stdout, process.stderr)]
    mark = next(iter(given.items()))
    assert process.stdin is not None
    try:
        with contextlib.suppress(OSError):  # it need not read it
            process.stdin.write(json.dumps(problem, default=str).encode())
            process.stdin.close()
        code = await process.wait()
        leaked = await _left(process.pid, mark)
    finally:
        _kill(process.pid, mark)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        texts = await asyncio.gather(*reading)
    return Ended(code, texts[0], texts[1], leaked)


async def _first(stream: asyncio.StreamReader | None) -> str:
    kept = b""
    assert stream is not None
    while piece := await stream.read(2**16):
        kept = (kept + piece)[:OUTPUT]
    return kept.decode("utf-8", "replace")


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
