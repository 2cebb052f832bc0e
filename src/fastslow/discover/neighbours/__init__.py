"""Problems written for OpenEvolve and for gepa's `optimize_anything`, unchanged, and results in their formats.

A copy of their problem gets a problem file beside it, whose `goal`, `seed` and `evaluate` are made from theirs. So it is
loaded and scored in the sandbox like any other.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

FILE = "fastslow_problem.py"
_STARTS_PROCESSES = re.compile(r"subprocess|multiprocessing|ProcessPool|os\.system|Popen|joblib", re.IGNORECASE)


@dataclass(frozen=True)
class Neighbour:
    """A problem of another library."""

    folder: Path
    """What it needs, itself among it."""
    file: Path
    """Where the problem file goes, in that folder."""
    source: str
    """The problem file."""


def find(place: Path) -> Neighbour | None:
    """A folder with OpenEvolve's `evaluator.py` and `initial_program`, or a script that calls `optimize_anything`, or its
    folder."""
    if place.is_dir():
        if not (place / "evaluator.py").is_file() or not any(place.glob("initial_program.*")):
            scripts = [found for file in sorted(place.glob("*.py")) if (found := find(file))]
            return scripts[0] if len(scripts) == 1 else None
        return _neighbour(place, place, "openevolve", "openevolve.problem(Path(__file__).parent)")
    if place.suffix != ".py" or not place.is_file():
        return None
    text = place.read_text(encoding="utf-8", errors="replace")
    if not re.search(r"\boptimize_anything\s*\(", text) or re.search(r"^goal\s*=", text, re.MULTILINE):
        return None
    call = f"optimize_anything.problem(Path(__file__).parent / {place.name!r})"
    return _neighbour(_root(place, text), place.parent, "optimize_anything", call)


def let_start_python() -> None:
    """Let an evaluator start `sys.executable` with the packages that are found here; in the sandbox, environments are not."""
    if not os.path.exists(sys.executable):  # of a virtual environment, whose folder is not there
        sys.executable = os.path.join(
            sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"
        )
    os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in sys.path if folder)


def _root(script: Path, text: str) -> Path:
    """The folder of a script, or of the package that it imports from and is part of (`from examples.x import y`)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return script.parent
    imported = {
        node.module.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    }
    return next((folder for folder in script.resolve().parents if folder.name in imported), script.parent)


def _neighbour(folder: Path, beside: Path, kind: str, call: str) -> Neighbour:
    folder, beside = folder.resolve(), beside.resolve()
    processes = any(_STARTS_PROCESSES.search(file.read_text(errors="replace")) for file in beside.rglob("*.py"))
    source = f"from pathlib import Path\n\nfrom fastslow.discover.neighbours import {kind}\n\n"
    return Neighbour(
        folder, beside.relative_to(folder) / FILE, f"{source}processes = {processes}\nglobals().update({call})\n"
    )
