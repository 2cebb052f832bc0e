"""What resumes a run, as its messages say it: a command, or a call where the task was given as an object."""

from __future__ import annotations

import json
import os

from fastslow.recipe.model import Recipe

GIVEN = "given"
"""The name of a task that was given as an object."""


def resuming(recipe: Recipe, folder: str | os.PathLike[str], change: str = "") -> str:
    """The line that resumes the run in a folder, with a changed setting if one is given."""
    if not any(task.name == GIVEN for task in recipe.tasks):
        return f"fastslow train --resume {folder}{change and f' {change}'}"
    overrides = f", overrides=[{json.dumps(change)}]" if change else ""
    return f"fastslow.resume({json.dumps(str(folder), ensure_ascii=False)}, task=…{overrides})"
