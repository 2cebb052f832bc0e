"""What stands in, in the judge's process, for the classes and objects of the answer; and how far their word is taken.

An object answers with the answer's own methods. That is what a test asks for where it makes the object itself (`Stack(3)`).
Where a test expects data, an object in its place could claim anything: that it starts with what it is asked about, that it
contains and equals everything. So what such an object says of the truth counts for nothing, and the test says so.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import sys
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any

from .doubt import Given, Unsure

LONGEST = 10_000
"""Elements that an iterator of the answer is asked for by `in`."""
_DATA = {kind.__name__: kind for kind in (int, float, str, bytes, list, tuple, dict, set, frozenset)}
_FIELDS = "__dataclass_fields__"
_COMPARING = ("eq", "ne", "lt", "le", "gt", "ge")
_WITHOUT_QUESTION = """
call iter next len enter exit aenter aexit aiter anext await bool float int index complex str repr format bytes fspath hash
reversed round trunc floor ceil neg pos abs setitem delitem
"""
_NO_QUESTION = frozenset(_WITHOUT_QUESTION.split())
"""Operations that tell the answer nothing of what is expected, and whose results are no verdicts."""
_CLAIMED = {
    "function": FunctionType,
    "generator": GeneratorType,
    "method": MethodType,
    "coroutine": CoroutineType,
    "async_generator": AsyncGeneratorType,
}
_DATA_AND_TESTS = """
builtins collections numbers datetime decimal fractions uuid pathlib numpy pandas unittest inside tests answer solution
"""
_NEVER_CLAIMED = frozenset(_DATA_AND_TESTS.split())
"""Modules whose types go over as data, so that an object that says it is of one of them is none; and those of the tests."""


_ASKED_BY_NUMPY = frozenset(
    f"__array_{name}__"
    for name in ("ufunc", "function", "priority", "wrap", "prepare", "interface", "struct", "finalize")
)
"""What takes part in operations of numpy's: an object that is in the place of an array would make their results."""
_OPERATORS = "add sub mul matmul truediv floordiv mod divmod pow and or xor lshift rshift"
_ARITHMETIC = frozenset(f"{way}{name}" for name in _OPERATORS.split() for way in ("", "r", "i"))
_DIFFERENCES = ("sub", "rsub", "isub")
"""Of numbers: what a test takes of a result and what it expects."""


TRUTHS = frozenset(("empty", "hasnans", "is_unique", "is_monotonic_increasing", "is_monotonic_decreasing"))
"""Attributes by which data says itself what a test asks of it."""


class Standing(IntEnum):
    """How far the word of an object is taken."""

    DERIVED = -1  # what an operator made of data and an object that is in the place of data
    WORD = 0  # what an object of an unknown class gave: its truth is no evidence
    UNKNOWN = 1  # an object of a class that the test does not name
    NAMED = 2  # an object of a class that the test names, made by the answer
    MADE = 3  # an object that the test has made


@cache
def _data_names(_: int) -> frozenset[str]:
    kinds: list[Any] = [str, bytes, int, float, list, tuple, dict, set, deque, datetime, timedelta, Path]
    for module, names in (("numpy", ("ndarray",)), ("pandas", ("DataFrame", "Series", "Index"))):
        kinds += [getattr(sys.modules[module], name) for name in names if module in sys.modules]
    return frozenset(name for kind in kinds for name in dir(kind) if not name.startswith("_"))


def is_data_name(name: str) -> bool:
    """Whether plain data has an attribute of that name."""
    return name in _data_names(len({"numpy", "pandas"} & sys.modules.keys()))


def _undecided(self: Any, *_: Any) -> Any:
    raise Unsure("it rests on a number that an object in the place of data gave")


def _equals(self: Any, other: Any) -> Any:
    """Two numbers of such objects equal each other as they please."""
    return _undecided(self) if type(other) in _NUMBERS.values() else self.__class__.__base__.__eq__(self, other)


_DECIDING = ("bool", "lt", "le", "gt", "ge", "ne")
_NUMBERS = {
    kind: type(
        kind.__name__,
        (kind,),
        {**{f"__{name}__": _undecided for name in _DECIDING}, "__eq__": _equals, "__hash__": kind.__hash__},
    )
    for kind in (int, float)
}
"""Numbers that an object in the place of data gave. They equal what they equal, and decide nothing else."""


def facts(handle: Any) -> list[Any]:
    """The judge, the number and the standing of an object."""
    return object.__getattribute__(handle, "_facts")


