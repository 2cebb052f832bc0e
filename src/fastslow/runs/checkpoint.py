"""Checkpoints: written to a temporary folder, hashed, then renamed, so that each is complete or absent."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

from fastslow.base.errors import RunError
from fastslow.runs import files

MANIFEST, WITNESS = "manifest.json", "run-files.json"
"""The hashes of a checkpoint's own files, and of the run's files when it was saved."""
WITNESSED = (
    *("metrics.jsonl", "evals.jsonl", "ledger.jsonl", "candidates.jsonl", "contexts/cycle-*.json"),
    *("rollouts/step-*.parquet", "rollouts/cycle-*.parquet"),
)
REMOVING = ".removing-"
"""Name prefix of a checkpoint that is being removed: it is renamed first, so that no reader sees a partial one."""


class Checkpoints:
    """The checkpoints of a run. The main process calls `begin`, all processes write their files to `temporary(step)`, and the
    main one calls `commit` when all are done, or `abandon` if one has failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def temporary(self, step: int) -> Path:
        return self.folder / f"{files.TEMPORARY}{_name(step)}"

    def begin(self, step: int) -> Path:
        """Create an empty folder for the files of a new checkpoint."""
        path = self.temporary(step)
        try:
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(parents=True)
        except OSError as error:
            raise self._not_saved(step, error) from error
        return path

    def commit(self, step: int, scheduled: bool = True) -> Path:
        """Add a manifest and rename the folder into place; it replaces any earlier checkpoint of that step. One that no
        schedule asked for says so in its manifest."""
        unfinished, path = self.temporary(step), self.folder / _name(step)
        try:
            contents = [file for file in sorted(unfinished.rglob("*")) if file.is_file()]
            listed = {str(file.relative_to(unfinished)): _fingerprint(file) for file in contents}
            manifest = {"step": step, "files": listed, **({} if scheduled else {"scheduled": False})}
            files.write_json(unfinished / MANIFEST, manifest)
            for written in (*contents, *(folder for folder in unfinished.rglob("*") if folder.is_dir()), unfinished):
                files.sync(written)
            replaced = self._swap(unfinished, path)
            files.sync(self.folder)
        except Exception as error:
            self.abandon(step)
            raise self._not_saved(step, error) from error
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)
        return path

    def abandon(self, step: int) -> None:
        """Delete an unfinished checkpoint and free its disk space."""
        shutil.rmtree(self.temporary(step), ignore_errors=True)

    def steps(self) -> list[int]:
        names = (path.name.removeprefix("step-") for path in self.folder.glob("step-*") if path.is_dir())
        return sorted(int(name) for name in names if name.isdecimal())

    def latest(self) -> tuple[int, Path] | None:
        """The newest checkpoint, None if there is none; raises if it is damaged."""
        steps = self.steps()
        return (steps[-1], self.get(steps[-1])) if steps else None

    def get(self, step: int) -> Path:
        """The checkpoint of a step, checked against its manifest."""
        steps = self.steps()
        if step not in steps:
            existing = f"there are {', '.join(map(str, steps))}" if steps else "there are none"
            raise RunError(f"no checkpoint of step {step} in '{self.folder}'; {existing}")
        path = self.folder / _name(step)
        damage = find_damage(path)
        if damage is not None:
            others = ", ".join(str(other) for other in steps if other != step)
            advice = f"choose another with --step ({others})" if others else "there is no other; restore it from a copy"
            raise RunError(f"the checkpoint of step {step}, '{path}', is damaged: {damage}; {advice}")
        return path

    def prune(self, keep: int | None, stay: Container[int] = ()) -> None:
        """Remove those that no schedule asked for, and all but the newest `keep` of the others; None keeps all of them.
        Those that must `stay` do."""
        for step in self.steps():
            if step not in stay and not self._scheduled(step):
                self.remove(step)
        if keep is not None:
            for step in self.steps()[:-keep]:
                if step not in stay:
                    self.remove(step)

    def _scheduled(self, step: int) -> bool:
        try:
            return (files.read_json(self.folder / _name(step) / MANIFEST) or {}).get("scheduled") is not False
        except RunError:
            return True  # damaged: not ours to remove

    def rewind(self, step: int) -> None:
        """Remove the checkpoints after a step, and unfinished ones."""
        for later in self.steps():
            if later > step:
                self.remove(later)
        with files.explained(self.folder):
            for prefix in (files.TEMPORARY, REMOVING):
                for leftover in self.folder.glob(prefix + "*"):
                    shutil.rmtree(leftover)

    def _swap(self, unfinished: Path, path: Path) -> Path | None:
        """Rename a folder into place; return the new path of the one it replaces, if any."""
        if not path.exists():
            unfinished.rename(path)
            return None
        replaced = self._mark_for_removal(path)
        try:
            unfinished.rename(path)
        except OSError:
            replaced.rename(path)
            raise
        return replaced

    def remove(self, step: int) -> None:
        path = self.folder / _name(step)
        with files.explained(path):
            shutil.rmtree(self._mark_for_removal(path))

    def _mark_for_removal(self, path: Path) -> Path:
        marked = path.with_name(REMOVING + path.name)
        if marked.exists():
            shutil.rmtree(marked)
        return path.rename(marked)

    def _not_saved(self, step: int, error: Exception) -> RunError:
        existing = ", ".join(map(str, self.steps())) or "none"
        return RunError(
            f"checkpoint of step {step} was not saved: {files.cause(error)}; earlier checkpoints are unchanged "
            f"({existing}); check disk space and permissions of '{self.folder}'"
        )


