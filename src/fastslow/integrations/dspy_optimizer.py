"""Fast-Slow Training as a dspy optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.terminal import without_bars
from fastslow.integrations.dspy_model import dspy_lm
from fastslow.launch.assembly import find_world, open_snapshot
from fastslow.launch.start import resume, train
from fastslow.recipe import GIVEN, Recipe, make_recipe
from fastslow.runs.folder import RunFolder, default_folder
from fastslow.tasks.adapters.dspy_program import DSPyTask, Metric, dspy


class FastSlow(dspy.teleprompt.Teleprompter):
    """Trains a model's weights while it evolves the program's instructions; a replacement for dspy.GEPA.

        optimizer = fastslow.FastSlow(metric, recipe={"model": "Qwen/Qwen2.5-1.5B-Instruct"}, folder="runs/mine")
        program = optimizer.compile(program, trainset=trainset, valset=valset)

    The metric is the same as for dspy.GEPA. The recipe is a mapping, a `Recipe` or the path of a YAML file; its task is
    replaced by the program. `compile` returns the program with the instructions of the context that was best on training
    problems, bound to the trained model, and writes them to `FOLDER/program.json`. docs/dspy.md says how to use it further.
    """

    def __init__(
        self, metric: Metric, recipe: Recipe | Mapping[str, Any] | str | Path, folder: str | Path | None = None
    ) -> None:
        super().__init__()
        self.metric, self.recipe = metric, make_recipe({"task": GIVEN}, recipe)
        self.folder = default_folder(self.recipe, "dspy") if folder is None else Path(folder)

    def compile(
        self,
        student: dspy.Module,
        *,
        trainset: Sequence[dspy.Example],
        teacher: None = None,
        valset: Sequence[dspy.Example] | None = None,
    ) -> dspy.Module:
        """Train, or resume if the folder holds a run of the same recipe; without a valset, evaluations use the trainset."""
        if teacher is not None:
            raise TaskError(f"teacher={type(teacher).__name__}, but FastSlow takes no teacher; remove it")
        task = DSPyTask(student, self.metric, trainset, valset)
        with without_bars():
            if (self.folder / "run.json").exists() and RunFolder.open(self.folder).recipe == self.recipe:
                resume(self.folder, task=task)
            else:
                train(self.recipe, self.folder, task=task)
        program = task.program_under(open_snapshot(self.folder).pool.best.context.texts)
        if find_world(self.recipe).main:
            program.save(self.folder / "program.json")
        program.set_lm(dspy_lm(self.folder))
        return program