class _Copied:
    """How `copy.copy` copies, which asks the class. An object has the method only where the answer's has it: without, an
    iterator is shared by `itertools.tee`."""

    def __get__(self, this: Any, _: Any) -> Any:
        if this is not None:
            raise AttributeError("__copy__")
        return lambda handle: handle._copied("copy")


class Handle:
    """An object of the answer's, of a class made by `mirror`."""

    __slots__ = ("_facts",)

    def __getattr__(self, name: str) -> Any:
        judge, _, standing = facts(self)
        if name in _ASKED_BY_NUMPY and standing < Standing.MADE:
            raise AttributeError(name)
        if name == _FIELDS:
            return getattr(type(self), name)
        return weighed(judge, standing, name, judge.ask("getattr", self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        facts(self)[0].ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        facts(self)[0].ask("delattr", self, name)

    def __dir__(self) -> Any:
        return facts(self)[0].ask("dir", self)

    __copy__ = _Copied()

    def __deepcopy__(self, _: Any) -> Any:
        return self._copied("deepcopy")

    def _copied(self, how: str) -> Any:
        judge, _, standing = facts(self)
        value = judge.ask(how, self)
        if type(value) is type(self):
            facts(value)[2] = standing
        return value

    def __bool__(self) -> bool:
        judge, _, standing = facts(self)
        operations = vars(type(self))["_operations"]
        if standing <= Standing.WORD:
            raise judge.unsure("it rests on the truth of what an object in the place of data gave")
        if "bool" in operations:
            return judge.ask("op", "bool", self) is True
        return len(self) != 0 if "len" in operations else True

    def __eq__(self, other: object) -> Any:
        return facts(self)[1] == facts(other)[1] if isinstance(other, Handle) else NotImplemented

    def __hash__(self) -> int:
        return hash(facts(self)[1])

    def __repr__(self) -> str:
        return str(facts(self)[0].ask("op", "repr", self))

    def __str__(self) -> str:
        return str(facts(self)[0].ask("op", "str", self))


class Mirror(type):
    """The class of a class of the answer's."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        judge = cls._own_facts()[0]
        value = judge.ask("call", cls, *args, **kwargs)
        if isinstance(value, Handle) and isinstance(value, cls) and is_named(cls):
            facts(value)[2] = Standing.MADE
        return value

    def _own_facts(cls) -> list[Any]:
        if "_class_facts" not in vars(cls):
            raise Unsure("the test derives a class from one of the code's")
        facts_of_class: list[Any] = vars(cls)["_class_facts"]
        return facts_of_class

    def __getattr__(cls, name: str) -> Any:
        judge = cls._own_facts()[0]
        if name in _ASKED_BY_NUMPY and not is_named(cls):
            raise AttributeError(name)
        if name == _FIELDS:
            return _fields(judge.ask("getattr", cls, name))
        standing = Standing.MADE if is_named(cls) else Standing.UNKNOWN
        return weighed(judge, standing, name, judge.ask("getattr", cls, name))

    def __contains__(cls, item: Any) -> bool:
        return _contains(cls, item)

    def __instancecheck__(cls, value: Any) -> bool:
        """A protocol of the answer's looks at the object."""
        if type.__instancecheck__(cls, value) or isinstance(value, Handle) or not is_named(cls):
            return type.__instancecheck__(cls, value)
        return cls._own_facts()[0].ask("isinstance", value, cls) is True

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._own_facts()[0].ask("setattr", cls, name, value)

    def __delattr__(cls, name: str) -> None:
        cls._own_facts()[0].ask("delattr", cls, name)

    def __iter__(cls) -> Any:
        return cls._own_facts()[0].ask("op", "iter", cls)

    def __len__(cls) -> int:
        return int(cls._own_facts()[0].ask("op", "len", cls))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return cls._own_facts()[0].ask("op", "getitem", cls, key)


def is_named(kind: type) -> bool:
    """Whether a class of the answer's, or one above it, is named by the test."""
    return any(vars(parent).get("_named") for parent in kind.__mro__)


def mirror(
    judge: Any, number: int, name: str, module: str, operations: list[str], parents: list[type], above: list[str]
) -> type:
    """A class that stands in for one of the answer's, which derives from those of Python's own that are `above`."""
    space: dict[str, Any] = {
        "__slots__": (),
        "_class_facts": [judge, number],
        "_named": False,
        "_operations": frozenset(operations),
        "__module__": module,
        "__doc__": property(lambda this: this.__getattr__("__doc__")),
        **{
            f"__{each}__": _METHODS.get(each) or _forward(each)
            for each in operations
            if each not in ("bool", "str", "repr")
        },
    }
    if "iter" not in operations and "getitem" in operations:
        space["__iter__"] = _Items.of
    if "contains" not in operations and {"iter", "getitem"} & set(operations):
        space["__contains__"] = _contains
    claimed = _claimed(module, name) or _derived(name, *above)
    if claimed is not None:
        space["__class__"] = property(lambda _: claimed)
    bases = tuple(parent for parent in parents if not any(parent in other.__mro__[1:] for other in parents))
    try:
        made = Mirror(name, bases or (Handle,), space)
    except TypeError:  # parents that do not go together here
        made = Mirror(name, (Handle,), space)
    if module == "collections.abc" and name in collections.abc.__all__:
        getattr(collections.abc, name).register(made)
    return made


def _claimed(module: str, name: str) -> Any:
    """A class of a library, here, that an object over there says it is of."""
    if module == "builtins":
        return _CLAIMED.get(name)
    if module.partition(".")[0] in _NEVER_CLAIMED:
        return None
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def _derived(name: str, above: str = "") -> Any:
    """What stands for a class that derives from a type of data, for `isinstance`."""
    return type(name, (_DATA[above],), {}) if above in _DATA else None


def _forward(name: str) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        judge, _, standing = facts(self)
        if name in _COMPARING or name == "contains":
            return _compare(self, name, args[0])
        if name == "exit":
            return _left(judge, self, name, *args)
        value = (
            judge.ask("call", self, *args, **kwargs) if name == "call" else judge.ask("op", name, self, *args, **kwargs)
        )
        if name == "enter" and isinstance(value, Handle) and facts(value)[1] == facts(self)[1]:
            return self
        if standing == Standing.DERIVED or (name in _ARITHMETIC and _of_data(standing, name, args[0])):
            return _made(self, name, args, value)
        asks = name not in _NO_QUESTION or (name == "call" and standing == Standing.WORD)
        word = asks and standing == Standing.WORD and isinstance(value, Handle)
        if word or not asks:
            return _standing(value, Standing.WORD) if word else value
        return weighed(judge, standing, f"__{name}__", value)

    return forward


def _made(self: Any, name: str, args: Any, value: Any) -> Any:
    """What an operator made of an object and data: of a number with methods of its own what the number makes of it."""
    if isinstance(value, Handle) and name in _ARITHMETIC:
        return _standing(value, Standing.DERIVED)
    judge = facts(self)[0]
    plain = judge.ask("plain", self) if name in _ARITHMETIC else []
    if plain and getattr(plain[0], f"__{name}__", lambda *_: ...)(*args) == value:
        return value
    raise judge.unsure(f"it rests on what `{type(self).__name__}`, in the place of data, makes of the test's data")


def _of_data(standing: Standing, name: str, other: Any) -> bool:
    """Whether an operator tells an object what is expected, and may say that nothing is missing."""
    if isinstance(other, Handle):
        return False
    difference = name in _DIFFERENCES and isinstance(other, int | float | complex)
    return standing <= (Standing.NAMED if difference else Standing.UNKNOWN)


def _left(judge: Any, this: Any, name: str, kind: Any = None, error: Any = None, *others: Any) -> Any:
    """A `with` of the answer's may end an error, or raise another in its place, but not for an assertion of the test."""
    try:
        ends = judge.ask("op", name, this, kind, error, *others)
    except Exception:
        ends = True
        if not isinstance(error, AssertionError):
            raise
    if ends and isinstance(error, AssertionError):
        raise judge.unsure("the code's context manager ends an assertion of the test")
    return ends


def _compare(self: Any, name: str, other: Any) -> Any:
    """What the object says of another. Of data only one that the test has made; of objects where the test knows one."""
    judge, _, standing = facts(self)
    is_object = isinstance(other, Handle)
    enough = Standing.NAMED if is_object else Standing.MADE
    if max(standing, facts(other)[2] if is_object else standing) < enough:
        if standing == Standing.DERIVED and not is_object:
            raise judge.unsure(
                f"it compares what `{type(self).__name__}`, in the place of data, made of the test's data"
            )
        if not is_object and (plain := judge.ask("plain", self)):  # a number with methods of its own, say
            return getattr(type(plain[0]), f"__{name}__", lambda *_: NotImplemented)(plain[0], other)
        if name in ("eq", "ne") and not is_object:
            return NotImplemented
        raise judge.unsure(
            f"it rests on what `{type(self).__name__}`, a class that the test does not name, says of itself"
        )
    value = judge.ask("op", name, self, other)
    if type(value) is not bool and value is not NotImplemented:
        raise judge.unsure(f"a comparison of `{type(self).__name__}` gives no truth value")
    return value


def weighed(judge: Any, standing: Standing, name: str, value: Any) -> Any:
    """What an object gave, as far as it may count. Asked for by a `name` that data has, only an object that the test has
    made is believed: what it gives is no truth."""
    doubted = name.startswith("__") or is_data_name(name)
    text = name == "__doc__" and type(value) is str  # there is no other use for it
    if standing == Standing.MADE or (standing == Standing.NAMED and not doubted) or text:
        return value
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        raise judge.unsure(f"it rests on the word of an object in the place of data (`{name}`)")
    if standing == Standing.DERIVED and (doubted or isinstance(value, Handle)):
        if isinstance(value, Handle):
            return _standing(value, Standing.DERIVED)
        raise judge.unsure(f"it rests on what an object in the place of data made of the test's data (`{name}`)")
    if isinstance(value, Handle | type):
        if isinstance(value, Handle) and standing == Standing.NAMED == facts(value)[2] and name.startswith("__"):
            return value
        judge.word(value)
        return unproven(value)
    if doubted and type(value) in _NUMBERS:
        return _NUMBERS[type(value)](value)
    judge.word(value)
    return value


def unproven(value: Any) -> Any:
    """An attribute as it may count: what it gives when it is called is no evidence."""
    if isinstance(value, type) and not isinstance(value, Given):
        return Given.of(value)
    return (
        _standing(value, Standing.WORD)
        if isinstance(value, Handle) and "call" in vars(type(value))["_operations"]
        else value
    )


def _fields(theirs: Any) -> dict[str, Any]:
    """The fields of a dataclass of the answer's, as `dataclasses` knows them here."""

    def asked(field: Any, name: str) -> Any:
        return facts(field)[0].ask("getattr", field, name)

    names = [str(name) for name, field in theirs.items() if repr(asked(field, "_field_type")) == "_FIELD"]
    fields = [(name, Any, dataclasses.field(init=asked(theirs[name], "init") is True)) for name in names]
    made = dataclasses.make_dataclass("Fields", fields)
    return {field.name: field for field in dataclasses.fields(made)}


def _standing(value: Any, standing: Standing) -> Any:
    judge, number, _ = facts(value)
    return new_handle(type(value), judge, number, standing)


def new_handle(kind: type, judge: Any, number: int, standing: Standing) -> Any:
    """An object of a class made by `mirror`, whose own way to make objects is the answer's."""
    handle: Any = object.__new__(kind)
    object.__setattr__(handle, "_facts", [judge, number, standing])
    return handle


def _contains(self: Any, item: Any) -> bool:
    """All elements are asked for, so that an iterator without end contains nothing."""
    found, count = False, 0
    for count, each in enumerate(self, 1):
        found = found or each is item or each == item
        if count > LONGEST:
            raise Unsure(f"`in` is asked of an iterator that gives more than {LONGEST} elements")
    if isinstance(self, Handle) and "len" in vars(type(self))["_operations"] and len(self) != count:
        raise Unsure("`in` is asked of an object that has another length than elements")
    return found


class _Items:
    """The elements of an object that has only indices."""

    __contains__ = _contains

    def __init__(self, items: Any) -> None:
        self._items, self._place = items, -1

    @staticmethod
    def of(items: Any) -> _Items:
        return _Items(items)

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        self._place += 1
        try:
            return self._items[self._place]
        except IndexError:
            raise StopIteration from None


def _await(self: Any) -> Any:
    return facts(self)[0].ask("op", "await", self)
    yield


def _later(name: str) -> Callable[..., Any]:
    async def operate(self: Any, *args: Any) -> Any:
        if name == "aexit":
            return _left(facts(self)[0], self, name, *args)
        value = facts(self)[0].ask("op", name, self, *args)
        itself = name == "aenter" and isinstance(value, Handle) and facts(value)[1] == facts(self)[1]
        return self if itself else value

    return operate


_METHODS: dict[str, Callable[..., Any]] = {
    "await": _await,
    **{name: _later(name) for name in ("anext", "aenter", "aexit")},
}
