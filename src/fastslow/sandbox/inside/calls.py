"""The process that one function is called in, with arguments and a result that are plain data.

The connection to the caller comes as standard input, and is moved to where a program does not write by accident. Code that
is called may put questions to the caller, with `ask`, before it returns.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import sys
import threading
from types import ModuleType
from typing import Any

from . import wire

LONGEST = 20_000
"""Characters of an error message."""
_DEEPEST = 50
_lock = threading.Lock()
_connections: list[int] = []
"""One, once the call has come."""


def serve(source: str, file: str, folders: list[str]) -> None:
    """Load a source, make the call that the caller sends, send back what came of it, and end."""
    connection = os.dup(0)
    _connections.append(connection)
    with open("/dev/null") as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.path[:0] = folders
    request = wire.receive(connection)
    try:
        names = _load(source, file)
        if isinstance(request["function"], str):
            function = names.get(request["function"])
            if not callable(function):
                raise NameError(f"there is no function '{request['function']}'")
            value = plain(function(*request["arguments"]))
        else:  # what these names are; of a function, only that it is there
            wanted = {name: names.get(name) for name in request["function"]}
            value = {name: True if callable(each) else plain(each) for name, each in wanted.items()}
        json.dumps(value)
        reply = {"value": value}
    except BaseException as error:
        reply = {"reason": "memory" if isinstance(error, MemoryError) else "error", "error": _words(error, file)}
    with _lock:
        wire.send(connection, reply)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(0)  # whatever threads the code has left behind


def ask(question: dict[str, Any]) -> dict[str, Any] | None:
    """The caller's answer to a question; None where there is no caller."""
    if not _connections:
        return None
    with _lock:
        wire.send(_connections[0], {"ask": question})
        answer = wire.receive(_connections[0])
    assert isinstance(answer, dict)
    return answer


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it: numbers in full precision, arrays and tuples as lists."""
    if depth > _DEEPEST:
        raise TypeError("the value is nested too deeply, or holds itself")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if callable(convert := getattr(value, "tolist", None)):  # numpy's arrays and numbers
        return plain(convert(), depth + 1)
    raise TypeError(f"a value of type {type(value).__name__} is no plain data: numbers, texts, lists, dicts, arrays")


def _load(source: str, file: str) -> dict[str, Any]:
    name = os.path.basename(file).partition(".")[0]
    module = ModuleType(name)
    module.__file__ = file
    sys.modules.setdefault(name, module)
    sys.argv = [file]
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return vars(module)


def _words(error: BaseException, file: str) -> str:
    """What an exception says, and the last line of the source that it passed."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == file else None
    part = error.__traceback__
    while part is not None:
        if part.tb_frame.f_code.co_filename == file:
            line = part.tb_lineno
        part = part.tb_next
    try:
        said = str(error.msg) if isinstance(error, SyntaxError) else str(error)
    except BaseException:
        said = ""
    kind = "" if type(error).__name__ == "Failed" else type(error).__name__
    words = ": ".join(each for each in (kind, said[:LONGEST]) if each)
    return f"{words} (line {line} of {os.path.basename(file)})" if line and kind else words
