"""Cached folders, made once per key in the user's cache directory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fastslow.base.errors import FastSlowError
from fastslow.base.text import one_line


def made_once(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The cache folder `kind/key`; `make` fills it if it does not exist.

    It is written under a temporary name and then renamed, so a killed or concurrent process never leaves a partial folder.
    """
    target = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fastslow" / kind / key
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".writing-"))
    except OSError as error:
        raise FastSlowError(
            f"the cache folder '{target.parent}' cannot be written ({one_line(error)}); "
            "set XDG_CACHE_HOME to a writable folder"
        ) from None
    try:
        make(temporary)
        try:
            temporary.rename(target)
        except OSError:
            if not target.exists():  # else another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target