def find_damage(path: Path) -> str | None:
    """How a checkpoint differs from its manifest, None if it does not."""
    try:
        manifest = files.read_json(path / MANIFEST)
        return f"it has no {MANIFEST}" if manifest is None else _difference(path, manifest["files"])
    except (OSError, RunError) as error:
        return files.cause(error)
    except (KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is invalid"


def _difference(path: Path, listed: dict[str, Any]) -> str | None:
    """How the files of a checkpoint, all of them, differ from those that are listed."""
    present = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_symlink() or not file.is_dir()}
    if not listed:
        return f"{MANIFEST} lists no files"
    if unknown := sorted(present - {MANIFEST, *listed}):
        return f"{unknown[0]} is not in {MANIFEST}"
    for name, expected in listed.items():
        if not (path / name).is_file():
            return f"{name} is missing"
        # Compare the size first: hashing a large file is slow.
        if (path / name).stat().st_size != expected["size"] or _fingerprint(path / name) != expected:
            return f"{name} has changed since it was saved"
    return None


def _fingerprint(path: Path, size: int | None = None) -> dict[str, Any]:
    """The hash of a file, or of its first bytes."""
    with path.open("rb") as file:
        if size is None:
            return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}
        data = file.read(size)
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def _name(step: int) -> str:
    return f"step-{step:06d}"


def write_witness(run: Path, checkpoint: Path) -> None:
    """Note what a run folder holds, so that a resumed run does not build on rows that were lost since."""
    found = sorted(path for pattern in WITNESSED for path in run.glob(pattern))
    files.write_json(checkpoint / WITNESS, {str(path.relative_to(run)): _fingerprint(path) for path in found})


def check_witness(run: Path, checkpoint: Path) -> None:
    """Raise if a file of the run, as far as the checkpoint saw it, is missing or has changed; the logs may have grown."""
    for name, seen in (files.read_json(checkpoint / WITNESS) or {}).items():  # earlier versions have none
        path = run / name
        missing = not path.is_file()
        if missing or _fingerprint(path, seen["size"]) != seen:
            raise RunError(
                f"'{path}' {'is missing' if missing else 'has changed'} since the checkpoint '{checkpoint.name}' was saved; "
                "restore it from a copy, or resume from an earlier checkpoint with --step"
            )
