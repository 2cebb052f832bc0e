"""Calling one function of a source that nobody has read, in a fresh process with limits: plain data goes in and comes out."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fastslow.sandbox.inside import wire
from fastslow.sandbox.process import Reply
from fastslow.sandbox.runner import Limits, run

Answer = Callable[[Any, float], Any]
"""Answers a question of the code that is called, within so many seconds."""
_ENDED = {
    "time": "it did not end within {seconds:g} seconds",
    "memory": "it needed more than {megabytes} megabytes of memory",
    "output": "it wrote too much",
    "crash": "its process crashed",
    "error": "it ended its process",
}


def call(
    source: str,
    function: str | Sequence[str],
    arguments: Sequence[Any],
    limits: Limits,
    *,
    file: str,
    folders: Sequence[str] = (),
    answer: Answer | None = None,
) -> Reply:
    """What a function of the source returns, or why it does not; for a list of names, what each of them is. `file` is the
    name of the source in messages, `answer` is asked what the code asks (`inside/calls.py`)."""
    ours, theirs = socket.socketpair()
    replies: list[Reply] = []
    with ours:
        with theirs:
            request = {"function": function if isinstance(function, str) else list(function), "arguments": [*arguments]}
            end = time.monotonic() + limits.clock
            talk = threading.Thread(target=_talk, args=(ours, request, answer, end, replies), daemon=True)
            talk.start()
            outcome, _ = run(source, None, limits, stdin=theirs, file=file, folders=folders)
        talk.join()
    if replies and replies[0].reason != "output" and outcome.reason != "output":
        return replies[0]
    return _ended("output" if replies else outcome.reason or "error", limits)


def _ended(reason: str, limits: Limits) -> Reply:
    return Reply(reason=reason, error=_ENDED[reason].format(seconds=limits.seconds, megabytes=limits.megabytes))


def _talk(connection: socket.socket, request: Any, answer: Answer | None, end: float, replies: list[Reply]) -> None:
    """Send the request, answer questions, and keep the reply. Who is at the other end may send anything."""
    pipe = connection.fileno()
    try:
        wire.send(pipe, request)
        while True:
            message = wire.receive(pipe)
            if "ask" in message and answer is not None:
                wire.send(pipe, answer(message["ask"], end - time.monotonic()))
                continue
            reason, error = message.get("reason", ""), str(message.get("error", ""))
            replies.append(Reply(message.get("value"), reason if reason in _ENDED else "error" * bool(reason), error))
            return
    except wire.TooLong:
        replies.append(Reply(reason="output"))
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # how the process ended says the rest
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
