"""Training from Python: `train` and `resume`, which return the run."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fastslow.base.errors import FastSlowError, RecipeError, RunError
from fastslow.base.terminal import without_bars
from fastslow.launch import start
from fastslow.launch.results import Run
from fastslow.recipe import (
    GIVEN,
    EvaluationRecipe,
    FastRecipe,
    GradingRecipe,
    ModelRecipe,
    OutputRecipe,
    Part,
    Recipe,
    SamplingRecipe,
    SlowRecipe,
    make_recipe,
)
from fastslow.recipe.model import Method
from fastslow.runs.folder import default_folder, folder_path
from fastslow.runs.view import View
from fastslow.tasks.adapters.dataset import Grader, RowsTask
from fastslow.tasks.base import Task

PathLike = str | os.PathLike[str]
Settings = Mapping[str, Any]


def train(
    recipe: Recipe | PathLike | Settings | None = None,
    folder: PathLike | None = None,
    view: View | None = None,
    *,
    model: str | ModelRecipe | Settings | None = None,
    task: Any = None,
    grader: Grader | None = None,
    method: Method | None = None,
    stages: Sequence[str | Settings] | None = None,
    engine: str | Part | Settings | None = None,
    slow: SlowRecipe | Settings | None = None,
    fast: FastRecipe | Settings | None = None,
    sampling: SamplingRecipe | Settings | None = None,
    grading: GradingRecipe | Settings | None = None,
    evaluation: EvaluationRecipe | Settings | None = None,
    output: OutputRecipe | Settings | None = None,
    rollouts: int | None = None,
    seed: int | None = None,
    **dotted: Any,
) -> Run:
    """Train and return the run.

        run = fastslow.train(model="nano", task="rulebook", slow={"steps": 3}, folder="runs/mine")
        run = fastslow.train(model="Qwen/Qwen2.5-1.5B-Instruct", task=rows, grader=grade)
        run = fastslow.train("recipe.yaml", seed=1, **{"slow.steps": 100})
        run = fastslow.train(fastslow.load_recipe("recipe.yaml"), "runs/mine")

    The keywords are the sections of a recipe (docs/recipe.md), each a mapping; a dotted key sets one value. They are laid
    over `recipe`, which may be a `Recipe`, a mapping or the path of a YAML file. `task` is the name of a task, a mapping with
    its name and options, a `fastslow.Task`, or, with a `grader`, rows: a list of dicts, a `datasets.Dataset` or a DataFrame.
    `folder` is a new run folder, by default `runs/TASK-METHOD-seedN`. `view` receives the events of the run; by default a
    live view is shown.
    """
    given = task
    if grader is not None:
        if task is None or isinstance(task, Task | str):
            raise RecipeError(
                f"grader is given, but task is {type(task).__name__}; with a grader, task holds the rows: a list of dicts, a "
                "datasets.Dataset or a DataFrame"
            )
        given = RowsTask(task, grader)
    played = given if isinstance(given, Task) else None
    sections = {
        "model": model, "method": method, "task": GIVEN if played else given, "stages": stages, "engine": engine,
        "slow": slow, "fast": fast, "sampling": sampling, "grading": grading, "evaluation": evaluation, "output": output,
        "rollouts": rollouts, "seed": seed,
    }  # fmt: skip
    settings = {key: value for key, value in sections.items() if value is not None} | dotted
    resolved = recipe if isinstance(recipe, Recipe) and not settings else make_recipe(settings, recipe)
    place = default_folder(resolved, _name(recipe, played, resolved)) if folder is None else folder_path(folder)
    with _in_few_lines(), one_at_a_time(), without_bars():
        return Run(start.train(resolved, place, view, task=played))


def resume(
    folder: PathLike,
    view: View | None = None,
    *,
    task: Task | None = None,
    overrides: Sequence[str] = (),
    step: int | None = None,
    trust: bool = False,
    other_data: bool = False,
) -> Run:
    """Resume an interrupted run from its newest checkpoint, with the same result as an uninterrupted run.

    A run whose task was given as an object needs it again. `overrides` may change the settings that only fit the run to a
    machine, as in `["slow.microbatch=4"]`, and those that limit graders, and raise those that say when the run ends, which
    extends a finished one. `step` chooses another checkpoint; 0 starts over. `trust` allows a folder that was made elsewhere
    to execute the code it names. A run whose problems or grader have changed is refused, unless `other_data`.
    """
    place = folder_path(folder)
    with _in_few_lines(), one_at_a_time(), without_bars():
        return Run(
            start.resume(place, view, task=task, overrides=overrides, step=step, trust=trust, other_data=other_data)
        )


class _in_few_lines(AbstractContextManager[None]):
    """An error of ours says in a line what to do, and leaves without the frames that it came through; what caused it stays.
    A generator would put them back."""

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, FastSlowError):
            raise error.with_traceback(None)


_TURN = threading.Lock()
_INSIDE = ContextVar("inside a run", default=False)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Runs of several threads take turns: they share the device, the event loop and the generators of random numbers."""
    if _INSIDE.get():
        raise RunError("a run was started inside another one, in its grader, say; start it in a process of its own")
    inside = _INSIDE.set(True)
    try:
        with _TURN:
            yield
    finally:
        _INSIDE.reset(inside)


def _name(recipe: Any, task: Task | None, resolved: Recipe) -> str:
    """What a run folder is called after: the recipe's file, or the task."""
    if isinstance(recipe, str | os.PathLike):
        return Path(recipe).stem
    name = type(task).__name__ if task is not None else resolved.tasks[0].name
    return re.sub(r"[^\w.]+", "-", name).strip("-").lower()
