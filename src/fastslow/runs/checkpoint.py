"""Checkpoints: written aside, hashed, then renamed into place. One either is whole or is not there."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastslow.errors import RunError
from fastslow.runs import files

MANIFEST = "manifest.json"
REMOVING = ".removing-"
"""What the name of a checkpoint on its way out begins with: renamed first, so that half of one is never seen."""


class Checkpoints:
    """The checkpoints of a run.

    One process calls `write`. Where several processes fill one checkpoint, the first calls `begin`, all put their files
    into `aside(step)`, and the first calls `commit` when all are done, or `abandon` when one has failed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, step: int, fill: Callable[[Path], None]) -> Path:
        """Save what `fill` puts into the folder it is given; on any failure nothing changes but the error raised."""
        path = self.begin(step)
        try:
            fill(path)
        except Exception as error:
            self.abandon(step)
            raise self._not_saved(step, error) from error
        except BaseException:
            self.abandon(step)
            raise
        return self.commit(step)

    def aside(self, step: int) -> Path:
        """Where the files of an unfinished checkpoint go."""
        return self.folder / f"{files.ASIDE}{_name(step)}"

    def begin(self, step: int) -> Path:
        """An empty folder for the files of a new checkpoint."""
        path = self.aside(step)
        try:
            if path.exists():
                shutil.rmtree(path)
            path.mkdir(parents=True)
        except OSError as error:
            raise self._not_saved(step, error) from error
        return path

    def commit(self, step: int) -> Path:
        """Seal the folder with a manifest and put it in place of any earlier checkpoint of that step."""
        unfinished, path = self.aside(step), self.folder / _name(step)
        try:
            contents = [file for file in sorted(unfinished.rglob("*")) if file.is_file()]
            listed = {str(file.relative_to(unfinished)): _fingerprint(file) for file in contents}
            files.write_json(unfinished / MANIFEST, {"step": step, "files": listed})
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
        """Drop an unfinished checkpoint, and with it the disk space it took."""
        shutil.rmtree(self.aside(step), ignore_errors=True)

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, oldest first."""
        names = (path.name.removeprefix("step-") for path in self.folder.glob("step-*") if path.is_dir())
        return sorted(int(name) for name in names if name.isdecimal())

    def latest(self) -> tuple[int, Path] | None:
        """The newest checkpoint that is whole; damaged ones are passed over with a warning."""
        for step in reversed(self.steps()):
            path = self.folder / _name(step)
            damage = find_damage(path)
            if damage is None:
                return step, path
            warnings.warn(f"checkpoint '{path}' is damaged and passed over: {damage}", stacklevel=2)
        return None

    def get(self, step: int) -> Path:
        """The checkpoint of a step, checked against its manifest."""
        steps = self.steps()
        if step not in steps:
            existing = f"there are {', '.join(map(str, steps))}" if steps else "there are none"
            raise RunError(f"no checkpoint of step {step} in '{self.folder}'; {existing}")
        path = self.folder / _name(step)
        damage = find_damage(path)
        if damage is not None:
            others = ", ".join(str(other) for other in steps if other != step) or "none"
            raise RunError(f"checkpoint '{path}' is damaged: {damage}; use another step ({others})")
        return path

    def prune(self, keep: int | None) -> None:
        """Remove all but the newest `keep` checkpoints; None keeps all."""
        if keep is not None:
            for step in self.steps()[:-keep]:
                self._remove(step)

    def rewind(self, step: int) -> None:
        """Remove the checkpoints after a step and what unfinished ones left behind."""
        for later in self.steps():
            if later > step:
                self._remove(later)
        with files.explained(self.folder):
            for prefix in (files.ASIDE, REMOVING):
                for leftover in self.folder.glob(prefix + "*"):
                    shutil.rmtree(leftover)

    def _swap(self, unfinished: Path, path: Path) -> Path | None:
        """Put a folder in its place; returns where the one it replaces was put."""
        if not path.exists():
            unfinished.rename(path)
            return None
        replaced = self._put_away(path)
        try:
            unfinished.rename(path)
        except OSError:
            replaced.rename(path)
            raise
        return replaced

    def _remove(self, step: int) -> None:
        path = self.folder / _name(step)
        with files.explained(path):
            shutil.rmtree(self._put_away(path))

    def _put_away(self, path: Path) -> Path:
        away = path.with_name(REMOVING + path.name)
        if away.exists():
            shutil.rmtree(away)
        return path.rename(away)

    def _not_saved(self, step: int, error: Exception) -> RunError:
        existing = ", ".join(map(str, self.steps())) or "none"
        return RunError(
            f"checkpoint of step {step} was not saved: {files.cause(error)}; earlier checkpoints are untouched "
            f"({existing}); check the space and the permissions of '{self.folder}'"
        )


def find_damage(path: Path) -> str | None:
    """What of a checkpoint differs from its manifest, None when nothing does."""
    try:
        manifest = files.read_json(path / MANIFEST)
        if manifest is None:
            return f"it has no {MANIFEST}"
        for name, expected in manifest["files"].items():
            if not (path / name).is_file():
                return f"{name} is missing"
            # The size first: it is free, and hashing a large file is not.
            if (path / name).stat().st_size != expected["size"] or _fingerprint(path / name) != expected:
                return f"{name} is not the file that was saved"
    except (OSError, RunError) as error:
        return files.cause(error)
    except (KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is not a manifest"
    return None


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": path.stat().st_size}


def _name(step: int) -> str:
    return f"step-{step:06d}"
