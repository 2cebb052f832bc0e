"""Reading rows: from a JSONL, JSON, CSV or parquet file, or from a dataset on the Hugging Face hub."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line

Row = dict[str, Any]


def is_file(source: str) -> bool:
    """Whether a source names a file rather than a hub dataset: by its ending, so that a missing file is still one."""
    return Path(source).suffix.lower() in _READERS or Path(source).expanduser().is_file()


def read_rows(source: str, subset: str | None = None, split: str = "train") -> list[Row]:
    """All rows of a file, or of one split of a hub dataset."""
    rows = _read_file(source) if is_file(source) else _read_hub(source, subset, split)
    if not rows:
        where = f"'{source}'" if is_file(source) else f"split '{split}' of dataset '{source}'"
        raise TaskError(f"{where} has no rows; expected at least one problem")
    return rows


def _read_file(source: str) -> list[Row]:
    path = Path(source).expanduser()
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise TaskError(f"'{source}' is not a kind of file that can be read; expected one of {', '.join(_READERS)}")
    if path.exists() and not path.is_file():
        raise TaskError(f"'{source}' is not a regular file; expected a {', '.join(_READERS)} file")
    try:
        return reader(path)
    except FileNotFoundError:
        raise TaskError(
            f"there is no data file '{source}' (looked in {Path.cwd()}); give the path of a {', '.join(_READERS)} file"
        ) from None
    except UnicodeDecodeError as error:
        raise TaskError(
            f"'{source}' is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise TaskError(f"'{source}' cannot be read: {one_line(error)}") from None


def _read_hub(source: str, subset: str | None, split: str) -> list[Row]:
    import datasets

    try:
        return [dict(row) for row in datasets.load_dataset(source, subset, split=split)]
    except Exception as error:  # the library raises a dozen unrelated types, its network layer some more
        asked = f"dataset '{source}'" + (f", subset '{subset}'" if subset else "") + f", split '{split}'"
        raise TaskError(
            f"{asked} cannot be loaded ({type(error).__name__}: {one_line(error)}); expected the path of a "
            f"{', '.join(_READERS)} file or the id of a dataset on the Hugging Face hub"
        ) from error


def _read_json(path: Path) -> list[Row]:
    """A list of objects, or one object a line: many files called .json are really the latter."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".jsonl" or not text.lstrip().startswith("["):
        return [
            _expect_object(path, f"line {number}", _parsed(path, line, number, "one object a line"))
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    items = _parsed(path, text, None, "a list of objects")
    return [_expect_object(path, f"item {number}", item) for number, item in enumerate(items, 1)]


def _parsed(path: Path, text: str, number: int | None, expected: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = number or error.lineno
        raise TaskError(f"'{path}' line {line} is not valid JSON: {error.msg}; expected {expected}") from None


def _expect_object(path: Path, where: str, item: Any) -> Row:
    if not isinstance(item, dict):
        raise TaskError(
            f"'{path}' {where} is of type {type(item).__name__}; expected an object with the columns as keys"
        )
    return item


def _read_csv(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        rows = []
        try:
            for row in reader:
                if None in row:  # where the csv module puts cells beyond the header
                    raise TaskError(
                        f"'{path}' line {reader.line_num} has more cells than the header has columns; "
                        "put quotes around cells that hold commas"
                    )
                rows.append(dict(row))
        except csv.Error as error:
            raise TaskError(
                f"'{path}' cannot be read as CSV after line {reader.line_num}: {error}; save it as JSONL or parquet"
            ) from None
    return rows


def _read_parquet(path: Path) -> list[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        rows: list[Row] = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise TaskError(f"'{path}' is not a readable parquet file: {one_line(error)}") from None
    return rows


_READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": _read_json,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
