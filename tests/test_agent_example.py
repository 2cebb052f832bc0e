"""The agent of examples/agent: what its desk accepts, says and scores, and that its recipe works from any folder."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from helpers import ROOT

from fastslow import load_recipe
from fastslow.tasks.registry import build_task

FOLDER = ROOT / "examples" / "agent"
ORDER = {"number": 754, "kilograms": 5, "city": "Madrid", "box": "E", "price": 36, "fragile": True}
RIGHT = ["open 754", "Step 2: weigh 5000", "quote MADRID E", "book E 36 care", "close 754."]


@pytest.fixture(scope="module")
def desk() -> ModuleType:
    spec = importlib.util.spec_from_file_location("desk", FOLDER / "desk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def played(desk: ModuleType, commands: list[str]) -> tuple[float, str]:
    at = desk.Desk(ORDER)
    for command in commands:
        at.do(command)
    return desk.grade(at)


def test_the_score_is_the_share_of_the_steps_that_were_done(desk: ModuleType) -> None:
    for done in range(6):
        assert played(desk, RIGHT[:done])[0] == done / 5
    assert played(desk, RIGHT) == (1.0, "Right.")


def test_what_was_refused_is_told_with_the_rules_of_the_next_steps(desk: ModuleType) -> None:
    score, words = played(desk, [RIGHT[0], "weigh 5 kg"])
    assert score == 0.2
    assert "'weigh 5 kg' was refused; it wanted 'weigh 5000'." in words
    assert [name for name, rule in desk.RULES.items() if rule in words] == ["weigh", "quote"]
    assert desk.RULES["care"] in played(desk, RIGHT[:3])[1]


def test_the_recipe_finds_its_agent_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = build_task(load_recipe(FOLDER / "recipe.yaml"))
    assert sum(len(task.examples(split)) for split in ("train", "validation", "test")) == 600
    assert set(task.seed_texts) == {"system"}
