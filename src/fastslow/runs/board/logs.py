"""JSON-lines files that grow while they are read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from fastslow.runs.board.places import Place


class Log:
    """The rows of one file so far. Damaged lines are skipped and counted; a last line without its end is waited for."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.version = 0
        """Changes whenever the rows do."""
        self._restart(None)

    def _restart(self, file: tuple[int, int] | None) -> None:
        self.rows: list[dict[str, Any]] = []
        self._file, self._offset, self._lines, self._damaged = file, 0, 0, 0
        self.place.notes.pop(self.name, None)

    def refresh(self) -> list[dict[str, Any]]:
        """Read what was appended; a file that was replaced or became shorter, as on resume, is read again."""
        path = self.place.file(self.name)
        if path is None:
            if self.rows:
                self._restart(None)
                self.version += 1
            return self.rows
        try:
            with path.open("rb") as file:
                status = path.stat()
                identity = (status.st_dev, status.st_ino)
                if identity != self._file or status.st_size < self._offset:
                    self._restart(identity)
                    self.version += 1
                file.seek(self._offset)
                new = file.read()
        except OSError as error:
            self.place.notes[self.name] = f"not readable: {error.strerror}"
            return self.rows
        self._take(new)
        return self.rows

    def _take(self, new: bytes) -> None:
        *lines, partial = new.split(b"\n")
        if not lines:
            return
        self._offset += len(new) - len(partial)
        for line in lines:
            self._lines += 1
            row = _row(line)
            if row is not None:
                self.rows.append(row)
            else:
                self._damaged += 1
                told = (
                    f"{self._damaged} damaged line{'s' * (self._damaged > 1)} skipped, the last is line {self._lines}"
                )
                self.place.notes[self.name] = told
        self.version += 1


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def number(value: Any) -> float | None:
    """A finite number, None for anything else that a damaged row may hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def rounded(value: Any) -> float | None:
    """A number with six significant digits: curves need no more, and the page loads faster."""
    found = number(value)
    return found if found is None or isinstance(found, int) else float(f"{found:.6g}")


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def column(rows: Iterable[Mapping[str, Any]], *names: str) -> list[float | None]:
    """The values of the first of these keys that a row has; former names come last."""
    return [next((rounded(row[name]) for name in names if name in row), None) for row in rows]
