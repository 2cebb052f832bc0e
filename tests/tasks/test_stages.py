"""Stages: which task is on when, what they share, and how a recipe builds them."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_mixture import Echo, play

from fastslow.base.errors import RecipeError, TaskError
from fastslow.recipe import Recipe, build_recipe
from fastslow.tasks.base import Feedback
from fastslow.tasks.registry import build_task, check_options
from fastslow.tasks.stages import Stage, Stages

A, B = Echo("a", 3, {"system": "Do a."}), Echo("b", 2, {"system": "Do b."})
STAGES = Stages([Stage("first", 2, A), Stage("second", 3, B), Stage("first", 1, A)])


def recipe(*stages: Any) -> Recipe:
    return build_recipe({"model": "nano", "stages": list(stages)})


def test_every_step_belongs_to_a_stage_and_the_last_one_does_not_end() -> None:
    names = [STAGES.at(step).name for step in range(8)]
    assert names == ["first", "first", "second", "second", "second", "first", "first", "first"]
    assert STAGES.ends == [2, 5, 6]
    # What was measured after two steps was trained on the first task, though the second is next.
    assert [STAGES.behind(step).name for step in (0, 1, 2, 3, 5, 6)] == [
        "first", "first", "first", "second", "second", "first",
    ]  # fmt: skip


def test_a_task_that_comes_again_is_one_task() -> None:
    assert [part.name for part in STAGES.parts] == ["first", "second"]
    assert list(STAGES.each) == ["first", "second"]
    assert STAGES.stages[0].task is STAGES.stages[2].task
    copies = Stages([Stage("echo", 1, A), Stage("echo", 1, B)])
    assert list(copies.each) == ["echo", "echo-2"]


def test_the_seed_text_suits_every_stage() -> None:
    assert dict(STAGES.seed_texts) == {"system": "Answer the question."}


def test_problems_of_a_stage_are_those_of_its_task_and_are_played_by_it() -> None:
    problems = STAGES.each["second"].examples("train")
    assert [problem.id for problem in problems] == ["second/train/0", "second/train/1"]
    asks, feedback = play(STAGES, problems[1], "b")
    assert asks[0].messages == [{"role": "user", "content": "b train/1"}]
    assert feedback == Feedback(1.0, "train/1")
    assert {problem.id for problem in STAGES.examples("validation")} == {
        f"{name}/validation/{number}" for name in ("first", "second") for number in range(2)
    }


def test_a_recipe_builds_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"question": f"{n}?", "answer": str(n)}) + "\n" for n in range(20)))
    rows = {"name": "dataset", "path": str(path)}
    small = {"name": "star-graph", "degree": 3, "path": 3, "nodes": 20}
    task = build_task(
        recipe({**small, "steps": 4}, {**rows, "steps": 2}, {**small, "steps": 3}, {**small, "seed": 1, "steps": 1})
    )
    assert isinstance(task, Stages)
    assert [(stage.name, stage.steps) for stage in task.stages] == [
        ("star-graph", 4), ("dataset", 2), ("star-graph", 3), ("star-graph-2", 1),
    ]  # fmt: skip
    one = build_task(recipe("star-graph@3"))
    assert isinstance(one, Stages)


def test_mistakes_in_a_stage_are_explained() -> None:
    with pytest.raises(TaskError, match="there is no task 'star-grap'; did you mean 'star-graph'"):
        check_options(recipe("star-grap@3"))
    with pytest.raises(RecipeError, match="task 'star-graph' has no option 'weight'"):
        check_options(recipe({"name": "star-graph", "steps": 3, "weight": 2}))
    with pytest.raises(TaskError, match="task 'star-graph' has no training problems"):
        build_task(recipe("star-graph@3", {"name": "star-graph", "steps": 3, "train": 0}))
