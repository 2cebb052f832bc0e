"""Running the code of a harness: isolated, with a channel through which it asks the policy and calls tools.

All that leaves the other process is lines of JSON, which are checked here like anything that a stranger sent. The process,
its limits and its isolation are described in inside/harness.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.base.text import one_line
from fastslow.sandbox.inside import wire
from fastslow.sandbox.process import Process
from fastslow.sandbox.runner import ENVIRONMENT, LANDLOCK, NAMESPACES, SECCOMP, SandboxError, protections

LARGEST = 2**20
"""Bytes of one message."""
_START = 30.0
"""Seconds in which the process that forks must have started."""
_DEEPEST = 100
"""Lists in lists that a message may have."""
_LONGEST = 300
"""Characters of an exception's message that are kept."""


class Refused(Exception):
    """What the code asks for is not given to it; str(error) is the reason, which it reads as an exception."""


Answer = Callable[[dict[str, Any]], Awaitable[Any]]
"""Answers one request of the code: `{"ask": …}` or `{"tool": …}`. Raises `Refused`."""


@dataclass(frozen=True)
class Job:
    """One run of a harness."""

    code: str
    entry: str
    parameters: Sequence[str]
    """Of `problem`, `ask` and `tools`, those that the entry point takes."""
    problem: Any
    """Plain data: all that the code is to know."""
    tools: Sequence[str] = ()
    """The names of the tools that it may call."""
    seed: str = ""
    """What Python's `random` begins with."""
    seconds: float = 5
    """Of work; on the clock, between two requests, twice as many and one more."""
    megabytes: int = 256


@dataclass(frozen=True)
class Ended:
    """How a run ended. `reason` is empty where it returned, else one word, as in `Outcome`: `error`, `time`, `memory`,
    `output` (it wrote something else than requests) or `crash`. `words` says so of the code, with its line."""

    returned: str = ""
    reason: str = ""
    words: str = ""
    prints: str = ""


class _Server:
    """The process that forks for every run of a harness; there is one, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Process | None = None

    def fork(self, channel: socket.socket) -> Process:
        with self._lock:
            for _ in range(2):  # it may have been ended since
                self._process = self._process or _start()
                with contextlib.suppress(OSError):
                    socket.send_fds(self._process.connection, [b"."], [channel.fileno()])
                    return self._process
                self._process.end()
                self._process = None
        raise SandboxError("harness code cannot be run here: the process for it ends at once")


def _start() -> Process:
    layers = protections().layers
    if SECCOMP not in layers or not {NAMESPACES, LANDLOCK} & set(layers):
        raise SandboxError(
            "harness code evolves and is read by nobody before it runs, so it needs full isolation, which this machine "
            f"lacks: {' '.join(protections().missing)} See docs/sandbox.md"
        )
    with tempfile.TemporaryDirectory(prefix="fastslow-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        given = json.dumps({"layers": layers, "folder": folder})
        flags = ("-S", "-s", "-X", "utf8")
        process = Process("harness", given, flags=flags, inherited=["LD_LIBRARY_PATH"], environment=ENVIRONMENT)
        said: dict[str, Any] = {}
        if select.select([process.connection], [], [], _START)[0]:
            with contextlib.suppress(OSError, EOFError):
                said = wire.receive(process.connection.fileno())
    if "started" not in said:
        process.end()
        raise SandboxError(f"harness code cannot be run here: {said.get('refused', 'its process does not start')}")
    return process


_SERVER = _Server()


async def run_harness(job: Job, answer: Answer) -> Ended:
    """Run a harness to its end, answering what it asks for. What `answer` raises ends it and is raised, but for `Refused`."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            server = _SERVER.fork(theirs)
        except BaseException:
            ours.close()
            raise
    reader, writer = await asyncio.open_connection(sock=ours, limit=LARGEST)
    try:
        fields = {**vars(job), "seconds": max(1, math.ceil(job.seconds))}
        writer.write(json.dumps(fields).encode() + b"\n")
        while True:
            said = await _said(reader, 2 * job.seconds + 1)
            if said == b"" and server.popen.poll() is not None:  # which no harness can bring about
                raise SandboxError(
                    "the process that runs harness code was ended by this machine, which may lack memory"
                )
            said = _checked(said, job)
            if isinstance(said, Ended):
                return said
            try:
                reply = {"value": await answer(said)}
            except Refused as refusal:
                reply = {"refused": str(refusal)}
            writer.write(json.dumps(reply).encode() + b"\n")
    finally:
        writer.transport.abort()  # its process is ended, if it has not ended itself


