"""Processes, read from /proc."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


def parents() -> dict[int, tuple[int, str]]:
    """Of every process: its parent, and the moment it began, which tells it from a later one of the same number."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                found[int(entry.name)] = (int(fields[1]), fields[19])
    return found


def descendants(process: int) -> dict[int, str]:
    """All living processes that come from one, with the moment each began."""
    table, found, generation = parents(), {}, {process}
    while generation:
        generation = {child for child, (parent, _) in table.items() if parent in generation}
        found.update({child: table[child][1] for child in generation})
    return found


def gone(processes: dict[int, str], seconds: float = 60) -> bool:
    """Whether all of them end within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        table = parents()
        if not any(table.get(process, (0, ""))[1] == began for process, began in processes.items()):
            return True
        time.sleep(0.02)
    return False
