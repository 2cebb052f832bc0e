"""A run is a folder.

recipe.yaml (resolved) · run.json (versions, seed, status, sampler) · tags.json · metrics.jsonl · evals.jsonl ·
contexts/seed.json · contexts/cycle-0003.json · rollouts/step-000012.parquet (a step's rollouts) ·
rollouts/cycle-0003.parquet (the fast loop's) · rollouts/evaluation-000012.parquet · ledger.json (totals) · ledger.jsonl (one
row per step) · candidates.jsonl (docs/discover.md) · checkpoints/step-000050/. All files but the `.jsonl` ones are written
under a temporary name and renamed, so a reader never sees a partial file.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from fastslow.base.errors import FastSlowError, RunError, cause
from fastslow.base.text import one_line, quoted
from fastslow.recipe import Recipe, dump_recipe, read_stored_recipe, resuming
from fastslow.records import Rollout
from fastslow.runs import files
from fastslow.runs.checkpoint import Checkpoints
from fastslow.runs.lock import Lock
from fastslow.runs.rollout_files import RolloutWriter

Log = Literal["metrics", "evals", "ledger", "candidates"]
INTERNALIZED = "internalized"
"""The folder in a run folder with the result of `fastslow internalize`, and, with .json, the file in it with the numbers."""
LONGEST_NAME, MOST_FOLDERS = 255, 200
"""Bytes of the name of a file or folder, and folders in each other: Python makes them by a function that calls itself."""
TAGS = "tags.json"
"""The file in a run folder with the words by which people tell runs apart (`fastslow tag`)."""
TAG = re.compile(r"[\w.:/+-]{1,40}")
LOGS: tuple[Log, ...] = ("metrics", "evals", "ledger", "candidates")
WRITTEN = ("recipe.yaml", "ledger.json", *(f"{name}.jsonl" for name in LOGS), "contexts", "rollouts", "checkpoints")
"""What every run writes into its folder, beside run.json."""
PACKAGES = ("fastslow", "torch", "transformers", "trl", "gepa")


def default_folder(recipe: Recipe, name: str) -> Path:
    optimizer = re.sub(r"[^\w-]+", "-", Path(recipe.fast.optimizer.name).name)
    method = recipe.method if recipe.method == "rl" or optimizer == "gepa" else f"{recipe.method}-{optimizer}"
    return Path(recipe.output.folder or f"runs/{name}-{method}-seed{recipe.seed}")


class RunFolder:
    """One run on disk. Use `create` or `open`; any process may read, only the one with the lock writes."""

    def __init__(self, path: Path, lock: Lock | None = None) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.rollout_writer = RolloutWriter()
        self._lock = lock

    @classmethod
    def create(cls, path: str | Path, recipe: Recipe, data: Mapping[str, str] | None = None) -> RunFolder:
        """Create a run in a folder that holds none, and lock it; `data` are hashes of what it is trained and graded with."""
        path = Path(path)
        cls(path).refuse_existing()
        with files.explained(path):
            path.mkdir(parents=True, exist_ok=True)
        run = cls(path, Lock(path / "lock"))
        try:
            run.refuse_existing()
            run.write_recipe(recipe)
            # Last, because this file makes the folder a run.
            started = datetime.now(UTC).isoformat(timespec="seconds")
            known = {"status": "running", "started": started, "seed": recipe.seed, "versions": versions()}
            run.write_json("run.json", {**known, **({"data": data} if data else {})})
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str], lock: bool = False) -> RunFolder:
        """Open an existing run; `lock` is needed to write to it."""
        path = folder_path(path)
        if not path.is_dir():
            raise RunError(f"no run folder '{path}'; give the folder of a run made by `fastslow train`")
        for name in ("run.json", "recipe.yaml"):
            if not (path / name).is_file():
                raise RunError(
                    f"'{path}' is not a run folder: it has no {name}; give a folder made by `fastslow train`"
                )
        return cls(path, Lock(path / "lock") if lock else None)

    def refuse_existing(self) -> None:
        """Raise if the folder holds a run, or a file that a new run would overwrite, or if it cannot be made."""
        folder_path(self.path)
        there = next(each for each in (self.path.absolute(), *self.path.absolute().parents) if os.path.lexists(each))
        if not there.is_dir():
            raise RunError(f"output.folder={self.path}: '{there}' is not a folder; choose another output.folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise RunError(f"output.folder={self.path}: '{there}' is read-only; choose another output.folder")
        if (self.path / "run.json").exists():
            raise RunError(
                f"'{self.path}' already holds a run; resume it with `{self._resuming()}`, or choose another output.folder"
            )
        # Beside a lock they are of a run that was killed before it had begun.
        taken = [] if (self.path / "lock").exists() else [name for name in WRITTEN if (self.path / name).exists()]
        if taken:
            raise RunError(
                f"'{self.path}' holds {', '.join(taken)}, which a new run would write; move it away, or choose another "
                "output.folder"
            )

    def _resuming(self) -> str:
        try:
            return resuming(self.recipe, self.path)
        except FastSlowError:  # resuming says what is wrong with its recipe
            return f"fastslow train --resume {self.path}"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def recipe(self) -> Recipe:
        return read_stored_recipe(self.path / "recipe.yaml")

    def write_recipe(self, recipe: Recipe) -> None:
        files.write_bytes(self.path / "recipe.yaml", files.encode(dump_recipe(recipe)))

    def write_json(self, name: str, data: dict[str, Any], indent: int | None = 2) -> None:
        files.write_json(self.path / name, data, indent)

    def write_text(self, name: str, text: str) -> None:
        files.write_bytes(self.path / name, files.encode(text))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file of the run, None if the file does not exist."""
        return files.read_json(self.path / name)

    @property
    def info(self) -> dict[str, Any]:
        """What run.json says now; empty if it is gone."""
        return self.read_json("run.json") or {}

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """The newest checkpoint that the run has saved, None if it has saved none; raises if that is missing or damaged."""
        latest = self.checkpoints.latest()
        saved, newest = self.info.get("checkpoint", 0), latest[0] if latest else 0
        if isinstance(saved, int) and saved > newest:
            others = ", ".join(map(str, self.checkpoints.steps()))
            raise RunError(
                f"'{self.path}' has saved a checkpoint of step {saved}, which is missing; restore it from a copy"
                + (f", or choose another with --step ({others})" if others else ", or start a new run")
            )
        return latest

    def chosen_checkpoint(self, last: bool = False) -> tuple[int, Path] | None:
        """The checkpoint that commands use: the newest, unless the run has found an earlier one to be better."""
        latest, best = self.latest_checkpoint(), self.info.get("best")
        if last or latest is None or best in (None, latest[0]):
            return latest
        steps = self.checkpoints.steps()
        if not isinstance(best, int) or best not in steps:
            raise RunError(
                f"'{self.path}' names the checkpoint of step {quoted(best, 20)} as its best, which is missing; restore it "
                f"from a copy, or choose another with --step ({', '.join(map(str, steps))})"
            )
        return best, self.checkpoints.get(best)

    def set_status(self, status: str, **extra: Any) -> None:
        """Set the status and other keys in run.json, and remove an earlier error."""
        known = {key: value for key, value in self.info.items() if key != "error"}
        self.write_json("run.json", {**known, "status": status, **extra})

    @property
    def tags(self) -> list[str]:
        return [str(tag) for tag in (self.read_json(TAGS) or {}).get("tags", ())]

    def tag(self, add: Sequence[str], remove: Sequence[str] = ()) -> list[str]:
        """Add and remove tags, also while the run trains; returns those it has now."""
        for tag in add:
            if not TAG.fullmatch(tag):
                raise RunError(
                    f"{quoted(tag, 60)} cannot be a tag; expected up to 40 letters, digits or any of _ . : / + -"
                )
        tags = sorted({*self.tags, *add} - set(remove))
        self.write_json(TAGS, {"tags": tags})
        return tags

    def append(self, name: Log, row: dict[str, Any]) -> None:
        files.append_row(self._log(name), row)

    def rows(self, name: Log) -> list[dict[str, Any]]:
        return files.read_rows(self._log(name))

    def truncated(self) -> list[str]:
        """What is missing at the end of the logs, a sentence each: the rest of a line, or steps that the run made."""
        found = [
            f"'{path}' ends in the middle of a line, which was skipped"
            for path in map(self._log, LOGS)
            if files.has_partial_line(path)
        ]
        run, rows = self.info, self.rows("metrics")
        made, told = run.get("steps"), rows[-1].get("step") if rows else 0
        if self.recipe.method == "gepa":  # it makes no updates, so there is no row for a step
            return found
        if run.get("status") == "finished" and isinstance(made, int) and isinstance(told, int) and told < made:
            found.append(f"'{self._log('metrics')}' ends at step {told}, but the run made {made} steps")
        return found

    def _log(self, name: Log) -> Path:
        return self.path / f"{name}.jsonl"

    def save_cycle(self, cycle: int, data: dict[str, Any], memory: dict[str, Any] | None = None) -> None:
        """Write the journal entry of a cycle, and the rollouts it keeps for later steps, if any."""
        if memory is not None:  # first, because a cycle counts as finished once its own file exists
            files.write_packed(self.path / _memory(cycle), memory)
        self.write_json(f"contexts/cycle-{cycle:04d}.json", data, indent=None)  # evidence makes up most of it

    def cycle(self, cycle: int, with_memory: bool = False) -> dict[str, Any] | None:
        """The journal entry of a cycle, None if it does not exist or lacks the memory that `with_memory` asks for."""
        data = self.read_json(f"contexts/cycle-{cycle:04d}.json")
        if data is None or not with_memory:
            return data
        memory = files.read_packed(self.path / _memory(cycle))
        return None if memory is None else {**data, "memory": memory}

    def forget_memory(self, cycle: int) -> None:
        """Remove the memory of the cycles before this one."""
        with files.explained(self.path):
            for number, path in files.numbered(self.path / "rollouts", "cycle-*.json.gz").items():
                if number < cycle:
                    path.unlink()

    def cycles(self) -> list[dict[str, Any]]:
        found = files.numbered(self.path / "contexts", "cycle-*.json")
        return [data for number in sorted(found) if (data := files.read_json(found[number])) is not None]

    def save_rollouts(
        self,
        number: int,
        rollouts: Sequence[Rollout],
        purposes: Sequence[str] | None = None,
        advantages: Sequence[float | None] | None = None,
        *,
        of: Literal["step", "cycle", "evaluation"] = "step",
    ) -> None:
        """Write the rollouts that a step was trained on, that the fast loop played in a cycle, or those of an evaluation;
        `purposes` and `advantages` add a column each."""
        name = f"{of}-{number:04d}" if of == "cycle" else f"{of}-{number:06d}"
        self.rollout_writer.write(self.path / "rollouts" / f"{name}.parquet", rollouts, purposes, advantages)

    def rewind(self, step: int) -> int:
        """Remove everything after the checkpoint of `step`, to resume from it (-1: to start over); return the number of
        completed steps that are lost.

        Cycle files stay: they are the journal from which a resumed run reads its cycles.
        """
        seen = {max(step, 0)}

        def stays(row: dict[str, Any]) -> bool:
            seen.add(row.get("step") or 0)
            return (row.get("step") or 0) <= step

        for path in filter(Path.exists, map(self._log, LOGS)):
            files.write_rows(path, files.read_rows(path, stays))
        with files.explained(self.path):
            for kind in ("step", "evaluation"):
                for number, path in files.numbered(self.path / "rollouts", f"{kind}-*.parquet").items():
                    if number > step:
                        path.unlink()
            for folder in (self.path, self.path / "contexts", self.path / "rollouts"):
                for leftover in folder.glob(files.TEMPORARY + "*"):
                    leftover.unlink()
        self.checkpoints.rewind(step)
        return max(seen) - max(step, 0)


def folder_path(given: object) -> Path:
    """The path of a run folder; one that no file system has is refused."""
    try:
        path = Path(given)  # type: ignore[arg-type]
        path.is_dir()
        if len(path.parts) > MOST_FOLDERS:
            raise ValueError(f"it has more than {MOST_FOLDERS} folders")
        if "\0" in str(path) or max(map(len, map(os.fsencode, path.parts)), default=0) > LONGEST_NAME:
            raise ValueError(f"it has a NUL character, or a name of more than {LONGEST_NAME} bytes")
        return path
    except (TypeError, ValueError, OSError) as error:
        shown = quoted(str(given) if isinstance(given, os.PathLike) else given, 60)
        raise RunError(
            f"{shown} cannot be the path of a run folder ({one_line(cause(error), 120)}); give another"
        ) from None


def _memory(cycle: int) -> Path:
    return Path("rollouts") / f"cycle-{cycle:04d}.json.gz"


def versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


@cache
def _version(package: str) -> str | None:
    """Read from metadata because importing the packages takes seconds; once, because parsing metadata takes long too."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
