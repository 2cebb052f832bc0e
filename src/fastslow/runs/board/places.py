"""The run folders under the folders that were named, and the only way to their files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

DEEPEST = 6
"""How far below a named folder runs are looked for."""


class Place:
    """A run folder, which may be damaged or half-written. What could not be read is noted instead of raised."""

    def __init__(self, name: str, path: Path, root: Path) -> None:
        self.name, self.path, self.root = name, path, root
        self.notes: dict[str, str] = {}
        """What was skipped, by file."""

    def file(self, name: str) -> Path | None:
        """A file of the run; None if there is none, or if a link leads out of the folder that was named."""
        path = (self.path / name).resolve()
        return path if path.is_relative_to(self.root) and path.is_file() else None

    def numbered(self, folder: str, prefix: str, suffix: str) -> dict[int, str]:
        """The names, by number, of files such as contexts/cycle-0003.json."""
        found = {}
        for path in self._files(folder):
            number = path.removeprefix(prefix).removesuffix(suffix)
            if path == f"{prefix}{number}{suffix}" and number.isdecimal():
                found[int(number)] = f"{folder}/{path}"
        return dict(sorted(found.items()))

    def _files(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.path / folder)
        except OSError:
            return []

    def json(self, name: str) -> dict[str, Any]:
        """The object in a JSON file; empty if it is missing or damaged."""
        path = self.file(name)
        if path is None:
            return {}
        try:
            data = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            self.notes[name] = f"skipped: not readable as JSON ({type(error).__name__})"
            return {}
        if not isinstance(data, dict):
            self.notes[name] = "skipped: not a JSON object"
            return {}
        self.notes.pop(name, None)
        return data

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
    if (folder / "run.json").is_file():
        yield folder
        return
    if not depth:
        return
    try:
        entries = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in entries:
        if not name.startswith("."):
            yield from _runs_under(folder / name, depth - 1)
