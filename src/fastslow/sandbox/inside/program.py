"""The process that the model's code runs in: as a script, or as a module whose functions the judge calls."""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import inspect
import linecache
import random
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any

from . import around, lent, wire
from .errors import Tree, ancestry, exception_class
from .peer import Gone, Peer, Pipes, operate, operations

FILE = "answer.py"
SETUP = "setup.py"
SAFE = frozenset(
    (
        int,
        float,
        complex,
        bool,
        str,
        bytes,
        bytearray,
        list,
        tuple,
        dict,
        set,
        frozenset,
        range,
        slice,
        object,
        type(None),
    )
)
"""Types of Python's own that go over to the judge as they are: whatever they are called with, they make plain data of it."""


def run_script(source: str) -> None:
    """As `python answer.py` would, with a traceback that begins in the answer."""
    try:
        execute("__main__", {FILE: source})
    except SystemExit:
        raise
    except BaseException as error:
        part = error.__traceback__  # from where the answer's code begins; nothing of it where that never began
        while part is not None and part.tb_frame.f_code.co_filename not in (FILE, SETUP):
            part = part.tb_next
        error.__traceback__ = part
        traceback.print_exception(error)
        sys.exit(1)


class Program(Peer):
    """Loads the answer, then does what the judge asks for until it asks no more. What the answer makes of this process is its
    own affair: all that leaves it is data."""

    def __init__(self, requests: int, replies: int) -> None:
        super().__init__(Pipes(requests, replies), 1)
        self._names: dict[str, Any] = {}
        self._setup: set[str] = set()
        self._announced: dict[int, int] = {}
        self._new: list[Any] = []
        self._shown: set[int] = set()
        """Classes that the tests have got hold of, so that their objects must behave as such even where they are data."""
        self._theirs: dict[int, tuple[Any, int]] = {}
        self._loop: Any = None

    def serve(self, setup: str, source: str) -> None:
        try:
            self._setup = class_names(setup)
            self._names = execute("answer", {SETUP: setup, FILE: source})
            reply = self._reply([], "value", [sorted(map(str, self._names))], [])
        except BaseException as error:  # SystemExit too: an answer that leaves has no functions to call
            reply = self._reply([], "raised", [error], [])
        while True:
            self.send(reply)
            try:
                request = self.receive()
            except EOFError:
                return
            reply = self.answer(request)

    def send(self, message: dict[str, Any]) -> None:
        """With the classes that it is the first to speak of."""
        classes, self._new = self._new, []
        super().send({**message, "classes": classes} if classes else message)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "around" not in request:
            return super().answer(request)
        with around.Surroundings(
            lambda whole: self._unpacker(whole[1], []).unpack(whole[0]), request["around"]
        ) as here:
            reply = super().answer(request)
        return {**reply, **here.left}

    def do(self, do: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        match do:
            case "name" | "set" | "unset":
                return getattr(self, f"_{do}")(*args)
            case "call":
                return args[0](*args[1:], **kwargs)
            case "getattr" | "setattr" | "delattr" | "isinstance" | "dir":
                return getattr(builtins, do)(*args)
            case "copy" | "deepcopy" | "plain":
                return wire.plain(args[0]) if do == "plain" else getattr(copy, do)(args[0])
        name, value, *others = args
        if name == "await":
            return self._run(value)
        if name in ("exit", "aexit"):  # the test's frames stay with it
            others[2:] = [_raised(others[1])]
        # a class may have its own way to be indexed
        result = value[others[0]] if name == "getitem" else operate(name, value, *others, **kwargs)
        return self._run(result) if name in ("anext", "aenter", "aexit") else result

    def _name(self, name: str) -> Any:
        """What the answer calls by a name. A module, or what it took from one of Python's own, the judge has too."""
        value = self._names[name]
        if isinstance(value, ModuleType):
            return ("module", value.__name__)
        home = getattr(value, "__module__", None)
        if home in sys.stdlib_module_names and getattr(sys.modules.get(home), name, None) is value:
            return ("library", home)
        if isinstance(value, type):
            self._shown.add(id(value))
        return ("value", value)

    def _set(self, name: str, value: Any) -> None:
        self._names[name] = value

    def _unset(self, name: str) -> None:
        self._names.pop(name, None)

    def _run(self, awaitable: Any) -> Any:
        """Wait for what is to be awaited, in an event loop of this process."""
        import asyncio

        async def wait() -> Any:
            return await awaitable

        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(wait())

    def record(self, value: Any) -> str | None:
        kind = type(value)
        name = kind.__name__
        if (id(kind) in self._shown and _behaves(kind)) or (issubclass(kind, dict) and hasattr(kind, "__getattr__")):
            return ""
        ours = name in self._setup and self._names.get(name) is kind
        return name if ours and not issubclass(kind, tuple | BaseException | type) and not _is_member(value) else None

    def build(self, name: str) -> Any:
        kind = self._names[name]
        return kind.__new__(kind)

    def named(self, value: Any) -> dict[str, Any] | None:
        if isinstance(value, type):
            name = value.__name__
            if any(value is safe for safe in SAFE) or (
                issubclass(value, BaseException) and wire.builtin_name(value) is not None
            ):
                return {"builtin": name}
            return {"shared": name} if name in self._setup and self._names.get(name) is value else None
        if _is_member(value) and type(value).__name__ in self._setup:
            return {"member": [type(value).__name__, value.name]}
        return None

    def find_named(self, name: str, data: Any) -> Any:
        match name:
            case "builtin":
                return type(None) if data == "NoneType" else vars(builtins)[data]
            case "module":
                return importlib.import_module(data)
            case "library":
                return getattr(importlib.import_module(data[0]), data[1])
            case "awaited":
                return _awaited(wire.from_data(data, self._find))
            case "shared":
                return self._names[data]
            case "member":
                return self._names[data[0]][data[1]]
        raise ValueError(name)

    def number_of(self, value: Any) -> int | None:
        known = self._theirs.get(id(value))
        return known[1] if known is not None and known[0] is value else None

    def describe(self, value: Any) -> list[Any]:
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", ancestry(value)]
        if isinstance(value, type):
            return ["class", self._class(value)]
        return ["coroutine"] if inspect.iscoroutine(value) else ["object", self._class(type(value))]

    def _class(self, kind: type) -> int:
        """The number of a class; the first time its name, parents and operators are announced."""
        if id(kind) not in self._announced:  # what a class says of its equality does not count
            parents = [self._class(parent) for parent in kind.__bases__ if parent.__module__ != "builtins"]
            self._announced[id(kind)] = self.keep(kind)
            above = [each.__name__ for each in kind.__mro__ if each in SAFE and each is not object]
            self._new.append(
                [self._announced[id(kind)], kind.__name__, kind.__module__, operations(kind), parents, above[:1]]
            )
        return self._announced[id(kind)]

    def stand_in(self, number: int, *about: Any) -> Any:
        found = next((value for value, known in self._theirs.values() if known == number), None)
        if found is None:
            kind, data = about
            found = self._error(data) if kind == "exception" else lent.stand_in(self.ask, self.stand_in, kind, data)
            self._theirs[id(found)] = (found, number)
        return found

    def _error(self, tree: Tree) -> Any:
        """One of the judge's classes, which may derive from the answer's."""
        return exception_class(tree, _class_of, self._error)

    def more(self, error: BaseException) -> list[Any]:
        """Of one of the answer's own classes its number and its words."""
        kind = type(error)
        if kind.__module__ != "answer" or self.named(kind) is not None:
            return []
        error.__traceback__ = None  # it holds whatever the functions that it came through held
        return [self.keep(error), described(error)["message"]]

    def about(self, error: BaseException) -> dict[str, Any]:
        return described(error)

    def gone(self) -> BaseException:
        return Gone()

    def raised(self, do: str, error: BaseException, reply: dict[str, Any]) -> BaseException:
        return error


async def _awaited(value: Any) -> Any:
    return value


def _class_of(name: str) -> Any:
    """What is called so in a module that is loaded here."""
    module, _, short = name.rpartition(".")
    return getattr(sys.modules.get(module or "builtins"), short, None)


def _raised(error: BaseException | None) -> TracebackType | None:
    """A traceback of an exception."""
    try:
        if error is not None:
            raise error
    except BaseException as caught:
        return caught.__traceback__
    return None


def class_names(setup: str) -> set[str]:
    """The classes that a set-up defines: both sides have them."""
    return {node.name for node in ast.parse(setup).body if isinstance(node, ast.ClassDef)}


def _is_member(value: Any) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and isinstance(value, enum.Enum)


def _behaves(kind: type) -> bool:
    """Whether a class that is data has something to it: more than the fields of a named tuple."""
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    methods = [name for name, value in vars(kind).items() if callable(value) or isinstance(value, property)]
    return any(not name.startswith("_") or not named for name in methods) or _is_member(
        next(iter(vars(kind).values()), None)
    )


def execute(name: str, sources: dict[str, str], seed: str | None = None) -> dict[str, Any]:
    module = ModuleType(name)
    sys.modules[name] = module
    sys.argv = [FILE]
    random.seed(seed)  # not as in the judge, which was forked from the same process
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # as everywhere; Python was started without the module for that
    for file, source in sources.items():
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    return vars(module)


def described(error: BaseException) -> dict[str, Any]:
    """What is reported to the judge about an exception: its message and the last line of the answer it passed."""
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
    except BaseException:
        words = ""
    code = linecache.getline(FILE, line).strip()[:200] if line else ""
    return {"kind": type(error).__name__, "message": words[:2000], "line": line, "code": code}
