"""The call stack of a rollout of the fast loop: every file is entered once."""

from __future__ import annotations

import io
import itertools
import re
import traceback
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import GROUP, PROBLEMS, STEPS, make_loop, recipe_of, run

import fastslow
from fastslow.fast.optimizers.base import PATIENCE, Optimizer
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons, ReflectionFailed, Request
from fastslow.rollouts.play import Player
from fastslow.runs.view import PlainView

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


def said(folder: Path, fails: Any) -> str:
    """What a run says whose reflector fails where `fails(number of the call)`."""

    class Failing(Lessons):
        calls = 0

        def __call__(self, request: Request) -> str:
            self.calls += 1
            if fails(self.calls):
                raise ReflectionFailed("the server is away")
            return f"{request.text}\nNote {self.calls}."

    loop = make_loop(folder, recipe_of("gepa"), FakeEngine(), Failing())
    view = loop.evolution.view  # type: ignore[union-attr]
    with loop.record.run:  # type: ignore[union-attr]
        loop.run()
    assert isinstance(view, PlainView)
    assert isinstance(view.console.file, io.StringIO)
    return view.console.file.getvalue()


def test_reflections_that_fail_are_counted_beside_the_others(tmp_path: Path) -> None:
    none = said(tmp_path / "none", lambda call: True)
    assert f"cycle 0: all {PATIENCE} reflections failed, so the reflection model proposed nothing" in none
    assert "the last: the server is away" in none
    assert "the others were used" not in none
    some = said(tmp_path / "some", lambda call: call == 1)
    assert "reflections failed; the others were used; the last: the server is away" in some


def test_scores_that_are_expected_come_with_what_was_measured(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run", recipe_of("fst", fast={"optimizer": "digest"}), FakeEngine())
    view, run = loop.record.view, loop.record.run
    assert run is not None
    with run:
        loop.run()
    assert isinstance(view, PlainView)
    assert isinstance(view.console.file, io.StringIO)
    assert re.search(
        r"best context \w+, expected score [\d.]+, (measured [\d.]+ in \d+|not played)", view.console.file.getvalue()
    )
    for cycle in run.cycles():
        counts = [each["drawn"][1] for each in cycle["population"]]
        assert max(counts) > 0
        assert sum(counts) <= sum(entry["rollouts"] for entry in cycle["spent"].values()) + STEPS * PROBLEMS * GROUP
    assert Pool.from_dict(loop.state.pool.to_dict()) == loop.state.pool
