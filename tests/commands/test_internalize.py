"""`fastslow internalize` on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from helpers import EXAMPLE

from fastslow.commands.app import main
from fastslow.engine.local.engine import LocalEngine
from fastslow.launch import start
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = load_recipe(EXAMPLE, ["slow.steps=2", "evaluation.every=0", "evaluation.problems=2"])
    return start.train(recipe, tmp_path_factory.mktemp("runs") / "fst")


def test_a_table_shows_reward_and_kl_before_and_after(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder.open(run, lock=True) as opened:
        opened.set_status("interrupted")
    out = tmp_path / "out"
    assert call("internalize", run, "--out", out, "--epochs", "1", "--also", "rulebook/harbour") == 0
    shown = capsys.readouterr().out
    assert "warning: " in shown
    assert "is not finished; its checkpoint of step 2 is used" in shown
    for words in ("reward before", "reward after", "KL before", "seed", "best context", "other task"):
        assert words in shown
    assert "…" not in shown
    assert "s of training; written to" in shown
    assert (out / "internalized.json").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "no run folder 'nowhere'"),
        (["RUN", "--also", "[1]"], "--also [1]: expected a name"),
        (["RUN", "--also", "rulebok"], "did you mean 'rulebook'?"),
        (["RUN", "--checkpoint", "7"], "no checkpoint of step 7"),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], expected: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("internalize", *(run if argument == "RUN" else argument for argument in arguments)) == 2
    shown = capsys.readouterr().err
    assert expected in shown
    assert shown.count("error:") == 1
    assert {path.name for path in run.iterdir() if path.is_dir()} == {"checkpoints", "contexts", "rollouts"}


def test_a_run_without_saved_rollouts_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("*.parquet"))
    assert call("internalize", bare, "--trust") == 2
    assert "has no saved rollouts" in capsys.readouterr().err


def test_without_memory_it_says_what_to_lower(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def update(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(LocalEngine, "update", update)
    arguments = ["internalize", run, "--epochs", "1", "--out", tmp_path / "out", "--microbatch", "2"]
    assert call(*arguments) == 2
    shown = capsys.readouterr().err
    assert "out of GPU memory" in shown
    assert "lower --microbatch, now 2" in shown
    assert not (tmp_path / "out").exists()
