"""The snippets of CONTRIBUTING.md run as they stand, and the files for people who join say the same as the package."""

from __future__ import annotations

import math
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from fake_engine import FakeEngine, Numbered, Words
from fake_runs import STEPS, recipe_of, run
from helpers import ROOT

from fastslow.commands.app import COMMANDS
from fastslow.engine.base import Batch
from fastslow.recipe import build_recipe
from fastslow.slow.losses import objective
from fastslow.tasks.registry import build_task
from fastslow.tasks.scripted import scripted_rollout

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TASK, LOSS, ENGINE, OPTIMIZER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def names_of(snippet: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(snippet, names)
    return names


def test_the_task_is_built_from_a_recipe_and_grades(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(TASK)
    task = build_task(build_recipe({"model": "none", "task": f"{tmp_path / 'sums.py'}:task"}))
    example = task.examples("train")[3]
    assert scripted_rollout(task, example, ["10"]).feedback.score == 1  # type: ignore[union-attr]
    wrong = scripted_rollout(task, example, ["3"]).feedback
    assert wrong is not None
    assert (wrong.score, wrong.text) == (0, "'3' is not the sum.\nWrite the bare number.")
    assert not {each.id for each in task.examples("train")} & {each.id for each in task.examples("test")}


def test_the_loss_is_read_from_a_recipe_and_is_its_closed_form(tmp_path: Path) -> None:
    (tmp_path / "weighted.py").write_text(LOSS)
    recipe = recipe_of(
        "rl", slow={"loss": {"name": f"{tmp_path / 'weighted.py'}:weighted", "strength": 2.0}, "kl": 0.0}
    )
    logprobs, behaviour = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.0]])
    batch = Batch(logprobs, behaviour, None, torch.tensor([3.0]), torch.tensor([3.0]), torch.ones(1, 2), 2, 1, 8)
    loss, _ = objective(recipe.slow)(batch)
    assert loss.item() == pytest.approx(-2 * 3 * (math.exp(0.5) + 1) / 2)


@pytest.mark.parametrize("method", ["fst", "rl"])
def test_the_engine_runs_the_whole_loop(method: str, tmp_path: Path) -> None:
    engine = names_of(ENGINE)["Echo"](Words())
    loop, _ = run(tmp_path / "run", recipe_of(method), engine)
    assert loop.state.step == STEPS
    assert len(loop.record.run.rows("metrics")) == STEPS  # type: ignore[union-attr]


def test_the_optimizer_searches_within_its_budget(tmp_path: Path) -> None:
    (tmp_path / "reword.py").write_text(OPTIMIZER)
    recipe = recipe_of("gepa", fast={"optimizer": f"{tmp_path / 'reword.py'}:Reword", "budget": 30})
    loop, _ = run(tmp_path / "run", recipe, FakeEngine())
    cycles = loop.record.run.cycles()  # type: ignore[union-attr]
    assert all(data["spent"]["fast-score"]["rollouts"] <= 30 for data in cycles)
    assert any(data["edits"] for data in cycles)
    texts = {text for data in cycles for record in data["contexts"] for text in record["texts"].values()}
    assert len(texts - {Numbered.seed_text}) >= 2


def test_the_files_that_are_named_exist() -> None:
    named = re.findall(r"`((?:src|tests)/[\w./]*[\w/])`", PAGE)
    assert len(named) >= 4
    assert [path for path in named if not (ROOT / path).exists()] == []
    shown = re.findall(r"`((?:engine|fast|tasks|recipe)/[\w./]+\.py|\w+\.py)`", PAGE)
    assert [path for path in shown if not (ROOT / "src" / "fastslow" / path).exists()] == []
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^make ([\w-]+)", PAGE, re.MULTILINE)) <= set(targets)


def test_versions_and_commands_agree() -> None:
    version = metadata.version("fastslow")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert citation["version"] == version
    assert re.findall(r"^## (.+)", changes, re.MULTILINE)[0] == version
    assert all(f"`{command}`" in changes for command in COMMANDS)
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    for template in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(template.read_text())
