"""What a test has set up around a call of the answer, brought over to the answer's process for the time of that call.

The streams that a test put in the place of standard input and output, the functions of Python's own that it replaced, what
`unittest.mock.patch` replaced in modules, environment variables, and the seeds that it gave to the random numbers. What a
call warns of and logs is repeated in the test, where that speaks of warnings or logs.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import io
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .handles import Mirror

_REPLACED = ("input", "print", "open")
_PRINTED = ("stdout", "stderr")
ANSWER = ("solution", "answer")
"""Modules that are the answer, for a test that imports it."""
_MOST = 1_000
"""Warnings and records of a log that come back from one call."""


class Watched:
    """The judge's side: notices what a test sets up. What is random without a seed follows from `entropy`, so that tests
    can run the same way twice."""

    def __init__(self, code: str, entropy: str) -> None:
        self._stack = contextlib.ExitStack()
        drawn = random.Random(entropy)
        self._replace(os, "urandom", drawn.randbytes)
        self._replace(random, "_urandom", drawn.randbytes)
        seed = random.Random.seed
        self._replace(
            random.Random,
            "seed",
            lambda this, a=None, version=2: seed(this, drawn.getrandbits(64) if a is None else a, version),
        )
        self._stdin, self._folder = sys.stdin, os.getcwd()
        self._streams = {name: getattr(sys, name) for name in _PRINTED}
        self._own = {name: getattr(builtins, name) for name in _REPLACED}
        self._environ = dict(os.environ)
        self._heard = [name for name, words in _HEARD.items() if any(word in code for word in words)]
        self._seeds: list[tuple[str, Any]] = []
        self._patches: list[Any] = []
        self._set = {place: _found(*place) for place in _assigned(code)}
        self.raised: list[Warning] = []
        self._hook(random, "seed", lambda value=None, *_: self._seeds.append(("random", value)))
        if "numpy" in code or "np." in code:
            with contextlib.suppress(ImportError):
                numpy_random = importlib.import_module("numpy.random")
                drawn.seed(entropy)  # on being imported, numpy has drawn
                numpy_random.seed(drawn.getrandbits(32))
                self._hook(numpy_random, "seed", lambda value=None: self._seeds.append(("numpy.random", value)))
        if "mock" in code:
            patch: Any = type(importlib.import_module("unittest.mock").patch("builtins.print"))
            self._hook(patch, "__enter__", self._patches.append)
            self._hook(patch, "__exit__", lambda this, *_: self._patches.remove(this))

    def _hook(self, home: Any, name: str, note: Callable[..., Any]) -> None:
        original = getattr(home, name)

        def hooked(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            note(*args)
            return result

        self._replace(home, name, hooked)

    def _replace(self, home: Any, name: str, value: Any) -> None:
        self._stack.callback(setattr, home, name, getattr(home, name))
        setattr(home, name, value)

    def close(self) -> None:
        self._stack.close()

    def told(self, pack: Callable[[Any], Any]) -> dict[str, Any]:
        """What goes with a request; mostly nothing."""
        told: dict[str, Any] = dict.fromkeys(self._heard, True)
        if os.environ != self._environ:
            told["environ"] = dict(os.environ)
        told |= {name: True for name, own in self._streams.items() if getattr(sys, name) is not own}
        if (folder := os.getcwd()) != self._folder:
            told["folder"] = folder
        if sys.stdin is not self._stdin:
            self._given = sys.stdin.read()
            told["stdin"] = self._given
        if self._seeds:
            told["seeds"] = [[home, pack(value)] for home, value in self._seeds]
            self._seeds.clear()
        patches = [
            ["builtins", [name], pack(now)]
            for name in _REPLACED
            if (now := getattr(builtins, name)) is not self._own[name]
        ]
        for (home, name), own in self._set.items():
            if (now := _found(home, name)) is not own:
                patches.append([home, [name], pack(now)])
        for patch in self._patches:
            target, place = patch.target, [patch.attribute]
            if isinstance(target, type) and not isinstance(
                target, Mirror
            ):  # the answer's own are replaced there already
                target, place = sys.modules[target.__module__], [*target.__qualname__.split("."), *place]
            if isinstance(target, ModuleType) and target.__name__ not in ANSWER:  # which has been told itself
                patches.append([target.__name__, place, pack(getattr(patch.target, patch.attribute))])
        if patches:
            told["patches"] = patches
        return told

    def settle(self, reply: dict[str, Any]) -> None:
        """What a call has printed and read."""
        for name in _PRINTED:
            if isinstance(printed := reply.get(name), str):
                getattr(sys, name).write(printed)
        if isinstance(read := reply.get("read"), int) and sys.stdin is not self._stdin:
            sys.stdin = io.StringIO(self._given[max(read, 0) :])
        for kind, message in reply.get("warned", ()):
            found = vars(builtins).get(kind) or getattr(sys.modules["tests"], str(kind), None)
            known = isinstance(found, type) and issubclass(found, Warning)
            try:
                warnings.warn(str(message), found if known else UserWarning, stacklevel=2)
            except Warning as error:  # the test wants that
                self.raised.append(error)
        for name, level, message in reply.get("logged", ()):
            logging.getLogger(str(name)).log(int(level), "%s", message)


def _assigned(code: str) -> set[tuple[str, str]]:
    """What a test assigns in modules of Python's library: `time.time = …`."""
    targets = [each for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Assign) for each in node.targets]
    pairs = {
        (each.value.id, each.attr)
        for each in targets
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
    }
    return {
        (home, name) for home, name in pairs if home in sys.stdlib_module_names and name not in (*_PRINTED, "stdin")
    }


