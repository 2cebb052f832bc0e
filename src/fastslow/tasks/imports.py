"""What a recipe names and Python imports: graders and tasks as `module:name` or `file.py:name`, and optional packages."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line


def load_named(what: str, name: str) -> Any:
    """The object `module:name`, from the current folder or from what is installed, or `file.py:name`."""
    module_name, _, object_name = name.rpartition(":")
    if not module_name or not object_name:
        raise TaskError(f"{what} '{name}' is not MODULE:NAME, e.g. my_module:my_{what}")
    file = Path(module_name) if module_name.endswith(".py") else None
    folder = str(file.parent.resolve()) if file else os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)  # last, so that a file lying about in the folder never replaces a library
    try:
        module = _import_file(file.resolve(), file.stat().st_mtime_ns) if file else importlib.import_module(module_name)
    except FileNotFoundError:
        where = "" if Path(module_name).is_absolute() else f" in {os.getcwd()} or beside the recipe"
        raise TaskError(
            f"{what} '{name}': there is no file '{module_name}'{where}; put it there, or correct the name"
        ) from None
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise TaskError(
                f"{what} '{name}': module '{module_name}' needs '{error.name}': {one_line(error)}"
            ) from error
        raise TaskError(
            f"{what} '{name}': there is no module '{module_name}' in {os.getcwd()}, beside the recipe or installed; "
            "put it there, or correct the name"
        ) from None
    except KeyboardInterrupt:
        raise
    except (
        BaseException
    ) as error:  # somebody else's code; `sys.exit` in it must not end the command as if all were well
        raise TaskError(
            f"{what} '{name}': importing '{module_name}' failed with {type(error).__name__}: {one_line(error)}"
        ) from error
    where = getattr(module, "__file__", None) or module_name
    try:
        return getattr(module, object_name)
    except AttributeError:
        raise TaskError(
            f"{what} '{name}': {where} has no '{object_name}'; define it there or correct the name"
        ) from None


def require_package(task: str, module: str, package: str, extra: str = "tasks") -> Path:
    """The folder of a package that only some tasks need, found without importing it; an error says how to install it."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise TaskError(
            f"task '{task}' needs the package {package}, which is not installed; "
            f"install the task families' packages with: pip install 'fastslow[{extra}]'"
        )
    return Path(next(iter(spec.submodule_search_locations)))


@functools.cache
def _import_file(file: Path, _changed: int) -> ModuleType:
    """Once for all the names a recipe takes from it, and again when the file has changed."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None, "a .py file always has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
