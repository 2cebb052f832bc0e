"""CSV tables."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastslow.runs import files

DIVERGENCE = "divergence.csv"
"""File in a run folder with the KL from the base model at each checkpoint (`fastslow divergence`)."""


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with files.temporary(path) as unfinished, unfinished.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def read_divergence(folder: Path) -> dict[tuple[int, str], float]:
    """The KLs that `fastslow divergence` measured for a run, by step and context; empty if it was not run."""
    path = folder / DIVERGENCE
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(int(row["step"]), row["context"]): float(row["kl"]) for row in csv.DictReader(file)}
