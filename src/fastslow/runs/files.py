"""Write files so that a kill or a full disk never leaves a partial one."""

from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fastslow.base.errors import RunError, cause

if TYPE_CHECKING:
    import pyarrow as pa

TEMPORARY = ".writing-"
"""Name prefix of an unfinished file or folder."""
LONGEST_NUMBER = 100
"""Digits of an integer in a file; one with more is read as a float, which may be infinite."""
DEEPEST = 100
"""Nesting of the values in a file."""
MOST_TABLE_ROWS, LARGEST_TABLE = 10**6, 2**30
"""Rows and bytes, uncompressed, of a file of rollouts."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise a `RunError` with advice if writing `path` fails."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"'{path}' was not written: {cause(error)}; free disk space or check the permissions, then resume the run"
        ) from error


@contextmanager
def understood(folder: Path) -> Iterator[None]:
    """Raise a `RunError` if what a run folder holds is JSON, but not what a run writes: a key is missing, say."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise RunError(
            f"'{folder}' holds a file that no run has written so ({cause(error)}); restore the folder from a copy"
        ) from error


@contextmanager
def nothing_left_behind(folder: Path) -> Iterator[None]:
    """If the block fails, remove `folder` and those of its parents that were not there before, as far as they are empty."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    except BaseException:
        for each in new:
            with suppress(OSError):
                each.rmdir()
        raise


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A temporary path to write to, renamed to `path` at the end of the block; on any failure `path` is unchanged."""
    unfinished = path.with_name(TEMPORARY + path.name)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            sync(unfinished)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def sync(path: Path) -> None:
    """Flush a file or a directory to disk, so that a power failure cannot undo the rename that follows."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    with temporary(path) as unfinished:
        unfinished.write_bytes(data)


def write_json(path: Path, data: Mapping[str, Any], indent: int | None = 2) -> None:
    write_bytes(path, encode(json.dumps(plain(data), ensure_ascii=False, allow_nan=False, indent=indent) + "\n"))


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, None if the file does not exist."""
    try:
        data = loads(_file(path).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"'{path}' cannot be read as JSON: {cause(error)}; restore it from a copy") from error
    if not isinstance(data, dict):
        raise RunError(f"'{path}' holds {type(data).__name__}, expected a JSON object; restore it from a copy")
    return data


def _file(path: Path) -> Path:
    """The path, unless something is there that could be read without end: a pipe or a device."""
    if path.exists() and not path.is_file():
        raise OSError("it is no file")
    return path


def loads(text: bytes) -> Any:
    """What JSON holds; values that are nested so deeply that writing them again could fail are refused."""
    data = json.loads(text, parse_int=lambda digits: (int if len(digits) <= LONGEST_NUMBER else float)(digits))
    if text.count(b"[") + text.count(b"{") > DEEPEST:
        level = [data] if isinstance(data, list | dict) else []
        for _ in range(DEEPEST):
            level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
            level = [each for each in level if isinstance(each, list | dict)]
        if level:
            raise ValueError(f"nested more than {DEEPEST} deep")
    return data


def write_packed(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object compressed: for large data that only programs read."""
    text = json.dumps(plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    write_bytes(path, gzip.compress(encode(text), compresslevel=6, mtime=0))


def read_packed(path: Path) -> dict[str, Any] | None:
    """What `write_packed` wrote, None if the file does not exist."""
    try:
        return json.loads(gzip.decompress(_file(path).read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise RunError(f"'{path}' cannot be read: {cause(error)}; restore it from a copy") from error


def encode(text: str) -> bytes:
    """UTF-8; a lone surrogate, which JSON answers can contain, is escaped instead of raising an error."""
    return text.encode("utf-8", "backslashreplace")


def plain(value: Any) -> Any:
    """The value in JSON types: NaN and infinity become null, array scalars become numbers."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "item"):
        return plain(value.item())
    return value


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line. A partial line left by an earlier kill, or by a failure of this write, is removed."""
    line = encode(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n")
    # Unbuffered: closing a buffered file would repeat the failed write after the truncation.
    with explained(path), path.open("a+b", buffering=0) as file:
        start = _end_of_lines(file)
        file.truncate(start)
        try:
            while line:
                line = line[file.write(line) :]
        except OSError:
            file.truncate(start)
            raise


def read_rows(path: Path, wanted: Callable[[dict[str, Any]], bool] | None = None) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, or the wanted ones, which come first. A line that is no row raises, unless only wanted
    rows are read and none follows it. A last line without a newline is partial, left by a kill, and is ignored."""
    try:
        *lines, _partial = _file(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"'{path}' cannot be read: {cause(error)}") from error
    rows, damaged = [], 0
    for number, line in enumerate(lines, 1):
        row = parse_row(line)
        if row is None:
            damaged = damaged or number
        elif wanted is None or wanted(row):
            rows.append(row)
        if damaged and (wanted is None or (row is not None and wanted(row))):
            raise RunError(
                f"line {damaged} of '{path}' is not a JSON object; restore the file from a copy, or remove that line to do "
                "without it"
            )
    return rows


def has_partial_line(path: Path) -> bool:
    """Whether the last line of a file is not complete."""
    try:
        with _file(path).open("rb") as file:
            return _end_of_lines(file) != file.seek(0, os.SEEK_END)
    except OSError:
        return False


def parse_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """Files by the number in their names."""
    found = ((path.name.partition(".")[0].rpartition("-")[2], path) for path in folder.glob(pattern))
    return {int(number): path for number, path in found if number.isdecimal() and len(number) < 10}


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Those of the columns, or all, that a parquet file has. One that would fill the memory is refused."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(_file(path)) as file:
            groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
            if (
                file.metadata.num_rows > MOST_TABLE_ROWS
                or sum(group.total_byte_size for group in groups) > LARGEST_TABLE
            ):
                raise ValueError(f"more than {MOST_TABLE_ROWS:,} rows or {LARGEST_TABLE:,} bytes")
            there = file.schema_arrow.names
            wanted = there if columns is None else [name for name in columns if name in there]
            return file.read(columns=wanted, use_threads=False)
    except (OSError, ValueError, MemoryError, RuntimeError, pa.ArrowException) as error:
        raise RunError(f"'{path}' cannot be read: {cause(error)}; restore it from a copy") from error


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    write_bytes(path, encode("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)))


def _end_of_lines(file: IO[bytes]) -> int:
    """The offset after the last complete line."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    return file.read().rfind(b"\n") + 1
