"""Opening a run at one of its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.base.errors import RunError, cause
from fastslow.fast.pool import Pool
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.state import STATE


@dataclass(frozen=True)
class Snapshot:
    """A run at one of its checkpoints."""

    run: RunFolder
    step: int
    path: Path
    pool: Pool

    @property
    def weights(self) -> Path | None:
        """The folder with the policy's weights; None if they are frozen."""
        return None if self.run.recipe.method == "gepa" else self.path


def open_snapshot(folder: str | Path, step: int | None = None) -> Snapshot:
    """Open a run at its newest checkpoint, or at the one of a step. A damaged checkpoint is refused, never replaced."""
    run = RunFolder.open(folder)
    if step is None:
        latest = run.latest_checkpoint()
        if latest is None:
            raise RunError(
                f"'{folder}' has no checkpoint yet; the first is saved at step {run.recipe.output.checkpoint_every}"
            )
        step, path = latest
    else:
        path = run.checkpoints.get(step)
    state: dict[str, Any] = files.read_json(path / STATE) or {}
    try:
        return Snapshot(run, step, path, Pool.from_dict(state["pool"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"'{path / STATE}' is no state of a run ({cause(error)}); use another step") from error
