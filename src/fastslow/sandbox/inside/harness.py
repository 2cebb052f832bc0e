"""The process that forks for every rollout of a harness, and what a fork does: it runs the harness's code.

Isolation is paid for once: this process leaves the machine's files and network behind, and forks inside. It only ever holds
the open files of rollouts. Code and problem are read by the fork, from a channel of its own, so nothing of a rollout can be
left here for the next one. A fork has no files to write, no threads, no other processes and no locks.

The channel carries lines of JSON. A fork asks for an answer of the policy or for a tool, and says in the end what the code
returned or raised. Whatever else it writes is data that the other side refuses. When a fork has ended, this process writes
the last line: how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from . import isolation, program, wire

LARGEST = 2**20
"""Characters of one message."""
_PRINTED = 2000
_CHANNEL = 3
_MOST_FILES = 16_384
_PRELOADED = """array base64 bisect calendar cmath collections contextlib copy csv dataclasses datetime decimal difflib
enum fractions functools hashlib heapq html itertools json math numbers operator pprint random re statistics string struct
textwrap time types typing unicodedata zlib"""
"""Loaded once, before the C libraries that some need are out of reach."""
_OUTSIDE = ("site-packages", "dist-packages", "__pycache__", "test", "idlelib", "ensurepip")


def main(connection: str, given: str) -> None:
    """Become isolated, then fork for every message until the caller hangs up. A message brings the channel of a rollout."""
    calls, settings = socket.socket(fileno=int(connection)), json.loads(given)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for module in _PRELOADED.split():
        importlib.import_module(module)
    try:
        user = _isolate(settings)
        child = os.fork()  # in a process namespace it is the first: when it ends, all others end with it
    except OSError as error:
        wire.send(calls.fileno(), {"refused": str(error.strerror or error)})
        return
    if child == 0:
        isolation.prctl(isolation.PR_SET_PDEATHSIG, signal.SIGKILL)
        gc.freeze()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MOST_FILES), hard))
        wire.send(calls.fileno(), {"started": True})
        with contextlib.suppress(BaseException):
            _Server(calls, user, settings["layers"]).serve()
        os._exit(0)
    calls.close()
    os.waitpid(child, 0)


def _isolate(settings: dict[str, Any]) -> int:
    """Leave everything but Python's own library behind; the user that forks become."""
    isolation.be_expendable()
    user, library = isolation.choose_user(), os.path.realpath(os.path.dirname(os.__file__))
    readable = [os.path.join(library, name) for name in sorted(os.listdir(library)) if name not in _OUTSIDE]
    sys.path[:] = [library, os.path.join(library, "lib-dynload")]
    sys.dont_write_bytecode = True
    if "namespaces" in settings["layers"]:
        isolation.enter(settings["folder"], readable, user, 1, 10)
    else:
        isolation.read_only([*readable, *isolation.DEVICES])
    return user


class _Fork(NamedTuple):
    process: int
    channel: int
    """Held here too, so that it can be seen that the rollout has hung up, and to write the last line."""
    lives: int
    """Readable when the process has ended."""


class _Server:
    def __init__(self, calls: socket.socket, user: int, layers: list[str]) -> None:
        self._calls, self._user, self._layers = calls, user, layers
        self._poll = select.poll()
        self._forks: dict[int, _Fork] = {}
        """By each of its two open files."""

    def serve(self) -> None:
        self._poll.register(self._calls, select.POLLIN)
        while True:
            ready = [file for file, _ in self._poll.poll()]
            for file in ready:
                if file in self._forks:
                    self._attend(self._forks[file], file)
            if self._calls.fileno() in ready:  # last: what it opens may have the number of a file that was just closed
                received = socket.recv_fds(self._calls, 1, 1)
                if not received[0]:
                    return self._end_all()
                self._fork(*received[1])

    def _fork(self, channel: int) -> None:
        process = os.fork()  # where this fails, so does the machine: the callers see that this process has ended
        if process == 0:
            with contextlib.suppress(BaseException):
                _become_harness(channel, self._user, self._layers)
            os._exit(1)
        fork = _Fork(process, channel, os.pidfd_open(process))
        self._forks |= {channel: fork, fork.lives: fork}
        self._poll.register(channel, 0)  # nothing but that the other side has hung up
        self._poll.register(fork.lives, select.POLLIN)

    def _attend(self, fork: _Fork, file: int) -> None:
        """The process has ended, or the rollout wants no more of it."""
        if file == fork.channel:
            self._poll.unregister(file)
            del self._forks[file]
            _kill(fork)
            return
        _, status, used = os.wait4(fork.process, 0)
        for each in (fork.lives, fork.channel):
            if self._forks.pop(each, None):
                self._poll.unregister(each)
        os.close(fork.lives)
        worked = used.ru_utime + used.ru_stime
        _write_last(fork.channel, {"ended": os.waitstatus_to_exitcode(status), "worked": worked})

    def _end_all(self) -> None:
        for fork in self._forks.values():
            _kill(fork)


