"""Reading run folders that may be half-written, damaged or growing: what cannot be read is noted instead of raised."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.base.errors import RunError, cause
from fastslow.runs import files

if TYPE_CHECKING:
    import pyarrow as pa

DEEPEST = 6
"""How far below a named folder runs are looked for."""
LARGEST_JSON, LARGEST_LOG, AT_ONCE = 2**25, 2**29, 2**26
"""Bytes of a JSON file and of a log that are read, and those of a log that are read for one request."""
WRITTEN = 10.0
"""Seconds after which a last line without its end is no longer taken to be half-written."""
MOST = 2000
"""Objects of a list in a JSON file, and problems of a cycle: no run has more of them."""


class Place:
    """A run folder, and the only way to its files."""

    def __init__(self, name: str, path: Path, root: Path) -> None:
        self.name, self.path, self.root = name, path, root
        self.notes: dict[str, str] = {}
        """What was skipped, by file."""

    def file(self, name: str) -> Path | None:
        """A file of the run; None if there is none, or if a link leads out of the folder that was named."""
        try:
            path = (self.path / name).resolve()
            if path.is_relative_to(self.root) and path.is_file():
                return path
            if (self.path / name).exists():
                self.notes[name] = "skipped: it is no file of this run's folder"
        except (OSError, RuntimeError) as error:  # the latter for links in a circle
            self.notes[name] = f"not readable: {cause(error)}"
        return None

    def numbered(self, folder: str, prefix: str, suffix: str) -> dict[int, str]:
        """The names, by number, of files such as contexts/cycle-0003.json."""
        found = files.numbered(self.path / folder, f"{prefix}*{suffix}")
        return {number: f"{folder}/{found[number].name}" for number in sorted(found)}

    def json(self, name: str) -> dict[str, Any]:
        """The object in a JSON file; empty if it is missing or damaged."""
        path = self.file(name)
        try:
            if path and path.stat().st_size > LARGEST_JSON:
                self.notes[name] = f"skipped: it has more than {LARGEST_JSON:,} bytes"
                return {}
            data = files.read_json(path) if path else {}
        except RunError as error:
            why = f"not readable as JSON ({type(error.__cause__).__name__})" if error.__cause__ else "not a JSON object"
            self.notes[name] = f"skipped: {why}"
            return {}
        except OSError as error:
            self.notes[name] = f"not readable: {cause(error)}"
            return {}
        if path:
            self.notes.pop(name, None)
        return data or {}

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table | None:
        """Those of the columns, or all, that a file of rollouts has; None if it is missing or damaged."""
        path = self.file(name)
        try:
            return files.read_table(path, columns) if path else None
        except RunError as error:
            self.notes[name] = f"skipped: not readable as parquet ({type(error.__cause__).__name__})"
            return None

    def stamp(self, name: str) -> tuple[int, int]:
        """Changes whenever the file or folder does."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)


class Places:
    """All runs under the named folders, by a name that is unique among them."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = [root.resolve() for root in roots]
        self._known: dict[Path, Place] = {}

    def find(self) -> dict[str, Place]:
        """The runs now; a run that was found before keeps its place."""
        named: dict[str, Place] = {}
        for root in self.roots:
            for path in _runs_under(root, DEEPEST):
                if path not in self._known:
                    self._known[path] = Place(self._name(path, root), path, root)
                place = self._known[path]
                named.setdefault(place.name, place)
        return dict(sorted(named.items()))

    def _name(self, path: Path, root: Path) -> str:
        name = root.name if path == root else path.relative_to(root).as_posix()
        taken = {place.name for place in self._known.values()}
        return name if name not in taken else f"{root.name}/{name}" if path != root else str(root)


def _runs_under(folder: Path, depth: int) -> Iterator[Path]:
    """Run folders, without following links; a run holds no other runs."""
    try:
        if (folder / "run.json").is_file():
            yield folder
            return
        entries = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in entries:
        if depth and not name.startswith("."):
            yield from _runs_under(folder / name, depth - 1)


class Log:
    """The rows of a JSON-lines file that grows. Damaged lines are skipped and counted; a last line without its end is
    waited for."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.version = 0
        """Changes whenever the rows do."""
        self._restart(None)

    def _restart(self, file: tuple[int, int] | None) -> None:
        self.rows: list[dict[str, Any]] = []
        self._file, self._offset, self._lines, self._damaged, self._damage = file, 0, 0, 0, ""
        self.place.notes.pop(self.name, None)

    def refresh(self) -> list[dict[str, Any]]:
        """Read what was appended; a file that was replaced or became shorter, as on resume, is read again."""
        path = self.place.file(self.name)
        if path is None:
            if self.rows:
                self._restart(None)
                self.version += 1
            return self.rows
        if self._offset >= LARGEST_LOG:
            self.place.notes[self.name] = f"only its first {LARGEST_LOG:,} bytes are read"
            return self.rows
        try:
            with path.open("rb") as file:
                status = path.stat()
                identity = (status.st_dev, status.st_ino)
                if identity != self._file or status.st_size < self._offset:
                    self._restart(identity)
                    self.version += 1
                file.seek(self._offset)
                *lines, partial = (new := file.read(AT_ONCE)).split(b"\n")
        except OSError as error:
            self.place.notes[self.name] = f"not readable: {error.strerror}"
            return self.rows
        if lines:
            self._offset += len(new) - len(partial)
            self._take(lines)
        unread = ""
        if len(partial) == AT_ONCE:
            unread = f"line {self._lines + 1} is not read: it has more than {AT_ONCE:,} bytes"
        elif partial and time.time() - status.st_mtime > WRITTEN:
            unread = f"line {self._lines + 1} is truncated and was skipped"
        if told := "; ".join(filter(None, [self._damage, unread])):
            self.place.notes[self.name] = told
        else:
            self.place.notes.pop(self.name, None)
        return self.rows

    def _take(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._lines += 1
            row = files.parse_row(line)
            if row is not None:
                self.rows.append(row)
                continue
            self._damaged += 1
            many = "s" * (self._damaged > 1)
            self._damage = f"{self._damaged} damaged line{many} skipped, the last is line {self._lines}"
        self.version += 1


def number(value: Any) -> float | None:
    """A finite number, None for anything else that a damaged row may hold."""
    try:
        usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return None
    return value if usable else None


def rounded(value: Any) -> float | None:
    """A number with six significant digits: curves need no more, and the page loads faster."""
    found = number(value)
    return found if found is None or isinstance(found, int) else float(f"{found:.6g}")


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def text(value: Any) -> str:
    """A text, empty for anything else."""
    return value if isinstance(value, str) else ""


def texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list, as far as a run has so many."""
    return [item for item in value[:MOST] if isinstance(item, dict)] if isinstance(value, list) else []


def column(rows: Iterable[Mapping[str, Any]], *names: str) -> list[float | None]:
    """The values of the first of these keys that a row has; former names come last."""
    return [next((rounded(row[name]) for name in names if name in row), None) for row in rows]
