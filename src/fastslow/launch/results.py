"""A run as a Python object: its results as DataFrames, its best prompt, its model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.base.errors import RunError
from fastslow.base.terminal import without_bars
from fastslow.base.text import number
from fastslow.engine.kind import find_engine
from fastslow.launch.assembly import AtStep, open_snapshot
from fastslow.launch.evaluate import evaluate_run
from fastslow.launch.export import Dtype, export_run
from fastslow.recipe import Recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import Frames
from fastslow.runs.lineage import best_context
from fastslow.runs.trust import require_trust
from fastslow.tasks.base import Split, Task

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from fastslow.study.report import ComparedRuns


class Run(Frames, os.PathLike[str]):
    """A run folder, finished or not. Every property reads the folder anew, so a run can be watched while it trains.

        run = fastslow.Run("runs/mine")
        run.evaluations.plot(x="step", y="mean")
        print(run.best_prompt)
        model, tokenizer = run.load_model()

    A `Run` is also the path of its folder: `run / "recipe.yaml"`, `Path(run)`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        run = RunFolder.open(folder)
        self.path = run.path
        super().__init__(run)

    # The folder -------------------------------------------------------------------------------------------------------

    @cached_property
    def recipe(self) -> Recipe:
        """What was run, with every default filled in."""
        return self._folder.recipe

    @property
    def status(self) -> str:
        """running, finished, interrupted, stopped (it could not learn) or failed."""
        return str(self._folder.info.get("status", "unknown"))

    @property
    def error(self) -> str | None:
        """What ended a run that failed or was interrupted."""
        found = self._folder.info.get("error")
        return None if found is None else str(found)

    @property
    def step(self) -> int:
        """The last step that was evaluated, trained or saved."""
        rows = [*self._folder.rows("metrics")[-1:], *self._folder.rows("evals")[-1:]]
        return max([int(row["step"]) for row in rows] + [int(self._folder.info.get("steps", 0))])

    # What the run made ------------------------------------------------------------------------------------------------

    @property
    def best_prompt(self) -> str:
        """The text of the best context. A task with several components has several: see `best_prompts`."""
        texts = self.best_prompts
        if len(texts) > 1:
            raise RunError(
                f"'{self.path}' has a text for each of {', '.join(texts)}; use best_prompts, a dict by component"
            )
        return next(iter(texts.values()))

    @property
    def best_prompts(self) -> dict[str, str]:
        """The texts of the best context, by component: the best by score on training problems, of the newest cycle
        or, in a run that fell, of the best checkpoint's."""
        return best_context(self._folder).texts

    def load_model(
        self, step: AtStep = None, *, device: str = "auto", trust: bool = False
    ) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The model with its adapter merged, and its tokenizer: of the best checkpoint by training reward, which is the last
        unless the run fell, or of a step, or of the "last".

        The chat template is the model's own: put `best_prompt` into the system message, or use `export`, which puts it into
        the template. `trust` allows a folder that was made elsewhere to execute the code of its model.
        """
        snapshot = open_snapshot(self.path, step)
        if not find_engine(self.recipe).local:
            raise RunError(
                f"the weights of '{self.path}' are on the server of engine.kind={self.recipe.engine.kind}, not in the folder"
            )
        if self.recipe.model.trust_remote_code:
            require_trust(self.path, self.recipe, trust)
        from fastslow.models.load import load_trained_to_ask  # torch takes seconds to import

        with without_bars():
            return load_trained_to_ask(self.recipe.model, snapshot.weights, device)

    def export(
        self,
        target: str | os.PathLike[str],
        step: AtStep = None,
        *,
        dtype: Dtype | None = None,
        trust: bool = False,
    ) -> Path:
        """Write the model as a Hugging Face folder, with the best context in its chat template (`fastslow export`). Weights
        are written as they were trained, or rounded to `dtype`: float32, bfloat16 or float16."""
        return export_run(self.path, Path(target), step, dtype=dtype, trust=trust)

    @without_bars()
    def evaluate(
        self,
        step: AtStep = None,
        *,
        k: int = 8,
        split: Split = "validation",
        task: Task | None = None,
        trust: bool = False,
    ) -> pd.DataFrame:
        """mean@k and best@k under the best context and the seed text (`fastslow eval`). A run whose task was given as an
        object needs it again."""
        import pandas as pd

        scores = evaluate_run(self.path, step=step, k=k, split=split, task=task, trust=trust)
        rows = [{"label": label, **asdict(score)} for label, score in scores.items()]
        return pd.DataFrame(rows).rename(columns={"context": "context_id", "label": "context"})

    @without_bars()
    def internalize(
        self,
        out: str | os.PathLike[str] | None = None,
        step: AtStep = None,
        *,
        also: Mapping[str, Any] | None = None,
        task: Task | None = None,
        trust: bool = False,
        **settings: Any,
    ) -> dict[str, Any]:
        """Train the weights to do without the text what they do with it (`fastslow internalize`), and return the rewards
        before and after. `out` is a new folder, `internalized` in the run's by default; `also` a task, as in a recipe, to
        measure forgetting on. `settings` are those of the command: epochs, batch, learning_rate, …"""
        from fastslow.launch.internalize import Settings, internalize_run

        if unknown := settings.keys() - {each.name for each in fields(Settings)}:
            known = ", ".join(each.name for each in fields(Settings))
            raise RunError(f"internalize has no setting {', '.join(sorted(unknown))}; expected some of {known}")
        chosen = Settings(**settings)
        return internalize_run(self.path, out, chosen, step=step, also=also, task=task, trust=trust)  # type: ignore[arg-type]

    # With other runs --------------------------------------------------------------------------------------------------

    def compare(
        self, *others: str | os.PathLike[str], baseline: str | None = None, rollouts: int | None = None
    ) -> ComparedRuns:
        """Compare with other runs, as `fastslow compare` does. Runs that differ only in their seed are one arm.

        `baseline` is the arm or method that the others are compared with, by default RL only. `rollouts` truncates every run
        at so many rollouts.
        """
        from fastslow.study.report import compare  # scipy takes a second to import

        return compare([self.path, *map(Path, others)], baseline, rollouts)

    def plot(self) -> Any:
        """Reward by steps, rollouts, tokens and time, as a matplotlib Figure that a notebook shows."""
        return self.compare().plot()

    # How it is shown --------------------------------------------------------------------------------------------------

    def _essentials(self) -> dict[str, str]:
        recipe, evaluated = self.recipe, self._folder.rows("evals")
        tasks = " + ".join(task.name for task in recipe.tasks)
        shown = {
            "run": str(self.path),
            "status": self.status + (f": {self.error}" if self.error else ""),
            "recipe": f"{recipe.method}, model {recipe.model.name}, task {tasks}, seed {recipe.seed}",
        }
        best, last = self._folder.info.get("best"), self._folder.info.get("checkpoint")
        if best != last:
            shown["best"] = f"step {best} by training reward, ended at step {last}"
        if not evaluated:
            return shown
        first, last = evaluated[0], evaluated[-1]
        for label, result in last["results"].items():
            before = first["results"].get(label) or first["results"].get("seed")
            start = f"{number(before['mean'])} -> " if before and last is not first else ""
            shown[f"validation ({label})"] = start + number(result["mean"])
        shown["step"] = f"{last['step']}, {number(last['rollouts_slow'] + last['rollouts_fast'])} training rollouts"
        return shown

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self._essentials().items())

    def _repr_html_(self) -> str:
        texts: dict[str, str] = {}
        with suppress(RunError):  # a run that has only just begun has none
            texts = self.best_prompts
        rows = [f"<tr><td>{escape(key)}</td><td>{escape(shown)}</td></tr>" for key, shown in self._essentials().items()]
        prompts = [f"<p>best prompt ({escape(key)})</p><pre>{escape(text)}</pre>" for key, text in texts.items()]
        return f"<table>{''.join(rows)}</table>{''.join(prompts)}"

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path.resolve() == other.path.resolve()

    def __hash__(self) -> int:
        return hash(self.path.resolve())
