"""How processes talk, whichever side asks: JSON with its length in front; and Python values that both sides read the same.

Plain data goes over as a copy, made anew by who receives it: whatever calls itself a string arrives as a string. What can be
changed goes into a table, so that objects which are shared, or hold themselves, stay so, and changes can be told. Everything
else stays where it is, and a stand-in goes over in its place.
"""

from __future__ import annotations

import builtins
import importlib
import json
import math
import os
import sys
from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from functools import cache
from time import struct_time
from types import MappingProxyType
from typing import Any

from . import tables

LARGEST = 32 * 2**20
"""Bytes of one message; a longer one is taken for the end of the talk."""
_WIDEST = 2**63
NAN: list[float] = []
"""The last one that went over: containers are equal that hold the same one."""
_AS_THEY_ARE = (type(None), bool, float, str)


def send(pipe: int, message: Any) -> None:
    data = json.dumps(message).encode()
    data = len(data).to_bytes(8, "big") + data
    while data:
        data = data[os.write(pipe, data) :]


class TooLong(EOFError):
    """A message that is not read, so that no other can be."""


def receive(pipe: int) -> Any:
    """The next message; EOFError when there is none to come."""
    size = int.from_bytes(_read(pipe, 8), "big")
    if size > LARGEST:
        raise TooLong
    return json.loads(_read(pipe, size))


def merged(data: bytes) -> dict[str, Any]:
    """All that the messages in some bytes say; the last one may be unfinished."""
    said: dict[str, Any] = {}
    while len(data) >= 8 and len(data) >= (end := 8 + int.from_bytes(data[:8], "big")):
        said.update(json.loads(data[8:end]))
        data = data[end:]
    return said