def _found(home: str, name: str) -> Any:
    return getattr(importlib.import_module(home), name, None)


class Answer(ModuleType):
    """The answer as a module, for tests that import it, or replace something in it."""

    def __init__(self, name: str, judge: Any, known: set[str]) -> None:
        super().__init__(name)
        vars(self).update(_judge=judge, _known=known)

    def __getattr__(self, name: str) -> Any:
        if name not in self._known or name.startswith("__"):
            raise AttributeError(f"the code does not define '{name}'")
        return self._judge.value(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._judge.ask("set", name, value)
        self._known.add(name)

    def __delattr__(self, name: str) -> None:
        self._judge.ask("unset", name)
        self._known.discard(name)


class Surroundings:
    """The program's side: makes it so, and undoes it."""

    def __init__(self, unpack: Callable[[Any], Any], told: dict[str, Any]) -> None:
        self._unpack, self._told = unpack, told
        self._stack = contextlib.ExitStack()
        self.left: dict[str, Any] = {}

    def __enter__(self) -> Surroundings:
        told = self._told
        if "environ" in told:
            self._stack.callback(_set_environ, dict(os.environ))
            _set_environ(told["environ"])
        if "warned" in told:
            self.left["warned"] = self._stack.enter_context(_warnings())
        if "logged" in told:
            self.left["logged"] = self._stack.enter_context(_log())
        for home, seed in told.get("seeds", ()):
            importlib.import_module(home).seed(self._unpack(seed))
        for home, (*inner, name), packed in told.get("patches", ()):
            with contextlib.suppress(ImportError, AttributeError):  # where the answer has none, it uses none
                target: Any = importlib.import_module(home)
                for each in inner:
                    target = getattr(target, each)
                self._stack.callback(setattr, target, name, getattr(target, name))
                setattr(target, name, self._unpack(packed))
        if "folder" in told:
            self._stack.callback(os.chdir, os.getcwd())
            os.chdir(told["folder"])
        for stream, start in (*((name, "") for name in _PRINTED), ("stdin", told.get("stdin", ""))):
            if stream in told:
                self._stack.callback(setattr, sys, stream, getattr(sys, stream))
                setattr(sys, stream, io.StringIO(start))
        return self

    def __exit__(self, *_: object) -> None:
        for name in _PRINTED:
            if name in self._told and isinstance(stream := getattr(sys, name), io.StringIO):
                self.left[name] = stream.getvalue()
        if "stdin" in self._told and isinstance(sys.stdin, io.StringIO):
            self.left["read"] = sys.stdin.tell()
        self._stack.close()


_HEARD = {"warned": ("warnings", "assertWarns"), "logged": ("logging", "assertLogs", "assertNoLogs")}
"""What comes back from a call, and the words in a test that ask for it."""


def _set_environ(now: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(now)


@contextlib.contextmanager
def _warnings() -> Iterator[list[Any]]:
    """The kind and message of each warning, filled in at the end."""
    told: list[Any] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
    told += [[each.category.__name__, str(each.message)] for each in caught[:_MOST]]


@contextlib.contextmanager
def _log() -> Iterator[list[Any]]:
    """The logger, level and message of each record."""
    told: list[Any] = []
    root, handler = logging.getLogger(), logging.Handler()
    handler.emit = lambda record: told.append([record.name, record.levelno, record.getMessage()])  # type: ignore[method-assign]
    level = root.level
    root.addHandler(handler)
    root.setLevel(1)  # the test has the last word on what it listens to
    try:
        yield told
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        del told[_MOST:]
