"""How processes talk, whichever side asks: JSON with its length in front; and Python values that both sides read the same.

Plain data goes over as a copy. Everything else stays where it is, and a number goes over in its place.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from typing import Any

LARGEST = 32 * 2**20
"""Bytes of one message; a longer one is taken for the end of the talk."""
CHANGEABLE = (list, dict, set, bytearray, deque)
"""Arguments that a function may change in place."""
_CONTAINERS: dict[str, tuple[type, Callable[[Any], Iterable[Any]], Callable[[Any], Any]]] = {
    "Counter": (Counter, dict.items, lambda pairs: Counter(dict(pairs))),
    "OrderedDict": (OrderedDict, dict.items, OrderedDict),
    "dict": (dict, dict.items, dict),
    "tuple": (tuple, tuple.__iter__, tuple),
    "set": (set, set.__iter__, set),
    "frozenset": (frozenset, frozenset.__iter__, frozenset),
    "deque": (deque, deque.__iter__, deque),
}
"""By name: the type, what is in it, and how to make it again. A subclass goes over as the first of them that it is."""
_ATOMS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "int": (int, hex, lambda digits: int(digits, 16)),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "complex": (complex, lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    "range": (range, lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (
        timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: timedelta(*parts),
    ),
}
_FROM_TEXT = {("decimal", "Decimal"), ("fractions", "Fraction")}
"""Types that are made of their own text, in modules that are imported only when they come up."""
_WIDEST = 2**63


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


def pack(value: Any, keep: Callable[[Any], Any]) -> Any:
    """A value as JSON; `keep` is asked for what stands in for a value that is not plain data."""
    if value is None or isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < _WIDEST):
        return value
    if isinstance(value, list):
        return [pack(item, keep) for item in list.__iter__(value)]
    if isinstance(value, tuple) and isinstance(fields := getattr(type(value), "_fields", None), tuple):
        return {"named": [type(value).__name__, list(fields), [pack(item, keep) for item in tuple.__iter__(value)]]}
    for name, (kind, items, _) in _CONTAINERS.items():
        if isinstance(value, kind):
            return {name: [pack(item, keep) for item in items(value)]}
    for name, (kind, write, _) in _ATOMS.items():
        if isinstance(value, kind):
            return {name: write(value)}
    return _pack_rarity(value, keep)


def _pack_rarity(value: Any, keep: Callable[[Any], Any]) -> Any:
    home, name = type(value).__module__, type(value).__qualname__
    if (home, name) in _FROM_TEXT:
        return {"text": [home, name, str(value)]}
    if home == "numpy" and hasattr(value, "tolist") and hasattr(value, "dtype"):
        data = pack(value.tolist(), keep)
        return {"numpy": [str(value.dtype), data]} if getattr(value, "ndim", 0) else data
    return keep(value)


def builtin_name(value: Any) -> str | None:
    """The name of one of Python's own functions and types; None for all others."""
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) and vars(builtins).get(name) is value else None


def unpack(packed: Any, find: Callable[[Any], Any]) -> Any:
    """The value again; `find` is asked for the one that a stand-in stands for. Whatever is wrong with the data raises."""
    if isinstance(packed, list):
        return [unpack(item, find) for item in packed]
    if not isinstance(packed, dict):
        return packed
    ((name, data),) = packed.items()
    if name in _CONTAINERS:
        return _CONTAINERS[name][2]([unpack(item, find) for item in data])
    if name in _ATOMS:
        return _ATOMS[name][2](data)
    if name in _RARITIES:
        return _RARITIES[name](data, find)
    return find(packed)


def _from_text(data: Any, _: Callable[[Any], Any]) -> Any:
    home, name, text = data
    if (home, name) not in _FROM_TEXT:
        raise ValueError(f"{home}.{name}")
    return getattr(importlib.import_module(home), name)(text)


def _from_numpy(data: Any, find: Callable[[Any], Any]) -> Any:
    numpy = importlib.import_module("numpy")
    return numpy.array(unpack(data[1], find), dtype=numpy.dtype(data[0]))


_RARITIES: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "named": lambda data, find: namedtuple(data[0], data[1])(*unpack(data[2], find)),
    "text": _from_text,
    "numpy": _from_numpy,
}
