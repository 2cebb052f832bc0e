"""The trackers of a run (`output.report_to`), by accelerate's tracker classes; for any engine, on the main process."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from fastslow.base.errors import RecipeError, RunError, cause
from fastslow.base.text import one_line
from fastslow.recipe import Recipe, dump_recipe, flat

PROJECT = "huggingface"
"""The project that transformers and TRL use too, so that their runs and ours can be compared."""


def check_trackers(names: Sequence[str]) -> None:
    """Reject trackers that are not installed or that accelerate does not support."""
    if not names:
        return
    from accelerate.tracking import get_available_trackers

    known = [str(kind) for kind in get_available_trackers()]
    if missing := [name for name in names if name not in known]:
        raise RecipeError(
            f"output.report_to names {', '.join(missing)}, which is not installed or not supported by accelerate; install "
            f"it, or use an available tracker: {', '.join(known) or 'none'}"
        )


class Trackers:
    """Starts the named trackers with the recipe as their configuration; one that cannot start raises, one that fails later
    warns once and gets no more numbers."""

    def __init__(self, names: Sequence[str], folder: Path, recipe: Recipe, warn: Callable[[str], None]) -> None:
        self._started: dict[str, Any] = {}
        self._warn = warn
        # As recipe.yaml has it, without secrets, as values that every tracker takes.
        stored = flat(yaml.safe_load(dump_recipe(recipe))) if names else {}
        settings = {
            key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in stored.items()
        }
        for name in names:
            try:
                tracker = _make(name, folder)
                tracker.start()
                self._started[name] = tracker
                tracker.store_init_configuration(settings)
            except Exception as error:
                self.close()
                raise RunError(
                    f"output.report_to={name}: the tracker did not start: {one_line(cause(error))}; set it up, or remove it "
                    "from output.report_to"
                ) from error

    def log(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Send those numbers that are finite; names are the ones that transformers' callbacks give them."""
        finite = {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}
        prefixed = {f"train/{name}": value for name, value in finite.items()}
        plain = {re.sub(r"[^0-9A-Za-z_\-. :/]", "_", name): value for name, value in finite.items()}
        for name, tracker in list(self._started.items()):
            try:
                tracker.log(plain if name == "mlflow" else prefixed, step=step)
            except Exception as error:
                del self._started[name]
                self._warn(f"the tracker {name} has failed and gets no more numbers: {one_line(cause(error))}")

    def close(self) -> None:
        for name, tracker in self._started.items():
            try:
                tracker.finish()
            except Exception as error:
                self._warn(f"the tracker {name} was not closed: {one_line(cause(error))}")
        self._started = {}


def _make(name: str, folder: Path) -> Any:
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState(cpu=True)  # accelerate's log needs it; an engine that trains here has made its own before
    kind = LOGGER_TYPE_TO_CLASS[name]
    if name == "tensorboard":
        begun = f"{datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}"
        return kind("", os.environ.get("TENSORBOARD_LOGGING_DIR") or folder / "runs" / begun)
    if name == "mlflow":
        return kind("Default", run_name=folder.name)
    project = os.environ.get(f"{name.upper()}_PROJECT", PROJECT)
    if name in ("wandb", "trackio"):
        return kind(project, name=folder.name)
    return kind(project, folder) if kind.requires_logging_directory else kind(project)
