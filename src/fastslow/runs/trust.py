"""Whose code a run folder executes.

A recipe can name code: graders, reward functions, tasks, losses, optimizers, reflectors and engines in Python, environments,
models with code of their own. Reading a run folder executes none of it. Runs that were started on this machine are remembered
in the user's cache folder; nobody else's folder is. Commands that would execute what a folder names ask for `--trust` if the
folder is not remembered.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from fastslow.base.errors import RunError
from fastslow.base.text import one_line
from fastslow.recipe import Recipe, load_parts
from fastslow.recipe.parts import Part

_CODE_OPTIONS = ("grader", "rewards", "environment", "agent", "command", "tests", "tools", "code", "script")
_LONGEST = 1000
"""Characters of a value that are shown: the user is asked to read that file, so its path must be whole."""


def code_of(recipe: Recipe) -> list[str]:
    """What a run of the recipe executes beside fastslow and its libraries, as KEY=VALUE."""
    found = ["model.trust_remote_code=true"] if recipe.model.trust_remote_code else []
    for task in recipe.tasks:
        if ":" in task.name or task.name.startswith("verifiers/"):
            found.append(f"task={one_line(task.name, _LONGEST)}")
        found += [
            f"task.{key}={one_line(task.options[key], _LONGEST)}" for key in _CODE_OPTIONS if task.options.get(key)
        ]
    return found + [f"{key}={one_line(part.name, _LONGEST)}" for key, part in _named_parts(recipe)]


def _named_parts(recipe: Recipe) -> list[tuple[str, Part]]:
    """The parts that are Python objects."""
    return [(key, part) for key, part in recipe.parts() if ":" in part.name]


def remember(folder: Path, recipe: Recipe) -> None:
    """Note that this user started the run of a folder. Without a writable cache folder nothing is remembered."""
    if code_of(recipe):
        note = _note(folder)
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(_fingerprint(recipe))
        except OSError:
            return


def require_trust(folder: Path, recipe: Recipe, trust: bool) -> Recipe:
    """The recipe with the code of its parts loaded. Raise if the folder names code, was not made here, and the user does not
    say that it can be trusted."""
    named = code_of(recipe)
    if trust:
        remember(folder, recipe)
    if not named or trust or _is_remembered(folder, recipe):
        return load_parts(recipe)
    raise RunError(
        f"'{folder}' was not made by you on this machine, and its recipe executes code: {', '.join(named)}; read that code "
        "first, and repeat the command with --trust if you trust it"
    )


def _is_remembered(folder: Path, recipe: Recipe) -> bool:
    try:
        return _note(folder).read_text() == _fingerprint(recipe)
    except OSError:
        return False


def _note(folder: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return cache / "fastslow" / "runs" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()


def _fingerprint(recipe: Recipe) -> str:
    """A change of the tasks, of the model or of the parts that are objects would execute other code."""
    settings: list[Any] = [recipe.model.name, recipe.model.trust_remote_code]
    settings += [(task.name, sorted(task.options.items(), key=str)) for task in recipe.tasks]
    settings += [(key, part.name, sorted(part.options.items(), key=str)) for key, part in _named_parts(recipe)]
    return hashlib.sha256(repr(settings).encode()).hexdigest()