def _kill(fork: _Fork) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(fork.process, signal.SIGKILL)


def _write_last(channel: int, message: dict[str, Any]) -> None:
    """On a line of its own, whatever the fork wrote before; nobody waits for a rollout that does not read."""
    with contextlib.suppress(OSError), socket.socket(fileno=channel) as closing:
        closing.send(f"\n{json.dumps(message)}\n".encode(), socket.MSG_DONTWAIT)


def _become_harness(channel: int, user: int, layers: list[str]) -> NoReturn:
    """Give up all but the channel, then run what it brings."""
    os.setsid()
    os.environ.clear()
    os.dup2(channel, _CHANNEL)
    os.closerange(_CHANNEL + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    isolation.become(user, layers)
    isolation.prctl(isolation.PR_SET_PDEATHSIG, signal.SIGKILL)
    isolation.prctl(isolation.PR_SET_DUMPABLE, 0)
    talk = Talk()
    job = talk.receive()
    isolation.limit(job["seconds"], job["megabytes"], 0, _CHANNEL + 9, threads=0)
    isolation.refuse_calls(writing=False, locking=False)
    sys.stdout = sys.stderr = prints = Prints()
    said = _run(job, talk)
    talk.send({**said, "prints": prints.text[:_PRINTED]})
    os._exit(0)


def _run(job: dict[str, Any], talk: Talk) -> dict[str, Any]:
    given = {
        "problem": job["problem"],
        "ask": talk.ask,
        "tools": SimpleNamespace(**{n: talk.tool(n) for n in job["tools"]}),
    }
    try:
        names = program.execute("harness", {program.FILE: job["code"]}, job["seed"])
        returned = names[job["entry"]](**{name: given[name] for name in job["parameters"]})
        text = returned if isinstance(returned, str) else json.dumps(returned)
        return {"returned": text if len(text) <= LARGEST // 8 else text[: LARGEST // 8]}
    except BaseException as error:  # of somebody else's code, which can raise anything
        return {"raised": program.described(error)}


class Talk:
    """The fork's side of the channel, one message at a time."""

    def __init__(self) -> None:
        self._read = b""

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(_CHANNEL, data) :]

    def receive(self) -> Any:
        while b"\n" not in self._read:
            piece = os.read(_CHANNEL, 2**16)
            if not piece:
                os._exit(1)
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def ask(self, messages: Any, component: str | None = None, max_tokens: int | None = None, stop: Any = ()) -> str:
        """The policy's answer to a text or to messages."""
        stop = [stop] if isinstance(stop, str) else list(stop)
        wanted = {"messages": messages, "component": component, "max_tokens": max_tokens, "stop": stop}
        return str(self._answered({"ask": wanted}))

    def tool(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            return self._answered({"tool": name, "arguments": arguments, "named": named})

        call.__name__ = call.__qualname__ = name
        return call

    def _answered(self, request: dict[str, Any]) -> Any:
        self.send(request)
        reply = self.receive()
        if "refused" in reply:
            raise (ValueError if "tool" in request else RuntimeError)(reply["refused"])
        return reply["value"]


class Prints(io.TextIOBase):
    """Keeps the beginning of what is printed."""

    text = ""

    def write(self, text: str) -> int:
        self.text += text[: max(0, _PRINTED - len(self.text))]
        return len(text)
