"""One process per run folder. The kernel holds the lock, so it is released however the process ends."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from fastslow.base.errors import RunError
from fastslow.runs.files import cause


class Lock:
    """An exclusive lock on a file, held until `release` or the end of the process; the file holds the process id."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        try:
            descriptor = self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode() or "unknown"
            self.release()
            raise RunError(
                f"run folder '{path.parent}' is in use by process {holder}; wait for it or stop it, or choose another "
                f"output.folder"
            ) from None
        except OSError as error:
            self.release()
            raise RunError(f"run folder '{path.parent}' cannot be locked: {cause(error)}") from error
        _held.add(self)

    def release(self) -> None:
        # Closing is enough: the last open descriptor releases the lock, and forked children have closed theirs.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.release()


_held: weakref.WeakSet[Lock] = weakref.WeakSet()


def _release_in_child() -> None:
    """Release locks in a forked worker: it may outlive a killed run and would keep the folder locked."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)
