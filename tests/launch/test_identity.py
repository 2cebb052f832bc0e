"""A run is resumed with the problems and the grader that it was started with, or says that it is not."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_engine import FakeEngine, Numbered
from fake_runs import outcome, recipe_of
from rich.console import Console

import fastslow
from fastslow.base.errors import RunError
from fastslow.base.world import World
from fastslow.launch import start
from fastslow.launch.assembly import Parts
from fastslow.launch.identity import differing, identity
from fastslow.models.chat import ChatFormat
from fastslow.recipe import build_recipe
from fastslow.rollouts.play import Player
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import PlainView
from fastslow.tasks import Task
from fastslow.tasks.registry import build_task

ROWS = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(40)]


def grade(answer: str, row: dict[str, Any]) -> float:
    return float(row["answer"] in answer)


def half(answer: str, row: dict[str, Any]) -> float:
    return 0.5 * (row["answer"] in answer)


def within(tolerance: float) -> Callable[[str, dict[str, Any]], float]:
    return lambda answer, row: float(abs(float(answer) - float(row["answer"])) <= tolerance)


class Judge:
    def __init__(self, rubric: str) -> None:
        self.rubric, self.calls = rubric, 0

    def __call__(self, answer: str, row: dict[str, Any]) -> float:
        self.calls += 1
        return grade(answer, row)


def of(rows: Any = ROWS, grader: Any = grade, **options: Any) -> Task:
    return fastslow.RowsTask(rows, grader, **options)


def changed(first: Task, second: Task) -> str:
    return differing(identity(first), identity(second))


def test_the_same_data_has_the_same_identity() -> None:
    assert changed(of(), of(pd.DataFrame(ROWS))) == ""
    assert changed(of(grader=within(0.1)), of(grader=within(0.1))) == ""
    used = Judge("strict")
    used("1", ROWS[0])
    assert changed(of(grader=used), of(grader=Judge("strict"))) == ""
    strange = [{**row, "a": {3, 1, 2}, "b": np.ones(3), "c": object(), 4: "d"} for row in ROWS]
    assert changed(of(strange, id="question"), of([dict(row) for row in strange], id="question")) == ""
    circle: dict[str, Any] = {"question": "?", "answer": "!"}
    circle["self"] = circle
    assert changed(of([*ROWS, circle], id="question"), of([*ROWS, circle], id="question")) == ""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (of([*ROWS[:-1], {"question": "39 + 1", "answer": "41"}]), "problems differ"),
        (of([{**row, "b": np.full(3, n)} for n, row in enumerate(ROWS)]), "problems differ"),
        (of(ROWS[:-1]), "problems differ"),
        (of(ROWS[::-1]), "the training problems differ"),
        (of(validation=[{"question": "7 + 80", "answer": "87"}]), "validation problems differ"),
        (of(grader=half), "the grader differs"),
        (of(grader=lambda answer, row: 1.0), "the grader differs"),
        (of(grader=None), "the grader differs"),
        (of(prompt="{question} = ?"), "the grader differs"),
    ],
)
def test_what_differs_is_named(other: Task, said: str) -> None:
    assert said in changed(of(), other)
    assert ("grader" in changed(of(), other)) == ("grader" in said)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (within(0.1), within(0.2)),
        (Judge("strict"), Judge("lenient")),
        (Judge("strict").__call__, Judge("lenient").__call__),
        (partial(lambda x, answer, row: x, 0.1), partial(lambda x, answer, row: x, 0.2)),
        (lambda answer, row: 0.1, lambda answer, row: 0.2),
    ],
)
def test_graders_of_the_same_source_differ_by_what_they_were_made_with(first: Any, second: Any) -> None:
    assert changed(of(grader=first), of(grader=second)) == "the grader differs"


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


class Places:
    """An object with everything that has no order of its own, or no end."""

    def __init__(self) -> None:
        self.friends = {Places.__init__, within, self, object()}
        self.table = {n: {"words": [str(n)]} for n in range(50)}
        self.deep, self.long = nested(5000), [10**5000]

    def __call__(self, answer: str, row: dict[str, Any]) -> float:
        return float(answer in {"ten", "twelve", "eleven", "two"}) + float(answer == TABLE.get(answer))


TABLE = {str(n): str(n + 1) for n in range(9)}


def test_the_identity_of_a_grader_does_not_depend_on_where_its_parts_lie_in_memory() -> None:
    found, kept = set(), []
    for number in range(8):
        found.add(identity(of(grader=Places()))["grader"])
        kept.append([bytes(number) for _ in range(number)])
    assert len(found) == 1


def test_the_identity_of_a_grader_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "import fastslow; from fastslow.launch.identity import identity\n"
        "known = frozenset({'ten', 'two', ('six', 6)})\n"
        "grader = lambda answer, row: float(answer in {'ten', 'two', 'six'} or answer in known)\n"
        "print(identity(fastslow.RowsTask([{'question': str(n), 'answer': '2'} for n in range(9)], grader))['grader'])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Task]]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(grading: str, helping: str) -> Task:
        (tmp_path / "own_grading.py").write_text(grading)
        (tmp_path / "own_helping.py").write_text(helping)
        for name in ("own_grading", "own_helping"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return of(grader=importlib.import_module("own_grading").grade)

    yield write
    for name in ("own_grading", "own_helping"):
        sys.modules.pop(name, None)


GRADING = """
import own_helping
from own_helping import bare
TABLE = {"a": 1}
LIMIT = 3

