"""The call stack of a rollout of the fast loop: every file is entered once."""

from __future__ import annotations

import itertools
import traceback
from pathlib import Path
from typing import Any

import pytest
from fake_runs import recipe_of, run

import fastslow
from fastslow.fast.optimizers.base import Optimizer
from fastslow.rollouts.play import Player

SRC = str(Path(fastslow.__file__).parent) + "/"


def test_a_rollout_goes_from_the_loop_to_the_player_and_enters_no_file_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: set[tuple[str, ...]] = set()
    play = Player.play

    def watched(self: Player, *given: Any, **named: Any) -> Any:
        files = [frame.filename for frame in traceback.extract_stack() if frame.filename.startswith(SRC)]
        stacks.add(tuple(file.removeprefix(SRC) for file, _ in itertools.groupby(files)))
        return play(self, *given, **named)

    monkeypatch.setattr(Player, "play", watched)
    run(tmp_path / "run", recipe_of("gepa"))
    begin, end = ("loop.py", "fast/evolution.py", "fast/optimizers/base.py"), "fast/evaluator.py"
    assert {stack for stack in stacks if end in stack} == {
        (*begin, end),  # the carried contexts
        (*begin, "fast/optimizers/gepa.py", end),
    }


def test_an_optimizer_sees_nothing_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    evolve = Optimizer.evolve

    def watched(self: Optimizer, *given: Any) -> Any:
        seen.append([type(each).__name__ for each in (self.recipe, *given)])
        return evolve(self, *given)

    monkeypatch.setattr(Optimizer, "evolve", watched)
    run(tmp_path / "run", recipe_of("gepa"))
    assert seen
    assert all(names == ["FastRecipe", "Evaluator", "Lessons", "Pool"] for names in seen)
