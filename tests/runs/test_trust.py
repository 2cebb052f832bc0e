"""What a folder made elsewhere may execute."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import save_checkpoint

from fastslow.base.errors import ModelError, RunError
from fastslow.launch import start
from fastslow.launch.evaluate import evaluate_run, measure_divergence
from fastslow.launch.export import export_run
from fastslow.models.load import load_pretrained
from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.trust import code_of, remember, require_trust

CODE: list[dict[str, Any]] = [
    {"task": {"name": "dataset", "path": "rows.jsonl", "grader": "grading:grade"}},
    {"task": {"name": "dataset", "path": "rows.jsonl", "grader": "/tmp/x.py:grade"}},
    {"task": {"name": "trl", "path": "rows.jsonl", "rewards": ["os:system"]}},
    {"task": {"name": "trl", "path": "rows.jsonl", "rewards": "os:system"}},
    {"task": {"name": "subprocess:run", "args": "touch /tmp/forged", "shell": True}},
    {"task": [{"name": "rulebook"}, {"name": "mine:task"}]},
    {"task": "verifiers/somebody/wordle"},
    {"task": {"name": "verifiers", "environment": "wordle"}},
    {"task": {"name": "trl-script", "script": "train.py"}},
    {"stages": ["rulebook@1", {"name": "mine:task", "steps": 1}], "task": None},
    {"task": "rulebook", "model": {"name": "nano", "trust_remote_code": True}},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("settings", CODE)
def test_code_needs_trust_unless_the_run_was_started_here(settings: dict[str, Any], tmp_path: Path) -> None:
    recipe = build_recipe({"model": "nano", **settings})
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(RunError, match=r"executes code: .*--trust") as refused:
        require_trust(folder, recipe, trust=False)
    assert all(each in str(refused.value) for each in code_of(recipe))
    remember(folder, recipe)
    require_trust(folder, recipe, trust=False)
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(RunError, match="--trust"):
        require_trust(tmp_path / "copy", recipe, trust=False)
    require_trust(tmp_path / "copy", recipe, trust=True)


def test_a_changed_recipe_is_not_the_one_that_was_started(tmp_path: Path) -> None:
    def recipe(grader: str) -> Any:
        return build_recipe({"model": "nano", "task": {"name": "dataset", "path": "rows.jsonl", "grader": grader}})

    remember(tmp_path, recipe("mine:grade"))
    with pytest.raises(RunError, match="os:system"):
        require_trust(tmp_path, recipe("os:system"), trust=False)


def test_a_recipe_without_code_needs_no_trust(tmp_path: Path) -> None:
    for task in ("rulebook", "rulebook/harbour", "given", {"name": "dataset", "path": "rows.jsonl"}):
        require_trust(tmp_path, build_recipe({"model": "nano", "task": task}), trust=False)


@pytest.mark.parametrize("command", ["eval", "divergence", "resume", "export"])
def test_no_command_executes_the_code_of_a_foreign_folder(command: str, tmp_path: Path) -> None:
    """The grader beside the recipe and the model's code leave a file when they are executed."""
    folder, left = tmp_path / "run", tmp_path / "executed"
    model = tmp_path / "model"
    shutil.copytree(Path(load_pretrained.__code__.co_filename).parent / "nano", model)
    recipe = build_recipe(
        {
            "model": {"name": str(model), "trust_remote_code": True},
            "task": {"name": "dataset", "path": str(tmp_path / "rows.jsonl"), "grader": "grading:grade"},
        }
    )
    RunFolder.create(folder, recipe).close()
    (folder / "grading.py").write_text(f"open({str(left)!r}, 'w')\n")
    run = RunFolder(folder)
    save_checkpoint(run.checkpoints, 2, "state.json", '{"pool": []}')
    with pytest.raises(RunError, match=r"grading\.py:grade|state of a run"):
        {
            "eval": lambda: evaluate_run(folder),
            "divergence": lambda: measure_divergence(folder),
            "resume": lambda: start.resume(folder),
            "export": lambda: export_run(folder, tmp_path / "exported"),
        }[command]()
    assert not left.exists()


def test_a_model_that_brings_code_is_refused_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / "executed"
    (tmp_path / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Mine"}}'
    )
    (tmp_path / "mine.py").write_text(f"open({str(left)!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ModelError):
        load_pretrained(str(tmp_path))
    assert not left.exists()
