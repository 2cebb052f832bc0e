"""Arrays of numpy and tables of pandas as data: numbers as bytes, all else as lists."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

Pack = Callable[[Any], Any]
_NUMBERS = "biufcSUmM"
"""Kinds of dtype whose bytes are their value."""
_PANDAS = ("DataFrame", "Series", "Timestamp", "Timedelta", "Period", "NaTType", "NAType")


def _library(name: str) -> Any:
    """numpy or pandas where it is loaded, else None: who has not loaded it has none of its values."""
    return sys.modules.get(name)


def is_array(value: Any) -> bool:
    numpy = _library("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def is_scalar(value: Any) -> bool:
    numpy = _library("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def is_table(value: Any) -> bool:
    pandas = _library("pandas")
    if pandas is not None and (type(value).__name__ in _PANDAS or isinstance(value, pandas.Index)):
        return type(value).__module__.startswith("pandas.")
    return is_scalar(value)


def write(value: Any, pack: Pack) -> Any:
    """A value of one of these libraries as JSON; None for one that only they can make."""
    if is_array(value):
        if value.dtype.kind in _NUMBERS:
            return ["array", value.dtype.str, list(value.shape), b64encode(value.tobytes()).decode()]
        return (
            ["objects", list(value.shape), [pack(item) for item in value.ravel()]] if value.dtype.kind == "O" else None
        )
    if is_scalar(value):
        return (
            ["scalar", value.dtype.str, b64encode(value.tobytes()).decode()] if value.dtype.kind in _NUMBERS else None
        )
    name = type(value).__name__
    match name:
        case "NaTType" | "NAType":
            return ["missing", "NaT" if name == "NaTType" else "NA"]
        case "Timestamp" | "Timedelta":
            return ["time", name, value.isoformat()]
        case "Period":
            return ["period", str(value), value.freqstr]
        case "Series":
            return ["series", write(value.index, pack), pack(value.name), *_column(value, pack)]
        case "DataFrame":
            columns = [_column(value.iloc[:, place], pack) for place in range(value.shape[1])]
            return ["frame", write(value.index, pack), write(value.columns, pack), columns]
        case "RangeIndex":
            return ["range", value.start, value.stop, value.step, pack(value.name)]
        case "MultiIndex":
            return ["multi", [pack(item) for item in value.tolist()], [pack(name) for name in value.names]]
    return ["index", pack(value.name), getattr(value, "freqstr", None), *_column(value, pack)]


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
    import numpy

    match data:
        case ["array", str(kind), shape, text]:
            return numpy.frombuffer(b64decode(text), _dtype(kind)).reshape(shape).copy()
        case ["scalar", str(kind), text]:
            return numpy.frombuffer(b64decode(text), _dtype(kind))[0]
        case ["objects", shape, items]:
            array = numpy.empty(len(items), object)
            for place, item in enumerate(items):
                array[place] = unpack(item)
            return array.reshape(shape)
    import pandas

    match data:
        case ["missing", name]:
            return pandas.NaT if name == "NaT" else pandas.NA
        case ["time", name, text]:
            return (pandas.Timestamp if name == "Timestamp" else pandas.Timedelta)(text)
        case ["period", text, frequency]:
            return pandas.Period(text, freq=frequency)
        case ["series", index, name, kind, items]:
            return pandas.Series(_values(kind, items, unpack), read(index, unpack), name=unpack(name))
        case ["frame", index, columns, parts]:
            rows = read(index, unpack)
            whole = {place: pandas.Series(_values(*part, unpack), rows) for place, part in enumerate(parts)}
            frame = pandas.DataFrame(whole, rows)
            frame.columns = read(columns, unpack)
            return frame
        case ["range", start, stop, step, name]:
            return pandas.RangeIndex(start, stop, step, name=unpack(name))
        case ["multi", items, names]:
            return pandas.MultiIndex.from_tuples(list(map(unpack, items)), names=list(map(unpack, names)))
        case ["index", name, frequency, kind, items]:
            index = pandas.Index(_values(kind, items, unpack), name=unpack(name))
            if frequency is not None and hasattr(index, "freq") and not isinstance(index, pandas.PeriodIndex):
                index.freq = frequency
            return index
    raise ValueError(data)


def _values(kind: Any, items: Any, unpack: Pack) -> Any:
    import pandas

    if kind is None:
        return read(items, unpack)
    values = [unpack(item) for item in items]
    if isinstance(kind, list):
        return pandas.Categorical(values, list(map(unpack, kind[1])), ordered=kind[2])
    return pandas.array(values, dtype=kind) if kind != "object" else read(["objects", [len(items)], items], unpack)


def _dtype(kind: str) -> Any:
    """Never one of objects, whose bytes would be addresses."""
    import numpy

    dtype = numpy.dtype(kind)
    if dtype.kind not in _NUMBERS:
        raise ValueError(kind)
    return dtype
