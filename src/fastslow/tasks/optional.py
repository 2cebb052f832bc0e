"""Packages that only some tasks need."""

from importlib.util import find_spec
from pathlib import Path

from fastslow.errors import TaskError


def require_package(task: str, module: str, package: str, extra: str = "tasks") -> Path:
    """The folder of an optional package, found without importing it; missing, it is one error with the line to type."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise TaskError(
            f"task '{task}' needs the package {package}, which is not installed; "
            f"install the task families' packages with: pip install 'fastslow[{extra}]'"
        )
    return Path(next(iter(spec.submodule_search_locations)))
