"""Things made once and found again: folders in the user's cache, named by what they were made from."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fastslow.errors import FastSlowError
from fastslow.text import one_line


def made_once(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `kind/key` of the cache, filled by `make` where it is not there yet.

    It is written aside and renamed into place, so that a killed or a second process never leaves half a folder.
    """
    target = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fastslow" / kind / key
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=".writing-"))
    except OSError as error:
        raise FastSlowError(
            f"the cache folder '{target.parent}' cannot be written ({one_line(error)}); "
            "set XDG_CACHE_HOME to a folder that can"
        ) from None
    try:
        make(aside)
        try:
            aside.rename(target)
        except OSError:
            if not target.exists():  # else another process of the run was quicker
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target
