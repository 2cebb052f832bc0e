"""Optional packages that some tasks need."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastslow.base.errors import TaskError


def require_package(task: str, module: str, package: str, extra: str = "tasks") -> Path:
    """The folder of a package that only some tasks need, found without importing it; an error says how to install it."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise TaskError(
            f"task '{task}' needs the package {package}, which is not installed; "
            f"install the task families' packages with: pip install 'fastslow[{extra}]'"
        )
    return Path(next(iter(spec.submodule_search_locations)))
