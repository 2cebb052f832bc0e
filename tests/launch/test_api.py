"""Training from Python, without a recipe file."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers import EXAMPLE, ROOT, outcome

import fastslow
from fastslow.base.errors import FastSlowError, RecipeError, RunError
from fastslow.launch import api, start
from fastslow.launch.results import Run
from fastslow.recipe import Recipe, SlowRecipe, load_recipe
from fastslow.tasks import Task

SECTIONS: dict[str, Any] = {
    "slow": {"steps": 1, "problems": 2, "group": 2, "microbatch": 4},
    "fast": {"population": 2, "cycle": 1, "anchors": 2, "budget": 4},
    "sampling": {"max_tokens": 4},
    "evaluation": {"problems": 2, "k": 1},
}
ROWS = [{"question": f"say {word}", "answer": word} for word in "abcdef"]


def grade(answer: str, row: dict[str, Any]) -> tuple[float, str]:
    return float(row["answer"] in answer), f"the answer is {row['answer']}"


@pytest.fixture
def model(tiny_folder: Path) -> dict[str, str]:
    return {"name": str(tiny_folder), "device": "cpu"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Recipe, Path, Task | None]]:
    """What runs would be started with; none is."""
    calls: list[tuple[Recipe, Path, Task | None]] = []

    def train(recipe: Recipe, folder: Path, view: Any = None, *, task: Task | None = None) -> Path:
        calls.append((recipe, folder, task))
        return ROOT / "docs/results/qwen-1.5b/gsm8k/fst-0"

    monkeypatch.setattr(start, "train", train)
    monkeypatch.chdir(tmp_path)
    return calls


def test_sections_as_keywords_are_what_a_recipe_file_says(model: dict[str, str], tmp_path: Path) -> None:
    """One run from keywords, one from a file: the same weights, contexts and numbers."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    task = {"name": "dataset", "path": str(tmp_path / "rows.jsonl")}
    run = fastslow.train(model=model, task=task, folder=tmp_path / "a", method="fst", **SECTIONS)
    (tmp_path / "recipe.yaml").write_text(json.dumps({"model": model, "task": task, **SECTIONS}))
    again = fastslow.train(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "b")
    assert isinstance(run, Run)
    assert run.path == tmp_path / "a"
    assert run.recipe == again.recipe
    assert outcome(run.path) == outcome(again.path)
    assert run.status == "finished"
    with pytest.raises(RunError, match="already holds a run"):
        fastslow.train(again.recipe, tmp_path / "b")


def test_rows_and_a_grader_are_a_task(model: dict[str, str], tmp_path: Path) -> None:
    run = fastslow.train(model=model, task=pd.DataFrame(ROWS), grader=grade, folder=str(tmp_path / "run"), **SECTIONS)
    asked = run.rollouts
    assert set(asked["question"]) <= {row["question"] for row in ROWS}
    assert asked["feedback"].str.startswith("the answer is ").all()
    assert run.recipe.tasks[0].name == "given"
    again = re.escape(f'fastslow.resume("{run.path}", task=…)')
    with pytest.raises(RunError, match=f"given as an object; give it again: {again}"):
        fastslow.resume(run)
    with pytest.raises(RunError, match=f"already holds a run; resume it with `{again}`"):
        fastslow.train(model=model, task=ROWS, grader=grade, folder=run)
    resumed = fastslow.resume(run, task=fastslow.RowsTask(ROWS, grade))
    assert resumed == run
    assert resumed.status == "finished"


def test_keywords_are_laid_over_a_recipe(started: list[tuple[Recipe, Path, Task | None]]) -> None:
    fastslow.train(EXAMPLE, seed=3, slow={"steps": 4}, **{"fast.reflection": "openai/gpt-5.2", "model.device": "cpu"})
    (recipe, folder, task), written = started[-1], load_recipe(EXAMPLE)
    assert (recipe.seed, recipe.slow.steps, recipe.slow.group) == (3, 4, written.slow.group)
    assert (recipe.fast.reflection.model, recipe.model.device) == ("openai/gpt-5.2", "cpu")
    assert (recipe.task, task) == (written.task, None)
    assert folder == Path("runs/recipe-fst-seed3")
    fastslow.train(written, "runs/mine", slow=SlowRecipe(steps=7))
    assert started[-1][0].slow == written.slow.model_copy(update={"steps": 7})
    fastslow.train(written, "runs/mine")
    assert started[-1][0] is written


