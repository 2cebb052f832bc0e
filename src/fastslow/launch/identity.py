"""What a run is trained and graded with, as hashes: a resumed run that has other problems, or another grader, is another run.

Problems in memory are hashed all, generated ones by their number and some of them. The grader is the code of the task outside
fastslow and installed packages: the sources of functions and classes without comments, what they refer to, and the plain
values that they were made with.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from pydantic import BaseModel

from fastslow.records import Example, Record
from fastslow.tasks import Task
from fastslow.tasks.base import Split
from fastslow.tasks.stages import Mixture

DRAWN = 64
"""Problems that stand for a split that is generated."""
MOST = 10_000
"""Objects of a grader that are looked at, and values of a container."""
SPLITS: Mapping[Split, str] = {"train": "training", "validation": "validation"}
_LIBRARIES = tuple({str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")})


def identity(task: Task) -> dict[str, str]:
    """The hash of each split, and of the grader, by their names; of every task if there are several."""
    parts = {f" of '{part.name}'": part.task for part in task.parts} if isinstance(task, Mixture) else {"": task}
    found = {}
    for of, each in parts.items():
        for split, word in SPLITS.items():
            found[f"{word} problems{of}"] = _problems(each.examples(split))
        found[f"grader{of}"] = _digest(_code(each))
    return found


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed, in words; empty if nothing has."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    words = [f"the {name} {'differs' if name.startswith('grader') else 'differ'}" for name in names]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _problems(examples: Sequence[Example]) -> str:
    count = len(examples)
    places = range(count) if isinstance(examples, list | tuple) else sorted({n * count // DRAWN for n in range(DRAWN)})
    return _digest([str(count), *(_text(examples[place]) for place in places[:count])])


def _digest(texts: Sequence[str] | Iterator[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return digest.hexdigest()


def _text(example: Example) -> str:
    for ordered in (True, False):
        try:
            return json.dumps([example.id, example.data], default=_plain, sort_keys=ordered, skipkeys=not ordered)
        except (TypeError, ValueError, RecursionError):  # keys of several types, values in a circle
            continue
    return example.id


def _plain(value: Any) -> Any:
    """What stands for a value that JSON has no form for; its own text may hold an address in memory."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a number of an array library
        return value.item()
    if hasattr(value, "tobytes"):  # arrays and pictures
        return hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, bytes | complex) or hasattr(value, "isoformat"):
        return str(value)
    return type(value).__qualname__


# The grader ------------------------------------------------------------------------------------------------------------


def _code(thing: Any) -> Iterator[str]:
    """The sources and plain values that an object's behaviour follows from, each once, however deep they are nested."""
    seen: dict[int, Any] = {}  # the objects too: the address of one that is gone may be that of another
    waiting = [thing]
    while waiting:
        thing = waiting.pop()
        if thing is None or isinstance(thing, str | int | float | bytes):
            yield _text_of(thing)
        elif id(thing) not in seen and len(seen) <= MOST and not isinstance(thing, Record):
            seen[id(thing)] = thing
            text, held = _read(thing)
            yield from text
            waiting += reversed(held)


def _read(thing: Any) -> tuple[list[str], list[Any]]:
    """What stands for an object, and what it holds."""
    if isinstance(thing, partial):
        return [], [thing.func, thing.args, thing.keywords]
    if isinstance(thing, set | frozenset):
        return _members(thing)
    if isinstance(thing, list | tuple | Mapping):
        return [], list(thing.items() if isinstance(thing, Mapping) else thing)[:MOST]
    if isinstance(thing, BaseModel):  # a field that `repr` leaves out may change on resume
        fields = type(thing).model_fields
        return [type(thing).__qualname__], [(name, each) for name, each in thing if fields[name].repr]
    if not isinstance(thing, FunctionType | type | ModuleType):
        bound = [thing.__func__, thing.__self__] if isinstance(thing, MethodType) else None
        return [], bound or [type(thing), *_attributes(thing)]
    name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing.__name__)}"
    return ([_source(thing)], _referred(thing)) if _own(thing) else ([name], [])