async def _said(reader: asyncio.StreamReader, seconds: float) -> Any:
    """The next message, None where nothing comes within so many seconds; what is no message, and the end, as bytes."""
    reading = asyncio.ensure_future(_line(reader))
    try:
        await asyncio.wait({reading}, timeout=seconds)
        if not reading.done():  # the event loop may have been busy for all that time
            await asyncio.wait({reading}, timeout=0.1)
        if reading.done():
            return json.loads(line) if (line := reading.result()) else b""
        reading.cancel()
        await asyncio.wait({reading})
        with contextlib.suppress(TimeoutError):  # the beginning of a line without an end?
            return b"?" if await asyncio.wait_for(reader.read(1), 0.1) else b""
        return None
    except (ValueError, RecursionError):  # too long, or no JSON
        return b"?"
    except OSError:  # written to when nobody was there any more
        return b""
    finally:
        reading.cancel()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """What was said last of how the process ended has a line of its own, which may leave an empty one."""
    line = await reader.readline()
    return await reader.readline() if line == b"\n" else line


def _checked(said: Any, job: Job) -> dict[str, Any] | Ended:
    """A request, or how the run ended."""
    ended = Ended(reason="output", words="it wrote something else than requests to its channel")
    match said if _shallow(said) else b"?":
        case {"ask": {"messages": _, "component": _, "max_tokens": _, "stop": _, **more}} if not more:
            return {"ask": said["ask"]}
        case {"tool": str(name), "arguments": list(arguments), "named": dict(named)}:
            return {"tool": name, "arguments": arguments, "named": named}
        case {"returned": str(text), "prints": str(prints)}:
            ended = Ended(text, prints=prints)
        case {
            "raised": {"kind": str(kind), "message": str(message), "line": line, "code": str(code)},
            "prints": str(prints),
        }:
            where = f"line {line} (`{one_line(code, _LONGEST)}`): " if isinstance(line, int) and line else ""
            words = f"{where}{one_line(kind, 80)}: {one_line(message, _LONGEST)}"
            ended = Ended(reason="memory" if kind == "MemoryError" else "error", words=words, prints=prints)
        case {"ended": int(status), "worked": float(worked)}:
            over = status == -signal.SIGXCPU or (status == -signal.SIGKILL and worked >= job.seconds)
            ended = Ended(reason="crash", words=f"its process ended with {status} before it returned")
            if over:
                ended = Ended(reason="time", words=f"it worked for more than {job.seconds:g} seconds")
        case None:
            ended = Ended(
                reason="time", words=f"it asked for nothing in {2 * job.seconds + 1:g} seconds, and did not end"
            )
        case b"":
            ended = Ended(reason="crash", words="it closed its channel")
    return ended


def _shallow(said: Any) -> bool:
    """Whether there is an end to a message within the depth that all that reads it can follow."""
    level = [[said]]
    for _ in range(_DEEPEST):
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return True
    return False


def plain(value: Any) -> Any:
    """What a tool returned, as the code gets it: data alone."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(str(value))
    if len(text) > LARGEST // 2:
        raise Refused(f"the result is too long: {len(text)} characters, at most {LARGEST // 2} are given")
    return json.loads(text)


def described(arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The arguments of a call, for people and reflection models."""
    return ", ".join([*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())])
