"""Exceptions of the other side: classes that stand in for theirs, with the same classes above; and, in the judge's process,
those of the answer, which have the answer's own methods."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from .handles import Standing, is_named, weighed

Tree = list[Any]
"""The name of an exception's class, and the trees of those that it derives from."""


def ancestry(kind: type) -> Tree:
    """With the modules of all that are not Python's own."""
    name = kind.__name__
    if vars(builtins).get(name) is not kind:
        name = f"{kind.__module__}.{kind.__qualname__}"
    return [name, *(ancestry(parent) for parent in kind.__bases__ if issubclass(parent, BaseException))]


def exception_class(
    tree: Tree, known: Callable[[str], Any], above: Callable[[Tree], Any], make: Callable[..., Any] = type
) -> Any:
    """A class of the same name, below the classes that `above` gives; or the one that is `known` here. KeyboardInterrupt and
    its like are ordinary here, so that they end no more than an error ends."""
    name = str(tree[0])
    found = Exception if name == "BaseException" else known(name)
    if isinstance(found, type) and issubclass(found, Exception | SystemExit):
        return found
    parents = list(dict.fromkeys(map(above, tree[1:]))) or [Exception]
    lowest = [kind for kind in parents if not any(kind in other.__mro__[1:] for other in parents)]
    try:
        return make(name.rpartition(".")[2], tuple(lowest), {})
    except TypeError:  # parents that do not go together here
        return make(name.rpartition(".")[2], (lowest[0],), {})


def make_error(kind: Any, args: list[Any], state: dict[str, Any]) -> BaseException:
    """An exception of a type, whatever its type wants to be made with."""
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError(kind)
    try:
        error: BaseException = type.__call__(kind, *args)
    except Exception:  # it wants other arguments than those it keeps
        error = kind.__new__(kind, *args)
        error.args = tuple(args)
    for name, value in state.items():
        setattr(error, str(name), value)
    return error


class Raised(type):
    """The class of a class of the answer's exceptions, whose objects are made there."""

    _judge: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls._judge.number_of(cls) is None:
            return type.__call__(cls, *args, **kwargs)
        return cls._judge.ask("call", cls, *args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return _asked(cls, cls, name)


def error_maker(judge: Any) -> Callable[..., Any]:
    """Makes classes of the answer's exceptions. What stands in their objects has come with them; the rest is asked for."""

    def make(name: str, bases: tuple[type, ...], _: Any) -> Any:
        space = {"_judge": judge, "__getattr__": lambda this, name: _asked(this, type(this), name), "__str__": _said}
        return Raised(name, bases, space)

    return make


def _asked(value: Any, kind: Any, name: str) -> Any:
    judge = kind._judge
    if name.startswith("__") or judge.number_of(value) is None:
        raise AttributeError(f"'{kind.__name__}' has no attribute '{name}'")
    standing = Standing.NAMED if is_named(kind) else Standing.UNKNOWN
    return weighed(judge, standing, name, judge.ask("getattr", value, name))


def _said(error: Any) -> str:
    words: str | None = type(error)._judge.said.get(id(error))
    plain: Any = next(kind for kind in type(error).__mro__ if not isinstance(kind, Raised))
    return plain.__str__(error) if words is None else words
