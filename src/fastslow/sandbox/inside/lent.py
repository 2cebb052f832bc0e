"""What a test lends to the answer: functions, classes, objects and coroutines. They stay with the judge; the answer has
stand-ins that look like them, and using one asks the judge in the middle of its own request."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from typing import Any

from . import wire
from .errors import ancestry
from .peer import operations

Ask = Callable[..., Any]


def describe(value: Any, number: Callable[[Any], int]) -> list[Any]:
    """What the answer must know of it; the `number` is that of a class of the test."""
    if isinstance(value, type) and issubclass(value, BaseException):
        return ["exception", ancestry(value)]
    if inspect.iscoroutine(value):
        return ["coroutine", []]
    if inspect.isroutine(value) or inspect.iscoroutinefunction(value):  # or a mock
        kind = "async" if inspect.iscoroutinefunction(value) else "function"
        return [kind, [getattr(value, "__name__", ""), value.__doc__, _parameters(value)]]
    if isinstance(value, type):
        return ["class", _class(value, number)[1:]]
    return ["object", _class(type(value), number)]


def _class(kind: type, number: Callable[[Any], int]) -> list[Any]:
    """Its number where there may be more of its objects, its name, operators, the classes above, and parameters."""
    own = kind.__module__ == "tests"
    above = [_class(parent, number) for parent in kind.__bases__ if parent.__module__ == "tests"]
    given = _parameters(kind) if own else None
    return [number(kind) if own else None, kind.__name__, operations(kind), above, given]


def _parameters(function: Any) -> list[Any] | None:
    """Name, kind and annotation of each, and whether there is a default: what it is stays with the test."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    empty = inspect.Parameter.empty
    return [
        [each.name, int(each.kind), each.default is not empty, wire.builtin_name(each.annotation)] for each in found
    ]


class Awaited:
    """What the answer has to wait for, though it is there."""

    def __init__(self, value: Any) -> None:
        self.value = value


def stand_in(ask: Ask, find: Callable[..., Any], kind: str, data: list[Any]) -> Any:
    """What stands for it in the answer's process; `find` gives what stands for a class."""
    lent: Any
    if kind == "coroutine":

        async def waiting() -> Any:
            return ask("op", "await", lent)

        lent = waiting()
        return lent
    if kind == "class":
        return _class_of(ask, find, *data)
    if kind == "object":
        number, *about = data
        return object.__new__(_class_of(ask, find, *about) if number is None else find(number, "class", about))
    name, doc, parameters = data
    if kind == "async":

        async def lent(*args: Any, **kwargs: Any) -> Any:
            return ask("call", lent, *args, **kwargs)

    elif parameters and all(each[1] == 1 and not each[2] for each in parameters):  # with as many as it has
        names = ", ".join(each[0] for each in parameters)
        lent = eval(f"lambda {names}: __call__({names})", {"__call__": lambda *args: ask("call", lent, *args)})
    else:

        def lent(*args: Any, **kwargs: Any) -> Any:
            return ask("call", lent, *args, **kwargs)

    lent.__name__ = lent.__qualname__ = name
    lent.__doc__ = doc
    if parameters is not None:
        lent.__signature__ = _signature(parameters)
        lent.__annotations__ = {each[0]: vars(builtins)[each[3]] for each in parameters if each[3]}
    return lent


class _Lent(type):
    """The class of what stands for a class."""

    _ask: Ask

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._ask("call", cls, *args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return cls._ask("getattr", cls, name)


def _class_of(
    ask: Ask, find: Callable[..., Any], name: str, known: list[str], above: list[Any], parameters: list[Any] | None
) -> Any:
    def forward(operation: str) -> Ask:
        return lambda this, *args, **kwargs: ask("op", operation, this, *args, **kwargs)

    space: dict[str, Any] = {f"__{each}__": forward(each) for each in known}
    space["_ask"] = staticmethod(ask)
    space["__getattr__"] = lambda this, name: ask("getattr", this, name)
    space["__setattr__"] = lambda this, name, value: ask("setattr", this, name, value)
    if parameters is not None:
        space["__signature__"] = _signature(parameters)
    bases = tuple(find(number, "class", about) for number, *about in above)
    return _Lent(name, bases, space)


def _signature(parameters: list[Any]) -> inspect.Signature:
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                kind,
                default=... if default else empty,
                annotation=vars(builtins)[annotation] if annotation else empty,
            )
            for name, kind, default, annotation in parameters
        ]
    )
