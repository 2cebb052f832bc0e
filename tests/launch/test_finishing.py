"""What a run says at its end: counts that are those of `fastslow check`, and notes on lines of their own."""

from __future__ import annotations

import io
from pathlib import Path

from fake_engine import Numbered
from fake_runs import SAVED, STEPS, recipe_of, run

from fastslow.launch.estimate import _shown
from fastslow.launch.finishing import notes, numbers
from fastslow.launch.schedule import count_rollouts
from fastslow.runs.ledger import Entry
from fastslow.runs.use import Use, verdict


def test_rollouts_are_counted_as_before_the_run(tmp_path: Path) -> None:
    recipe = recipe_of("rl")
    loop, _ = run(tmp_path / "run", recipe)
    assert loop.record.run is not None
    said = numbers(loop.record.run, tmp_path, loop.state, 1.2)
    before = _shown(count_rollouts(recipe, Numbered()))
    assert said["rollouts"] == before.replace(": ", " (").replace(",", " +") + ")"
    assert said["seconds"] == 1
    assert "best" not in said


def test_truncation_and_an_earlier_checkpoint_are_notes(tmp_path: Path) -> None:
    recipe = recipe_of("rl")
    loop, _ = run(tmp_path / "run", recipe)
    assert loop.record.run is not None
    assert list(notes(loop.record.run, recipe, loop.state)) == []
    rollouts = loop.state.ledger.total().rollouts
    loop.state.ledger.book("slow", Entry(faults={"truncated": rollouts // 2}))
    loop.state.course.chosen = lambda step: SAVED  # type: ignore[method-assign]
    earlier, truncated = notes(loop.record.run, recipe, loop.state)
    assert earlier.startswith(f"the reward of training was best at step {SAVED}, not at the last, {STEPS}: ")
    assert truncated.startswith(f"truncated at sampling.max_tokens={recipe.sampling.max_tokens}: 50% of the rollouts, ")


def test_the_advice_on_an_ignored_line_fits_the_method() -> None:
    ignored = [Use("Answer in one word.", 9, 9, 9, 0)]
    assert verdict(ignored, "gepa").endswith("work for the weights (method=fst or rl)")
    assert verdict(ignored, "fst").endswith("work for the weights: train longer, or raise slow.learning_rate")


def test_a_log_says_what_begins(tmp_path: Path) -> None:
    loop, _ = run(tmp_path / "run", recipe_of("rl"))
    file = loop.record.view.console.file  # type: ignore[attr-defined]
    assert isinstance(file, io.StringIO)
    lines = file.getvalue().splitlines()
    assert lines.count("evaluating 1 context on up to 2 problems, k=1 …") == 4
    first = lines.index("step 1: playing 8 rollouts …")
    assert lines[first - 1].startswith("evaluation at step 0: ")
    assert lines[first + 1].startswith(f"step 1/{STEPS}: ")
