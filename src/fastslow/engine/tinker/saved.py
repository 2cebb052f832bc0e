"""The part of a checkpoint that says where the server keeps the state of the adapter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fastslow.base.errors import RunError
from fastslow.recipe import Recipe

FILE = "tinker.json"


@dataclass(frozen=True)
class Saved:
    """A state on the server; None is a new adapter."""

    state: str | None
    step: int


def write_saved(folder: Path, saved: Saved, recipe: Recipe) -> None:
    data = {"state": saved.state, "step": saved.step, "model": server_name(recipe), "rank": recipe.engine.rank}
    (folder / FILE).write_text(json.dumps(data, indent=2))


def read_saved(folder: Path, recipe: Recipe) -> Saved:
    try:
        data = json.loads((folder / FILE).read_text())
        return Saved(str(data["state"]), int(data["step"]))
    except FileNotFoundError:
        raise RunError(
            f"'{folder}' has no {FILE}: it was saved by another engine and cannot be used with engine.kind=tinker"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"'{folder / FILE}' cannot be read: {error}") from error


def server_name(recipe: Recipe) -> str:
    """The name by which the server knows the model."""
    return recipe.engine.model or recipe.model.name
