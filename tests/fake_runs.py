"""Runs of the whole loop on the engine of pure Python, and what is left of them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_engine import FakeEngine, Numbered
from rich.console import Console

from fastslow.fast.reflection import Chat, Lessons, Reflector
from fastslow.loop import Loop
from fastslow.models.chat import ChatFormat
from fastslow.recipe import Recipe, build_recipe
from fastslow.rollouts.play import Player
from fastslow.runs.checkpoint import check_witness
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import PlainView
from fastslow.tasks.base import Task
from fastslow.tasks.skills import library_of

STEPS, T, PROBLEMS, GROUP, ANCHORS, BUDGET = 5, 2, 2, 4, 3, 12
SAVED = 3
"""The step of the first checkpoint, in the middle of a cycle; the second is saved at the end of the run."""


def recipe_of(method: str = "fst", **changes: dict[str, Any] | int) -> Recipe:
    sections: dict[str, dict[str, Any]] = {
        "slow": {"steps": STEPS, "problems": PROBLEMS, "group": GROUP, "microbatch": 4},
        "fast": {
            "population": 2,
            "cycle": T,
            "anchors": ANCHORS,
            "budget": BUDGET,
            "minibatch": 2,
            "optimizer": {"proposer": "full"},
        },
        "evaluation": {"every": 2, "problems": 2, "k": 1},
        "output": {"checkpoint_every": SAVED, "save_rollouts": False},
        "sampling": {},
    }
    top: dict[str, Any] = {}
    for key, change in changes.items():
        if isinstance(change, dict):
            sections[key] = sections[key] | change
        else:
            top[key] = change
    return build_recipe({"method": method, "model": "none", "task": "given", **sections, **top})


def make_loop(
    folder: Path,
    recipe: Recipe,
    engine: FakeEngine,
    reflector: Reflector | None = None,
    task: Task | None = None,
    teachers: Mapping[str, Chat] | None = None,
) -> Loop:
    run = RunFolder.open(folder, lock=True) if folder.exists() else RunFolder.create(folder, recipe)
    task = task or Numbered()
    player = Player(task, engine, ChatFormat(engine.tokenizer), library=library_of(task, recipe.fast.skills))
    view = PlainView(Console(file=io.StringIO()))
    return Loop(recipe, player, task.seed_texts, reflector or Lessons(), folder, run, view, teachers)


def run(
    folder: Path,
    recipe: Recipe,
    engine: FakeEngine | None = None,
    reflector: Reflector | None = None,
    task: Task | None = None,
    teachers: Mapping[str, Chat] | None = None,
) -> tuple[Loop, FakeEngine]:
    engine = engine or FakeEngine()
    loop = make_loop(folder, recipe, engine, reflector, task, teachers)
    assert loop.record.run is not None
    with loop.record.run:
        loop.run()
    return loop, engine


def resume(
    folder: Path,
    recipe: Recipe,
    engine: FakeEngine | None = None,
    task: Task | None = None,
    teachers: Mapping[str, Chat] | None = None,
) -> tuple[Loop, FakeEngine]:
    """Resume a run on a new engine, from its newest checkpoint."""
    engine = engine or FakeEngine()
    with RunFolder.open(folder, lock=True) as opened:
        latest = opened.checkpoints.latest()
        if latest:
            check_witness(folder, latest[1])
        opened.rewind(latest[0] if latest else -1)
    loop = make_loop(folder, recipe, engine, task=task, teachers=teachers)
    assert loop.record.run is not None
    with loop.record.run:
        loop.run(latest[1] if latest else None)
    return loop, engine


def outcome(folder: Path) -> dict[str, Any]:
    """What must not depend on how often a run was interrupted."""
    opened = RunFolder.open(folder)

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items() if key not in ("seconds", "phases")}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    logs = {name: plain(opened.rows(name)) for name in ("metrics", "evals", "ledger")}  # type: ignore[arg-type]
    return {**logs, "cycles": plain(opened.cycles()), "total": plain(opened.read_json("ledger.json"))}