def _read(pipe: int, size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(pipe, min(size, 2**20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


Pack = Callable[[Any], Any]


def _listed(value: Any, pack: Pack) -> list[Any]:
    return [pack(item) for item in list.__iter__(value)]


def _pairs(value: Any, pack: Pack) -> list[Any]:
    return [[pack(key), pack(item)] for key, item in dict.items(value)]


def _in_view(value: Any, pack: Pack) -> list[Any]:
    return [pack(item) for item in value]


def _set_pairs(value: dict[Any, Any], data: Any, unpack: Pack) -> None:
    value.clear()
    for key, item in data:
        value[unpack(key)] = unpack(item)


def _set_list(value: Any, data: Any, unpack: Pack) -> None:
    value[:] = [unpack(item) for item in data]


def _refill(value: Any, data: Any, unpack: Pack) -> None:
    value.clear()
    (value.extend if isinstance(value, deque) else value.update)([unpack(item) for item in data])


_CHANGEABLE: dict[
    str, tuple[type, Callable[[Any, Pack], Any], Callable[[Any], Any], Callable[[Any, Any, Pack], None]]
] = {
    "list": (list, _listed, lambda _: [], _set_list),
    "Counter": (Counter, _pairs, lambda _: Counter(), _set_pairs),
    "OrderedDict": (OrderedDict, _pairs, lambda _: OrderedDict(), _set_pairs),
    "defaultdict": (
        defaultdict,
        lambda value, pack: [builtin_name(value.default_factory), *_pairs(value, pack)],
        lambda data: defaultdict(_factory(data[0])),
        lambda value, data, unpack: _set_pairs(value, data[1:], unpack),
    ),
    "dict": (dict, _pairs, lambda _: {}, _set_pairs),
    # In one order for the same elements, so that two tables can be compared.
    "set": (set, lambda value, pack: sorted(map(pack, set.__iter__(value)), key=json.dumps), lambda _: set(), _refill),
    "ChainMap": (
        ChainMap,
        lambda value, pack: [pack(each) for each in value.maps],
        lambda _: ChainMap(),
        lambda value, data, unpack: value.maps.__setitem__(slice(None), [unpack(each) for each in data]),
    ),
    "deque": (
        deque,
        lambda value, pack: [value.maxlen, *map(pack, deque.__iter__(value))],
        lambda data: deque(maxlen=data[0]),
        lambda value, data, unpack: _refill(value, data[1:], unpack),
    ),
    "numbers": (
        array,
        lambda value, _: [value.typecode, value.tobytes().hex()],
        lambda data: array(data[0]),
        lambda value, data, _: value.__setitem__(slice(None), array(data[0], bytes.fromhex(data[1]))),
    ),
    "bytearray": (
        bytearray,
        lambda value, _: bytearray.hex(value),
        lambda _: bytearray(),
        lambda value, data, _: value.__setitem__(slice(None), bytes.fromhex(data)),
    ),
}
"""By name: the type, what is in it, how to make an empty one, and how to fill it. A subclass goes over as the first of them
that it is."""
_FIXED: dict[str, tuple[type, Callable[[Any, Pack], Any], Callable[[Any, Pack], Any]]] = {
    "int": (int, lambda value, _: hex(value), lambda data, _: int(data, 16)),
    "struct_time": (
        struct_time,
        lambda value, pack: [pack(item) for item in value],
        lambda data, unpack: struct_time(map(unpack, data)),
    ),
    "tuple": (
        tuple,
        lambda value, pack: [pack(item) for item in tuple.__iter__(value)],
        lambda data, unpack: tuple([unpack(item) for item in data]),
    ),
    "frozenset": (
        frozenset,
        lambda value, pack: sorted(map(pack, frozenset.__iter__(value)), key=json.dumps),
        lambda data, unpack: frozenset([unpack(item) for item in data]),
    ),
    "bytes": (bytes, lambda value, _: bytes.hex(value), lambda data, _: bytes.fromhex(data)),
    "complex": (complex, lambda value, _: [value.real, value.imag], lambda data, _: complex(*data)),
    "range": (range, lambda value, _: [value.start, value.stop, value.step], lambda data, _: range(*data)),
    "slice": (
        slice,
        lambda value, pack: [pack(value.start), pack(value.stop), pack(value.step)],
        lambda data, unpack: slice(*map(unpack, data)),
    ),
    "datetime": (
        datetime,
        lambda value, pack: [datetime.isoformat(value), value.fold, pack(_zone(value))],
        lambda data, unpack: datetime.fromisoformat(data[0]).replace(fold=data[1], tzinfo=unpack(data[2])),
    ),
    "timezone": (
        timezone,
        lambda value, pack: [pack(each) for each in value.__getinitargs__()],
        lambda data, unpack: timezone(*map(unpack, data)),
    ),
    "date": (date, lambda value, _: date.isoformat(value), lambda data, _: date.fromisoformat(data)),
    "time": (time, lambda value, _: time.isoformat(value), lambda data, _: time.fromisoformat(data)),
    "timedelta": (
        timedelta,
        lambda value, _: [value.days, value.seconds, value.microseconds],
        lambda data, _: timedelta(*data),
    ),
    "proxy": (
        MappingProxyType,
        lambda value, pack: pack(dict(value)),
        lambda data, unpack: MappingProxyType(dict(unpack(data))),
    ),
    "keys": (type({}.keys()), _in_view, lambda data, unpack: dict.fromkeys(map(unpack, data)).keys()),
    "values": (type({}.values()), _in_view, lambda data, unpack: dict(enumerate(map(unpack, data))).values()),
    "items": (type({}.items()), _in_view, lambda data, unpack: dict(map(unpack, data)).items()),
}
FIXED = frozenset((float, str, *(kind for kind, *_ in _FIXED.values())))
_SINGLE = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}
_FROM_TEXT = {
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("uuid", "UUID"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("zoneinfo", "ZoneInfo"),
    *(("ipaddress", f"IPv{version}{kind}") for version in (4, 6) for kind in ("Address", "Network", "Interface")),
}
"""Types that are made of their own text, in modules that are imported only when they come up."""
_PARSED = {("urllib.parse", f"{name}Result{kind}") for name in ("Parse", "Split", "Defrag") for kind in ("", "Bytes")}
"""Named tuples with methods of their own."""
_NAMESPACES = {("types", "SimpleNamespace"), ("argparse", "Namespace")}
"""Types that are their attributes and nothing else."""


class Packer:
    """Makes JSON of values. `keep` is asked for what stands in for a value that is not plain data. `record` gives the name of
    the class of an object that goes over as its attributes, "" for one that stays whatever it is, else None. The first
    places of the table are for what is `known`; what `both` sides hold has a number, found by its id."""

    def __init__(
        self,
        keep: Pack,
        record: Pack = lambda value: None,
        known: Sequence[Any] = (),
        both: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._keep, self._both = keep, both
        self._record: Pack = lambda value: _namespace(type(value)) or record(value)
        self.values = list(known)
        """What stands in the table, in order; it stays alive as long as its places are used."""
        self._places = {id(value): place for place, value in enumerate(known)}
        self._first = self._filled = len(known)
        self._table: list[Any] = []

    def pack(self, value: Any) -> Any:
        kind = type(value)
        if kind is float and math.isnan(value):
            NAN[:] = [value]
        if kind in _AS_THEY_ARE or (kind is int and -_WIDEST < value < _WIDEST):
            return value
        if id(value) in self._both:
            return {"both": self._both[id(value)]}
        if id(value) in self._places:
            return {"@": self._places[id(value)]}
        if (home := self._record(value)) is not None:
            return self._place(value) if home else self._keep(value)
        if isinstance(value, tuple(kind for kind, *_ in _CHANGEABLE.values())) or tables.is_array(value):
            return self._place(value)
        return self._rarity(value) if tables.is_table(value) else self._fixed(value)

    def _fixed(self, value: Any) -> Any:
        if (constant := _constant(value)) is not None:
            return {"constant": constant}
        if isinstance(value, float | str):
            return value
        if isinstance(value, tuple) and isinstance(fields := getattr(type(value), "_fields", None), tuple):
            items = [self.pack(item) for item in tuple.__iter__(value)]
            if (home := (type(value).__module__, type(value).__name__)) in _PARSED:
                return {"parsed": [*home, items]}
            return {"named": [type(value).__name__, [str(field) for field in fields], items]}
        for name, (kind, write, _) in _FIXED.items():
            if isinstance(value, kind):
                return {name: write(value, self.pack)}
        return self._rarity(value)

    def _rarity(self, value: Any) -> Any:
        home, name = type(value).__module__, type(value).__qualname__
        if (home, name) in _FROM_TEXT:
            return {"text": [home, name, str(value)]}
        if any(value is single for single in _SINGLE.values()):
            return {"single": repr(value)}
        if tables.is_table(value) and (written := tables.write(value, self.pack)) is not None:
            return {"table": written}
        return self._keep(value)

    def _place(self, value: Any) -> Any:
        self._places[id(value)] = len(self.values)
        self.values.append(value)
        return {"@": self._places[id(value)]}

    def table(self) -> list[Any]:
        """The new part of the table, a name and data for each value: to be asked for when all is packed."""
        while self._filled < len(self.values):
            self._table.append(self.entry(self.values[self._filled]))
            self._filled += 1
        return self._table

    def entry(self, value: Any) -> list[Any]:
        """What stands in the table for a value, as it is now."""
        if (home := self._record(value)) is not None:
            return ["object", [home, *([key, self.pack(item)] for key, item in _attributes(value).items())]]
        if tables.is_array(value):
            return ["array", tables.write(value, self.pack)]
        name, (_, items, _, _) = next(entry for entry in _CHANGEABLE.items() if isinstance(value, entry[1][0]))
        return [name, items(value, self.pack)]


class Unpacker:
    """Makes values of JSON; `find` is asked for the one that a stand-in stands for, `build` for those that only `record`
    knows; what `both` sides hold is found by its number. `trait` has the last word on what becomes an attribute of what.
    Whatever is wrong with the data raises."""

    def __init__(
        self,
        find: Pack,
        table: Sequence[Any] = (),
        build: Pack | None = None,
        known: Sequence[Any] = (),
        both: Mapping[int, Any] = MappingProxyType({}),
        trait: Callable[[Any, str, Any], Any] = lambda owner, name, value: value,
    ) -> None:
        self._find, self._build, self._both, self.trait = find, build, both, trait
        self.values = list(known)
        first = len(self.values)
        self.values += [self.empty(name, data) for name, data in table]
        later = []
        for value, entry in zip(self.values[first:], table, strict=True):  # what hashes by its contents is needed first
            (self.fill if entry[0] == "object" else lambda *filled: later.append(filled))(value, entry)
        for value, entry in sorted(later, key=lambda each: each[1][0] in ("set", "dict")):
            self.fill(value, entry)

    def empty(self, name: str, data: Any) -> Any:
        """What an entry is to be filled into."""
        if name == "object" and isinstance(data[0], list):
            return _named_type(data[0], _NAMESPACES)()
        if name == "object" and self._build is not None:
            return self._build(data[0])
        return tables.read(data, self.unpack) if name == "array" else _CHANGEABLE[name][2](data)

    def fill(self, value: Any, entry: Any) -> None:
        """Give a value what an entry says."""
        name, data = entry
        if name == "object":
            items = {str(key): self.trait(value, str(key), self.unpack(item)) for key, item in data[1:]}
            for key in [key for key in getattr(value, "__dict__", ()) if key not in items]:
                del value.__dict__[key]
            for key, item in items.items():
                if key.startswith("__"):
                    raise ValueError(key)
                object.__setattr__(value, key, item)
        elif name == "array":
            value[...] = tables.read(data, self.unpack)
        else:
            _CHANGEABLE[name][3](value, data, self.unpack)

    def unpack(self, packed: Any) -> Any:
        if not isinstance(packed, dict):
            if isinstance(packed, list):
                raise ValueError(packed)
            if isinstance(packed, float) and math.isnan(packed):
                return NAN[0] if NAN else sys.modules.get("numpy", math).nan
            return packed
        ((name, data),) = packed.items()
        if name in _FIXED:
            return _FIXED[name][2](data, self.unpack)
        return _OTHERS[name](self, data) if name in _OTHERS else self._find(packed)

    def at(self, place: int) -> Any:
        return self.values[place]

    def of_both(self, number: int) -> Any:
        return self._both[number]


def plain(value: Any) -> list[Any]:
    """A value of a type that derives from one of Python's own, alone in a list, as that; empty for any other."""
    kinds: tuple[Any, ...] = (int, float, str, bytes, list, tuple, set, frozenset)
    for kind in kinds:
        if isinstance(value, kind):
            single = kind in (int, float, str, bytes)
            return [kind.__getnewargs__(value)[0] if single else kind(kind.__iter__(value))]
    if isinstance(value, UserList | UserDict | UserString):
        return plain(value.data)
    return [dict(dict.items(value))] if isinstance(value, dict) else []


def _constant(value: Any) -> list[str] | None:
    """Where a member of an enumeration of Python's own library is found; None for all else."""
    enum, kind = sys.modules.get("enum"), type(value)
    if enum is None or not isinstance(value, enum.Enum) or kind.__module__ not in sys.stdlib_module_names:
        return None
    known = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind and value.name in kind.__members__
    return [kind.__module__, kind.__name__, value.name] if known else None


def _from_constant(data: Any) -> Any:
    home, kind, name = data
    if home not in sys.stdlib_module_names:
        raise ValueError(home)
    return getattr(importlib.import_module(home), kind).__members__[name]


def _zone(value: datetime) -> Any:
    """A zone of a kind that both sides have: that of a date, or where it is at that time."""
    if type(value.tzinfo).__name__ == "ZoneInfo" or (offset := value.utcoffset()) is None:
        return value.tzinfo
    return value.tzinfo if type(value.tzinfo) is timezone else timezone(offset)


def _from_text(data: Any) -> Any:
    home, name, text = data
    return _named_type([home, name], _FROM_TEXT)(text)


def _named_type(data: Any, known: set[tuple[str, str]]) -> Any:
    home, name = data
    if (home, name) not in known:
        raise ValueError(f"{home}.{name}")
    return getattr(importlib.import_module(home), name)


def _namespace(kind: type) -> list[str] | None:
    found = (kind.__module__, kind.__name__)
    return list(found) if found in _NAMESPACES and getattr(sys.modules.get(found[0]), found[1], None) is kind else None


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    found = {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}
    return {name: item for name, item in found.items() if not name.startswith("__")}


def as_data(value: Any, keep: Pack) -> Any:
    """A value on its own as JSON."""
    packer = Packer(keep)
    return {"value": packer.pack(value), "table": packer.table()}


def from_data(data: Any, find: Pack) -> Any:
    return Unpacker(find, data["table"]).unpack(data["value"])


@cache
def _named(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)


def builtin_name(value: Any) -> str | None:
    """The name of one of Python's own functions and types; None for all others."""
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) and vars(builtins).get(name) is value else None


def in_library(kind: type) -> bool:
    """Whether a class is one of Python's library, under its own name."""
    home = kind.__module__
    return (
        home in sys.stdlib_module_names - {"builtins"} and getattr(sys.modules.get(home), kind.__name__, None) is kind
    )


def _factory(name: str | None) -> Any:
    return vars(builtins)[name] if name in ("int", "float", "str", "list", "dict", "set", "tuple", "bool") else None


_OTHERS: dict[str, Callable[[Unpacker, Any], Any]] = {
    "@": Unpacker.at,
    "both": Unpacker.of_both,
    "named": lambda unpacker, data: _named(data[0], tuple(data[1]))(
        *[unpacker.trait((), name, unpacker.unpack(item)) for name, item in zip(data[1], data[2], strict=True)]
    ),
    "parsed": lambda unpacker, data: _named_type(data[:2], _PARSED)(*map(unpacker.unpack, data[2])),
    "text": lambda _, data: _from_text(data),
    "constant": lambda _, data: _from_constant(data),
    "single": lambda _, data: _SINGLE[data],
    "table": lambda unpacker, data: tables.read(data, unpacker.unpack),
}