def test_a_task_is_a_name_a_mapping_several_or_an_object(started: list[tuple[Recipe, Path, Task | None]]) -> None:
    (Path("nano")).mkdir()  # a folder that happens to be there is not the model
    fastslow.train(model="nano", task="rulebook/harbour", method="rl")
    recipe, folder, _ = started[-1]
    assert (recipe.model.name, recipe.tasks[0].name) == ("nano", "rulebook/harbour")
    assert folder == Path("runs/rulebook-harbour-rl-seed0")
    fastslow.train(model="nano", task=["rulebook", {"name": "star-graph", "weight": 2.0}])
    assert [each.name for each in started[-1][0].tasks] == ["rulebook", "star-graph"]
    mine = fastslow.RowsTask(ROWS, grade)
    fastslow.train(EXAMPLE, task=mine)
    assert (started[-1][0].tasks[0].name, started[-1][2]) == ("given", mine)
    fastslow.train(model="nano", task=mine)
    assert started[-1][1] == Path("runs/rowstask-fst-seed0")


def test_files_are_found_from_the_current_folder(started: list[tuple[Recipe, Path, Task | None]]) -> None:
    Path("rows.jsonl").write_text(json.dumps(ROWS[0]))
    Path("grading.py").write_text("")
    fastslow.train(model="nano", task={"name": "dataset", "path": Path("rows.jsonl"), "grader": "grading:grade"})
    options = started[-1][0].tasks[0].options
    assert options == {"path": str(Path("rows.jsonl").resolve()), "grader": f"{Path('grading.py').resolve()}:grade"}


class Silent:
    def __repr__(self) -> str:
        raise ValueError("nothing to say")


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"task": "rulebook"}, "the recipe has no 'model'; add it"),
    "no task": ({"model": "nano"}, "task"),
    "a wrong section": ({"model": "nano", "task": "rulebook", "slwo": {}}, "unknown recipe key 'slwo'"),
    "a wrong key": ({"model": "nano", "task": "rulebook", "slow": {"step": 1}}, "did you mean slow.steps"),
    "a wrong dotted key": ({"model": "nano", "task": "rulebook", "slow.step": 1}, "did you mean slow.steps"),
    "no mapping": ({"model": "nano", "task": "rulebook", "slow": 3}, "slow=3: expected a mapping"),
    "a grader without rows": ({"model": "nano", "task": "rulebook", "grader": grade}, "task is str; with a grader"),
    "what cannot be shown": (
        {"model": "nano", "task": "rulebook", "seed": Silent()},
        "seed=<Silent>: input should be a valid integer",
    ),
    "keys that are no text": (
        {"model": "nano", "task": [{1: 2}], "grader": grade},
        "it has 1; set question to one of them",
    ),
    "no recipe": ({"recipe": 3}, "recipe is of type int; expected a mapping, a Recipe or the path of a YAML file"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_explained(case: str) -> None:
    arguments, expected = MISTAKES[case]
    with pytest.raises(FastSlowError) as raised:
        fastslow.train(**arguments)
    assert expected in str(raised.value)


@pytest.mark.parametrize("given", [Silent(), 5, [10**5000]], ids=["silent", "a number", "a list"])
def test_what_is_no_path_is_explained(given: Any) -> None:
    with pytest.raises(RunError, match="cannot be the path of a run folder"):
        fastslow.train(model="nano", task="rulebook", folder=given)
    with pytest.raises(RecipeError, match="expected the path of a YAML file"):
        fastslow.load_recipe(given)


def test_every_section_of_a_recipe_is_a_keyword() -> None:
    assert set(Recipe.model_fields) <= set(inspect.signature(api.train).parameters)


def test_completion_and_type_checkers_see_the_public_names() -> None:
    tree = ast.parse((ROOT / "src/fastslow/__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    typed = {
        (alias.name, str(each.module))
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert typed == {(name, f"fastslow.{home}") for name, home in fastslow._HOMES.items()}
    assert dir(fastslow) == sorted(name for name, _ in typed)
    for name in dir(fastslow):
        assert getattr(fastslow, name).__module__.startswith("fastslow."), name
    assert "fastslow.train" not in sys.modules  # a module of that name would hide the function


def test_a_run_and_its_model_come_without_bars_and_warnings_of_libraries(tmp_path: Path) -> None:
    """In a process of its own: the tests silence warnings."""
    code = f"""
import fastslow
rows = [{{"question": f"zorka : {{each}} b", "answer": each}} for each in "acdefghi"]
task = fastslow.RowsTask(rows, lambda answer, row: float(row["answer"] in answer))
run = fastslow.train(model="nano", task=task, method="rl",
    slow={{"steps": 1, "problems": 2, "group": 2}}, sampling={{"max_tokens": 2}}, evaluation={{"every": 0}},
    folder={str(tmp_path / "run")!r})
run.load_model()
run.evaluate(k=1, task=task)
run.export("model")
from transformers.utils import logging
assert logging.is_progress_bar_enabled(), "as it was before"
"""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_HUB_DISABLE", "TRANSFORMERS_VERB"))
    }
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert "Loading weights" not in ended.stderr
    assert "Writing model shards" not in ended.stderr
    assert "Warning" not in ended.stderr
