"""What tests of whole runs share."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastslow.base.world import World
from fastslow.recipe import Recipe
from fastslow.recipe.parts import LOSS, OPTIMIZER
from fastslow.runs.checkpoint import Checkpoints

if TYPE_CHECKING:
    from fastslow.engine.local.engine import LocalEngine

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "own-task" / "recipe.yaml"
BRIEF = ("slow.steps=2", "fast.anchors=4", "fast.budget=16", "evaluation.problems=4")
"""One short cycle of it: for what does not depend on how much is learnt."""


def fastslow(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "fastslow", *map(str, arguments)],
        cwd=cwd or ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def save_checkpoint(checkpoints: Checkpoints, step: int, name: str = "weights", text: str = "") -> Path:
    """A checkpoint with one file."""
    (checkpoints.begin(step) / name).write_text(text)
    return checkpoints.commit(step)


class Ended(NamedTuple):
    """How a command ended on one process."""

    code: int
    output: str
    error: str


def together(*commands: Sequence[str | Path], folder: Path, **environment: str) -> list[tuple[Ended, Ended]]:
    """Commands on two processes, one after the other; how each ended on both. `folder` is for notes of the processes."""
    from commands_in_turn import run_all
    from forked import fork_two

    folder.mkdir()
    fork_two(run_all, folder, [list(map(str, command)) for command in commands], environment=environment)
    notes = [json.loads((folder / f"process-{rank}.json").read_text()) for rank in (0, 1)]
    return [(Ended(**first), Ended(**second)) for first, second in zip(*notes, strict=True)]


def local_engine(recipe: Recipe, folder: Path, world: World | None = None) -> LocalEngine:
    from fastslow.engine.local.engine import LocalEngine
    from fastslow.models.load import load_policy
    from fastslow.slow.losses import objective

    return LocalEngine(load_policy(recipe.model), recipe, folder, world or World(), objective(recipe.slow))


def last_checkpoint(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step-*"))[-1]


def deterministic(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what a clock put into it."""
    kept = {key: value for key, value in row.items() if key not in ("seconds", "phases")}
    if "spent" in kept:
        kept["spent"] = {purpose: deterministic(entry) for purpose, entry in kept["spent"].items()}
    return kept


def outcome(run: Path) -> dict[str, Any]:
    """Everything about a finished run that must not depend on how often it was interrupted."""
    from safetensors.torch import load_file

    def lines(name: str) -> list[dict[str, Any]]:
        path = run / name
        return [deterministic(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def cycle(path: Path) -> dict[str, Any]:
        data = json.loads(path.read_text())
        return {key: value for key, value in data.items() if key != "spent"}

    ledger = json.loads((run / "ledger.json").read_text())
    last = last_checkpoint(run)
    weights = {path.name: load_file(path) for path in sorted(last.glob("*.safetensors"))}
    return {
        "metrics": lines("metrics.jsonl"),
        "evals": lines("evals.jsonl"),
        "ledger rows": lines("ledger.jsonl"),
        "cycles": {path.name: cycle(path) for path in sorted((run / "contexts").glob("*.json"))},
        "rollouts": sorted(path.name for path in (run / "rollouts").glob("*.parquet")),
        "ledger": {
            purpose: {key: value for key, value in entry.items() if key != "seconds"}
            for purpose, entry in ledger.items()
        },
        "weights": {
            name: {key: hashlib.sha256(value.numpy().tobytes()).hexdigest() for key, value in tensors.items()}
            for name, tensors in weights.items()
        },
        "checkpoint": last.name,
    }


def with_parts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a loop in which options of its optimizer or loss stand beside the others: those that the part has are put
    where they belong."""
    others = dict(settings)
    for slot, word in ((OPTIMIZER, "optimizer"), (LOSS, "loss")):
        given = {name: others.pop(name) for _, name, _ in slot.known_options() if name in others}
        if given or word in others:
            name = others.get(word, slot.default)
            has = slot.options(name).model_fields
            others[word] = {"name": name, **{key: value for key, value in given.items() if key in has}}
    return others
