"""Parts found by name: built-in ones, those of installed packages with an entry point in a group, and Python objects as
`module:Name` or `file.py:Name`."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from fastslow.base.errors import FastSlowError, RecipeError, TaskError
from fastslow.base.text import one_line


@dataclass(frozen=True)
class Registry:
    """The parts of one group."""

    what: str
    """What a part is called in messages: task, loss, engine."""
    group: str
    """The entry points of other packages."""
    built_in: Mapping[str, str]
    """`module:Name` by name; imported on demand, so that a run loads only what it uses."""
    error: type[FastSlowError] = RecipeError

    def names(self) -> list[str]:
        return [*self.built_in, *self._offered()]

    def find(self, name: str) -> Any:
        """The object of a name; an error says what is there, or what to install."""
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            try:
                return getattr(importlib.import_module(module), attribute)
            except ModuleNotFoundError as error:
                raise self.error(
                    f"{self.what} '{name}' needs the package {error.name}, which is not installed; install it with: "
                    f"pip install {error.name}"
                ) from error
        if ":" in name:
            return load_named(self.what, name, self.error)
        offered = self._offered()
        if name in offered:
            return self._load(offered[name])
        known = [*self.built_in, *offered]
        hint = did_you_mean(name, known)
        raise self.error(f"there is no {self.what} '{name}'; {hint}the {self._several} are: {', '.join(known)}")

    def described(self, name: str) -> str:
        """The part of an entry point in a message."""
        point = self._offered().get(name)
        return f"{self.what} '{name}'" + (_owner(point) + f": {point.value}" if point else "")

    @property
    def _several(self) -> str:
        return self.what + ("es" if self.what.endswith("s") else "s")

    def _offered(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group) if point.name not in self.built_in}

    def _load(self, point: EntryPoint) -> Any:
        try:
            return point.load()
        except Exception as error:  # another package's import can fail in any way
            raise self.error(
                f"{self.what} '{point.name}'{_owner(point)} cannot be loaded from {point.value} "
                f"({type(error).__name__}: {one_line(error)}); repair or uninstall that package"
            ) from error


def did_you_mean(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{near[0]}'? " if near else ""


def _owner(point: EntryPoint) -> str:
    return f" of package '{point.dist.name}'" if point.dist else ""


def load_named(what: str, name: str, refused: type[FastSlowError] = TaskError) -> Any:
    """The object `module:name`, from the current folder or from what is installed, or `file.py:name`."""
    module_name, _, object_name = name.rpartition(":")
    if not module_name or not object_name:
        raise refused(f"{what} '{name}' is not MODULE:NAME, e.g. my_module:my_{what}")
    file = Path(module_name) if module_name.endswith(".py") else None
    folder = str(file.parent.resolve()) if file else os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)  # last, so that a file lying about in the folder never replaces a library
    try:
        module = _import_file(file.resolve(), file.stat().st_mtime_ns) if file else importlib.import_module(module_name)
    except FileNotFoundError:
        where = "" if Path(module_name).is_absolute() else f" in {os.getcwd()} or beside the recipe"
        raise refused(
            f"{what} '{name}': there is no file '{module_name}'{where}; put it there, or correct the name"
        ) from None
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise refused(f"{what} '{name}': module '{module_name}' needs '{error.name}': {one_line(error)}") from error
        raise refused(
            f"{what} '{name}': there is no module '{module_name}' in {os.getcwd()}, beside the recipe or installed; "
            "put it there, or correct the name"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # `sys.exit` in somebody's code must not end the command as if all were well
        raise refused(
            f"{what} '{name}': importing '{module_name}' failed with {type(error).__name__}: {one_line(error)}"
        ) from error
    where = getattr(module, "__file__", None) or module_name
    try:
        return getattr(module, object_name)
    except AttributeError:
        raise refused(f"{what} '{name}': {where} has no '{object_name}'; define it there or correct the name") from None


@functools.cache
def _import_file(file: Path, _changed: int) -> ModuleType:
    """Once for all the names a recipe takes from it, and again when the file has changed."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None, "a .py file always has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
