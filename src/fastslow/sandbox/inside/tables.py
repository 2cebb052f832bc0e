"""Arrays of numpy and tables of pandas as data: numbers as bytes, all else as lists."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

Pack = Callable[[Any], Any]
_NUMBERS = "biufcSUmM"
"""Kinds of dtype whose bytes are their value."""


def _library(name: str) -> Any:
    """numpy or pandas where it is loaded, else None: who has not loaded it has none of its values."""
    return sys.modules.get(name)


def is_array(value: Any) -> bool:
    numpy = _library("numpy")
    return numpy is not None and type(value) is numpy.ndarray and (_plain(value.dtype) or value.dtype.kind == "O")


def _plain(dtype: Any) -> bool:
    """Whether the bytes of a dtype, or of its fields, are their value."""
    return dtype.kind in _NUMBERS if dtype.names is None else all(_plain(dtype[name]) for name in dtype.names)


def is_scalar(value: Any) -> bool:
    numpy = _library("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def is_table(value: Any) -> bool:
    pandas = _library("pandas")
    if pandas is not None and (type(value).__name__ in _PANDAS or isinstance(value, pandas.Index)):
        return type(value).__module__.partition(".")[0] == "pandas"
    return is_scalar(value)


def write(value: Any, pack: Pack) -> Any:
    """A value of one of these libraries as JSON; None for one that only they can make."""
    if not is_array(value) and not is_scalar(value):
        return _WRITERS.get(type(value).__name__, _write_index)(value, pack)
    if _plain(value.dtype):
        shape = list(value.shape) if is_array(value) else None
        kind = _library("numpy").lib.format.dtype_to_descr(value.dtype)
        return ["array", kind, shape, b64encode(value.tobytes()).decode()]
    if value.dtype.kind == "O":
        return ["objects", list(value.shape), [pack(item) for item in value.ravel()]]
    return None


def _write_index(value: Any, pack: Pack) -> Any:
    return ["index", pack(value.name), getattr(value, "freqstr", None), *_column(value, pack)]


def _write_frame(value: Any, pack: Pack) -> Any:
    columns = [_column(value.iloc[:, place], pack) for place in range(value.shape[1])]
    return ["frame", write(value.index, pack), write(value.columns, pack), columns]


_WRITERS: dict[str, Callable[[Any, Pack], Any]] = {
    "NaTType": lambda value, _: ["missing", "NaT"],
    "NAType": lambda value, _: ["missing", "NA"],
    "Timestamp": lambda value, _: ["time", "Timestamp", value.isoformat()],
    "Timedelta": lambda value, _: ["time", "Timedelta", value.isoformat()],
    "Interval": lambda value, pack: ["interval", pack(value.left), pack(value.right), value.closed],
    "Period": lambda value, _: ["period", str(value), value.freqstr],
    "Series": lambda value, pack: ["series", write(value.index, pack), pack(value.name), *_column(value, pack)],
    "DataFrame": _write_frame,
    "RangeIndex": lambda value, pack: ["range", value.start, value.stop, value.step, pack(value.name)],
    "MultiIndex": lambda value, pack: ["multi", [pack(each) for each in value], [pack(name) for name in value.names]],
}
_PANDAS = _WRITERS.keys() - {"RangeIndex", "MultiIndex"}


def _column(value: Any, pack: Pack) -> list[Any]:
    numpy = _library("numpy")
    if isinstance(value.dtype, numpy.dtype) and value.dtype.kind in _NUMBERS:
        return [None, write(value.to_numpy(), pack)]
    if str(value.dtype) == "category":
        categories = [pack(item) for item in value.array.categories.tolist()]
        return [["category", categories, bool(value.array.ordered)], [pack(item) for item in value.tolist()]]
    return [str(value.dtype), [pack(item) for item in value.tolist()]]


def read(data: Any, unpack: Pack) -> Any:
    """The value again."""
    name, *rest = data
    return _READERS[name](unpack, *rest)


def _read_array(unpack: Pack, kind: Any, shape: list[int] | None, text: str) -> Any:
    import numpy

    dtype = numpy.lib.format.descr_to_dtype(kind)
    if not _plain(dtype):  # never objects, whose bytes would be addresses
        raise ValueError(kind)
    values = numpy.frombuffer(b64decode(text), dtype)
    return values[0] if shape is None else values.reshape(shape).copy()


def _read_objects(unpack: Pack, shape: list[int], items: list[Any]) -> Any:
    import numpy

    array = numpy.empty(len(items), object)
    for place, item in enumerate(items):
        array[place] = unpack(item)
    return array.reshape(shape)


def _read_frame(unpack: Pack, index: Any, columns: Any, parts: Any) -> Any:
    import pandas

    rows = read(index, unpack)
    frame = pandas.DataFrame({place: _series(unpack, rows, None, *part) for place, part in enumerate(parts)}, rows)
    frame.columns = read(columns, unpack)
    return frame


def _series(unpack: Pack, rows: Any, name: Any, kind: Any, items: Any) -> Any:
    import pandas

    return pandas.Series(_values(kind, items, unpack), rows, name=unpack(name))


def _read_index(unpack: Pack, name: Any, frequency: str | None, kind: Any, items: Any) -> Any:
    import pandas

    index: Any = pandas.Index(_values(kind, items, unpack), name=unpack(name))
    if frequency is not None and not isinstance(index, pandas.PeriodIndex):
        index.freq = frequency
    return index


def _of_pandas(name: str) -> Any:
    import pandas

    return getattr(pandas, name)


_READERS: dict[str, Callable[..., Any]] = {
    "array": _read_array,
    "objects": _read_objects,
    "missing": lambda _, name: _of_pandas("NaT" if name == "NaT" else "NA"),
    "time": lambda _, name, text: _of_pandas("Timestamp" if name == "Timestamp" else "Timedelta")(text),
    "period": lambda _, text, frequency: _of_pandas("Period")(text, freq=frequency),
    "interval": lambda unpack, left, right, closed: _of_pandas("Interval")(unpack(left), unpack(right), closed),
    "series": lambda unpack, index, *rest: _series(unpack, read(index, unpack), *rest),
    "frame": _read_frame,
    "range": lambda unpack, *parts: _of_pandas("RangeIndex")(*parts[:3], name=unpack(parts[3])),
    "multi": lambda unpack, items, names: _of_pandas("MultiIndex").from_tuples(
        [unpack(item) for item in items], names=[unpack(name) for name in names]
    ),
    "index": _read_index,
}


def _values(kind: Any, items: Any, unpack: Pack) -> Any:
    import pandas

    if kind is None:
        return read(items, unpack)
    values = [unpack(item) for item in items]
    if isinstance(kind, list):
        return pandas.Categorical(values, list(map(unpack, kind[1])), ordered=kind[2])
    return pandas.array(values, dtype=kind) if kind != "object" else _read_objects(unpack, [len(items)], items)
