"""The process that the model's code runs in: as a script, or as a module whose functions the judge calls."""

from __future__ import annotations

import builtins
import linecache
import operator
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import wire

FILE = "answer.py"
SETUP = "setup.py"


def run_script(source: str) -> None:
    """As `python answer.py` would, with a traceback that begins in the answer."""
    try:
        _execute("__main__", {FILE: source})
    except SystemExit:
        raise
    except BaseException as error:
        part = error.__traceback__  # from where the answer's code begins; nothing of it where that never began
        while part is not None and part.tb_frame.f_code.co_filename not in (FILE, SETUP):
            part = part.tb_next
        error.__traceback__ = part
        traceback.print_exception(error)
        sys.exit(1)


class Server:
    """Loads the answer, then does what the judge asks for until it asks no more. What the answer makes of this process is its
    own affair: all that leaves it is data."""

    def __init__(self, requests: int, replies: int) -> None:
        self._requests, self._replies = requests, replies
        self._kept: list[Any] = []
        self._names: dict[str, Any] = {}

    def serve(self, setup: str, source: str) -> None:
        try:
            self._names = _execute("answer", {SETUP: setup, FILE: source})
            reply = {"value": sorted(self._names)}
        except BaseException as error:  # SystemExit too: an answer that leaves has no functions to call
            reply = _raised(error)
        while True:
            wire.send(self._replies, reply)
            try:
                request = wire.receive(self._requests)
            except EOFError:
                return
            reply = self._do(**request)

    def _do(self, do: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            given = [self._unpack(value) for value in args]
            named = {name: self._unpack(value) for name, value in kwargs.items()}
            value = self._name(*given) if do == "name" else _DOING[do](*given, **named)
            changed = [self._pack(item) if isinstance(item, wire.CHANGEABLE) else None for item in given]
            return {"value": self._pack(value), "changed": changed}
        except BaseException as error:
            return _raised(error)

    def _name(self, name: str) -> Any:
        """What the answer calls by a name; a module is not data, but the judge can import the same one."""
        value = self._names[name]
        return ("module", value.__name__) if isinstance(value, ModuleType) else ("value", value)

    def _pack(self, value: Any) -> Any:
        return wire.pack(value, self._keep)

    def _unpack(self, packed: Any) -> Any:
        return wire.unpack(packed, self._find)

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"exception": [len(self._kept) - 1, _ancestry(value)]}
        return {"kept": [len(self._kept) - 1, wire.builtin_name(value)]}

    def _find(self, stand_in: dict[str, Any]) -> Any:
        if "kept" in stand_in:
            return self._kept[stand_in["kept"][0]]
        if "builtin" in stand_in:  # the judge's: its own functions and types go over by name
            return vars(builtins)[stand_in["builtin"]]
        return self._judges_function(stand_in["judge"])

    def _judges_function(self, number: int) -> Callable[..., Any]:
        """A function that stayed with the judge: calling it asks the judge, in the middle of its own request."""

        def call(*args: Any, **kwargs: Any) -> Any:
            packed = {name: self._pack(value) for name, value in kwargs.items()}
            wire.send(self._replies, {"call": number, "args": [self._pack(value) for value in args], "kwargs": packed})
            while "do" in (answer := wire.receive(self._requests)):  # the judge's function calls one of the answer's
                wire.send(self._replies, self._do(**answer))
            if "raised" in answer:
                kind = vars(builtins).get(answer["raised"], Exception)
                raise kind(answer["message"])
            return self._unpack(answer["value"])

        return call


_DOING: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "getattr": getattr,
    "setattr": setattr,
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "bool": bool,
    "isinstance": lambda kind, value: isinstance(value, kind),
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "eq", "ne", "lt", "le", "gt", "ge")},
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "matmul", "and_", "or_", "xor")},
}


def _execute(name: str, sources: dict[str, str]) -> dict[str, Any]:
    module = ModuleType(name)
    sys.modules[name] = module
    sys.argv = [FILE]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # as everywhere; Python was started without the module for that
    for file, source in sources.items():
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return vars(module)


def _raised(error: BaseException) -> dict[str, Any]:
    """What is reported to the judge about an exception: its kind, its message and the last line of the answer it passed."""
    line = None
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line = error.lineno
    part = error.__traceback__
    while part is not None:
        if part.tb_frame.f_code.co_filename == FILE:
            line = part.tb_lineno
        part = part.tb_next
    try:
        words = str(error.msg) if isinstance(error, SyntaxError) else str(error)
        given = wire.pack(list(error.args), str)
    except BaseException:
        words, given = "", []
    return {
        "raised": _ancestry(type(error)),
        "args": given,
        "message": words[:2000],
        "line": line,
        "code": linecache.getline(FILE, line).strip()[:200] if line else "",
    }


def _ancestry(kind: type) -> list[str]:
    return [parent.__name__ for parent in kind.__mro__]