def grade(answer, row):
    TABLE[answer] = own_helping.score(bare(answer))
    return TABLE[answer] > LIMIT
"""
HELPING = """
def bare(text):
    return text.strip()

def score(text):
    return len(text)
"""


@pytest.mark.parametrize(
    ("grading", "helping", "differs"),
    [
        (GRADING, HELPING, False),
        (GRADING.replace("LIMIT = 3", "LIMIT = 3  # letters") + "\n\nUNUSED = 5\n", HELPING, False),
        (GRADING.replace("LIMIT = 3", "LIMIT = 4"), HELPING, True),
        (GRADING.replace('"a": 1', '"a": 2'), HELPING, True),
        (GRADING, HELPING.replace("strip()", "lstrip()"), True),
        (GRADING, HELPING.replace("len(text)", "len(text) + 1"), True),
    ],
)
def test_a_grader_is_all_the_code_it_uses(
    grading: str, helping: str, differs: bool, module: Callable[[str, str], Task]
) -> None:
    before = identity(module(GRADING, HELPING))
    now = module(grading, helping)
    assert bool(differing(before, identity(now))) == differs


def test_a_grader_in_a_file_that_a_recipe_names_is_its_source(tmp_path: Path) -> None:
    found = []
    for score in ("0.5", "0.75"):
        (tmp_path / "marks.py").write_text(f"def grade(answer, row):\n    return {score}\n")
        code = (
            "import json; from fastslow.launch.identity import identity; from fastslow.recipe import build_recipe\n"
            "from fastslow.tasks.registry import build_task\n"
            f"task = {{'name': 'dataset', 'path': {str(tmp_path / 'rows.jsonl')!r}, 'grader': 'marks.py:grade'}}\n"
            "print(json.dumps(identity(build_task(build_recipe({'model': 'nano', 'task': task})))))"
        )
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        command = [sys.executable, "-c", code]
        found.append(json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout))
    assert differing(*found) == "the grader differs"


def test_tasks_of_a_recipe_have_the_same_identity_in_every_process() -> None:
    """A mixture of generated problems; other options are other problems."""
    book = {"name": "rulebook", "book": "harbour"}
    settings = {"model": "nano", "task": [book, "star-graph"]}
    code = (
        "import json, sys; from fastslow.recipe import build_recipe; from fastslow.tasks.registry import build_task\n"
        "from fastslow.launch.identity import identity\n"
        f"print(json.dumps(identity(build_task(build_recipe({settings!r})))))"
    )
    there = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert there == identity(build_task(build_recipe(settings)))
    other = build_task(build_recipe({**settings, "task": [book, {"name": "star-graph", "seed": 7}]}))
    assert "problems of 'star-graph' differ" in differing(there, identity(other))
    assert "rulebook" not in differing(there, identity(other))


def test_many_rows_are_hashed_in_little_time() -> None:
    task = of([{"question": f"{n}" * 20, "answer": "x" * 200} for n in range(20_000)])
    started = time.process_time()
    identity(task)
    assert time.process_time() - started < 10


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Start or resume a run with an engine of pure Python; what it says."""
    monkeypatch.setattr(start, "find_world", lambda _: World())

    def launch(folder: Path, task: Task, **options: Any) -> str:
        engine, said = FakeEngine(), io.StringIO()
        player = Player(task, engine, ChatFormat(engine.tokenizer))
        monkeypatch.setattr(start, "assemble", lambda *_: Parts(task, engine, player, task.seed_texts))
        view = PlainView(Console(file=said, width=1000))
        if folder.exists():
            fastslow.resume(folder, view, task=task, **options)
        else:
            start.train(recipe_of(), folder, view, task=task)
        return said.getvalue()

    return launch


class Generous(Numbered):
    def grade(self, example: Any, answer: str) -> Any:
        return fastslow.Feedback(1.0)


def test_a_run_is_not_resumed_with_another_grader_unless_the_user_insists(
    launched: Callable[..., str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    launched(folder, Numbered())
    before = outcome(folder)
    with pytest.raises(RunError, match=r"trained with other data: the grader differs; .* --other-data"):
        launched(folder, Generous())
    assert outcome(folder) == before
    state = folder / "checkpoints" / "step-000005" / "state.json"
    whole = state.read_bytes()
    state.write_bytes(whole[:-9])
    with pytest.raises(RunError, match="is damaged"):
        launched(folder, Generous(), other_data=True)  # what is refused leaves no trace of insisting
    state.write_bytes(whole)
    with pytest.raises(RunError, match="the grader differs"):
        launched(folder, Generous())
    longer = ["slow.steps=6"]
    said = launched(folder, Generous(), overrides=longer, other_data=True)
    assert "the grader differs from here on" in said
    launched(folder, Generous())
    with pytest.raises(RunError, match="the grader differs"):
        launched(folder, Numbered())
    opened = RunFolder.open(folder)
    opened.write_json("run.json", {key: value for key, value in opened.read_json("run.json").items() if key != "data"})  # type: ignore[union-attr]
    assert "cannot be checked" in launched(folder, Numbered())  # a run of an earlier version
