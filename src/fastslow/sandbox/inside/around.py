"""What a test has set up around a call of the answer, brought over to the answer's process for the time of that call.

The streams that a test put in the place of standard input and output, the functions of Python's own that it replaced, what
`unittest.mock.patch` replaced in modules, and the seeds that it gave to the random numbers.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_REPLACED = ("input", "print", "open")
ANSWER = ("solution", "answer")
"""Modules that are the answer, for a test that imports it."""


class Watched:
    """The judge's side: notices what a test sets up."""

    def __init__(self, code: str) -> None:
        self._stack = contextlib.ExitStack()
        self._stdin, self._stdout = sys.stdin, sys.stdout
        self._own = {name: getattr(builtins, name) for name in _REPLACED}
        self._seeds: list[tuple[str, Any]] = []
        self._patches: list[Any] = []
        self._hook(random, "seed", lambda value=None, *_: self._seeds.append(("random", value)))
        if "numpy" in code or "np." in code:
            with contextlib.suppress(ImportError):
                numpy_random = importlib.import_module("numpy.random")
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

        setattr(home, name, hooked)
        self._stack.callback(setattr, home, name, original)

    def close(self) -> None:
        self._stack.close()

    def told(self, pack: Callable[[Any], Any]) -> dict[str, Any]:
        """What goes with a request; mostly nothing."""
        told: dict[str, Any] = {}
        if sys.stdout is not self._stdout:
            told["stdout"] = True
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
        for patch in self._patches:
            home, place = patch.target, [patch.attribute]
            if isinstance(home, type):
                home, place = sys.modules[home.__module__], [*home.__qualname__.split("."), *place]
            if isinstance(home, ModuleType):
                patches.append([home.__name__, place, pack(getattr(patch.target, patch.attribute))])
        if patches:
            told["patches"] = patches
        return told

    def settle(self, reply: dict[str, Any]) -> None:
        """What a call has printed and read."""
        if isinstance(printed := reply.get("printed"), str):
            sys.stdout.write(printed)
        if isinstance(read := reply.get("read"), int) and sys.stdin is not self._stdin:
            sys.stdin = io.StringIO(self._given[max(read, 0) :])


class Surroundings:
    """The program's side: makes it so, and undoes it."""

    def __init__(self, unpack: Callable[[Any], Any], told: dict[str, Any]) -> None:
        self._unpack, self._told = unpack, told
        self._stack = contextlib.ExitStack()
        self.left: dict[str, Any] = {}

    def __enter__(self) -> Surroundings:
        told = self._told
        for home, seed in told.get("seeds", ()):
            importlib.import_module(home).seed(self._unpack(seed))
        for home, (*inner, name), packed in told.get("patches", ()):
            with contextlib.suppress(ImportError, AttributeError):  # where the answer has none, it uses none
                target: Any = importlib.import_module("answer" if home in ANSWER else home)
                for each in inner:
                    target = getattr(target, each)
                self._stack.callback(setattr, target, name, getattr(target, name))
                setattr(target, name, self._unpack(packed))
        for stream, start in (("stdout", ""), ("stdin", told.get("stdin", ""))):
            if stream in told:
                self._stack.callback(setattr, sys, stream, getattr(sys, stream))
                setattr(sys, stream, io.StringIO(start))
        return self

    def __exit__(self, *_: object) -> None:
        if "stdout" in self._told and isinstance(sys.stdout, io.StringIO):
            self.left["printed"] = sys.stdout.getvalue()
        if "stdin" in self._told and isinstance(sys.stdin, io.StringIO):
            self.left["read"] = sys.stdin.tell()
        self._stack.close()
