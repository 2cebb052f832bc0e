"""What a run folder held when a checkpoint was saved, so that a resumed run does not build on rows that were lost since.

The logs grow, so the witness is of their first bytes; the files of cycles and rollouts are written once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fastslow.base.errors import RunError
from fastslow.runs import files

WITNESS = "run-files.json"
_PATTERNS = (
    "metrics.jsonl",
    "evals.jsonl",
    "ledger.jsonl",
    "contexts/cycle-*.json",
    "rollouts/step-*.parquet",
    "rollouts/cycle-*.parquet",
)


def write_witness(run: Path, checkpoint: Path) -> None:
    found = sorted(path for pattern in _PATTERNS for path in run.glob(pattern))
    files.write_json(checkpoint / WITNESS, {str(path.relative_to(run)): _of(path) for path in found})


def check_witness(run: Path, checkpoint: Path) -> None:
    """Raise if a file of the run, as far as the checkpoint saw it, is missing or has changed."""
    for name, seen in (files.read_json(checkpoint / WITNESS) or {}).items():  # earlier versions have none
        path = run / name
        if not path.is_file():
            raise RunError(f"'{path}' is missing since the checkpoint '{checkpoint.name}' was saved; {_ADVICE}")
        if _of(path, seen["size"]) != seen:
            raise RunError(f"'{path}' has changed since the checkpoint '{checkpoint.name}' was saved; {_ADVICE}")


_ADVICE = "restore it from a copy, or resume from an earlier checkpoint with --step"


def _of(path: Path, size: int | None = None) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read() if size is None else file.read(size)
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