def _members(values: Set[Any]) -> tuple[list[str], list[Any]]:
    """A set in an order that neither addresses nor hash seeds decide; objects that only those could order are counted."""
    by_name: dict[str, list[Any]] = {}
    for each in values:
        by_name.setdefault(_name(each), []).append(each)
    names = sorted(by_name)
    return [f"{name} {len(by_name[name])}" for name in names], [
        by_name[each][0] for each in names if len(by_name[each]) == 1
    ]


def _name(thing: Any) -> str:
    if isinstance(thing, tuple | frozenset):
        names = [_name(each) for each in thing]
        return " ".join(names if isinstance(thing, tuple) else sorted(names))
    if thing is None or isinstance(thing, str | int | float | bytes):
        return _text_of(thing)
    return f"{type(thing).__qualname__} {getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"


def _text_of(value: str | float | bytes | None) -> str:
    return hex(value) if type(value) is int else repr(value)  # a long one has no decimal form


def _attributes(thing: Any) -> list[Any]:
    """What an object was made with. Numbers of a user's object may be counters, which change while a run grades; an object
    of fastslow matters only for the user's code in it."""
    held = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    if _own(type(thing)):
        return [each for each in held if not isinstance(each, int) or isinstance(each, bool)]
    kinds = (list, tuple, BaseModel)
    ours = type(thing).__module__.partition(".")[0] == "fastslow"
    return [each for each in held if ours and (isinstance(each, kinds) or callable(each) or _own(type(each)))]


def _own(thing: Any) -> bool:
    """Whether code is the user's, neither fastslow's nor of an installed package."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or "builtins"
    file = getattr(sys.modules.get(name), "__file__", None)
    if name == "__main__" or (file is None and name not in sys.modules):  # a notebook, say
        return True
    if file is None or name.partition(".")[0] == "fastslow":
        return False
    return not str(Path(file).resolve()).startswith(_LIBRARIES)


def _referred(thing: FunctionType | type | ModuleType) -> list[Any]:
    """What a function or a class of the user's refers to."""
    if isinstance(thing, ModuleType):
        return []
    if isinstance(thing, type):
        methods = [getattr(each, "__func__", getattr(each, "fget", each)) for each in vars(thing).values()]
        return [*thing.__bases__, *(each for each in methods if isinstance(each, FunctionType))]
    held: list[Any] = [thing.__defaults__, thing.__kwdefaults__]
    for cell in thing.__closure__ or ():
        with contextlib.suppress(ValueError):  # not assigned yet
            held.append(cell.cell_contents)
    for name in sorted(_names(thing.__code__) & thing.__globals__.keys()):
        value = thing.__globals__[name]
        data = not isinstance(value, FunctionType | type | ModuleType | partial) and not callable(value)
        held.append(_assigned(thing.__module__, name, value) if data else value)
    return held


def _names(code: CodeType) -> set[str]:
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _assigned(module: str, name: str, value: Any) -> Any:
    """The statements that make a value of a module, since it may change while a run grades; without sources, plain values."""
    try:
        statements = ast.parse(inspect.getsource(sys.modules[module])).body
    except (OSError, TypeError, KeyError, SyntaxError):
        return value if isinstance(value, str | float | bool | tuple) else None
    found = [each for each in statements if isinstance(each, ast.Assign | ast.AnnAssign)]
    return [ast.unparse(each) for each in found if name in {getattr(n, "id", "") for n in ast.walk(each)}]


def _source(thing: FunctionType | type | ModuleType) -> str:
    """The source without comments and layout. That of a lambda is not a statement: its instructions stand for it."""
    if not (isinstance(thing, FunctionType) and thing.__name__ == "<lambda>"):
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(thing))))
    return "\n".join(_instructions(thing.__code__)) if isinstance(thing, FunctionType) else thing.__name__


def _instructions(code: CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        yield from _instructions(constant) if isinstance(constant, CodeType) else (_name(constant),)
