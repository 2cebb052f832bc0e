"""A GPU that is too small, played on a CPU: errors as torch raises them, from where it would."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import EXAMPLE, ROOT

from fastslow.base.errors import RecipeError, RunError
from fastslow.commands.app import main
from fastslow.engine.local import out_of_memory, trainer
from fastslow.engine.local.sampler import PolicySampler
from fastslow.launch import start
from fastslow.models import load
from fastslow.recipe import GRADING_SETTINGS, LENGTH_SETTINGS, MACHINE_SETTINGS, build_recipe, load_recipe
from fastslow.runs.folder import RunFolder

BRIEF = ("method=rl", "slow.steps=2", "evaluation.problems=4", "output.checkpoint_every=1")
RECIPE = build_recipe({"model": "nano", "task": "rulebook"})


def full(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        ImportError("lib.so: failed to map segment from shared object"),
        SystemError("error return without exception set"),
    ],
    ids=repr,
)
def test_a_machine_without_memory_is_one_line(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^out of memory: free some, .*$"), out_of_memory.explained(RECIPE, tmp_path):
        raise error
    with pytest.raises(OSError, match="No space"), out_of_memory.explained(RECIPE, tmp_path):
        raise OSError(errno.ENOSPC, "No space")


@pytest.mark.parametrize(
    ("owner", "name", "message"),
    [
        (
            PolicySampler,
            "sample",
            r"while sampling: lower sampling\.batch=256 to 128; or .*max_tokens, in a new run$",  # before step 1
        ),
        (
            trainer,
            "completion_logprobs",
            r"while updating: lower slow\.microbatch=\d+ to \d+ .*gradient_checkpointing=true.*model\.lora.*"
            r"resume with `fastslow train --resume",
        ),
        (load, "load_policy", r"while loading: train an adapter .*; or use a smaller model[^(]*in a new run$"),
    ],
)
def test_the_error_says_which_setting_makes_room(
    owner: Any, name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, full)
    with pytest.raises(RunError, match=message):
        start.train(load_recipe(EXAMPLE, BRIEF), tmp_path / "run")
    assert (tmp_path / "run").exists() == (name == "completion_logprobs")


def test_a_run_goes_on_with_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = trainer.completion_logprobs

    def small(model: Any, prompts: Any, completions: Any) -> Any:
        return score(model, prompts, completions) if len(prompts) <= 4 else full()

    monkeypatch.setattr(trainer, "completion_logprobs", small)
    # Every group is trained on, whatever its rewards.
    monkeypatch.setattr("fastslow.slow.update.informative", lambda rewards, _: np.ones(rewards.shape, dtype=bool))
    with pytest.raises(RunError, match="microbatch"):
        start.train(load_recipe(EXAMPLE, [*BRIEF, "slow.microbatch=8"]), tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").read_json("run.json")["status"] == "failed"  # type: ignore[index]
    start.resume(tmp_path / "run", overrides=["slow.microbatch=4"])
    run = RunFolder.open(tmp_path / "run")
    assert run.recipe.slow.microbatch == 4
    assert [row["step"] for row in run.rows("metrics")] == [1, 2]


def test_what_a_run_learns_cannot_change_on_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = start.train(load_recipe(EXAMPLE, [*BRIEF, "slow.steps=1"]), tmp_path / "run")
    with pytest.raises(RecipeError, match=r"slow\.learning_rate cannot be changed on resume; only slow\."):
        start.resume(path, overrides=["slow.learning_rate=1"])
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--resume", str(path), "seed=3"])
    assert "seed cannot be changed" in capsys.readouterr().err
    assert RunFolder.open(path).recipe.seed == 0
    start.resume(path, overrides=["grading.faulty=0.5", "grading.timeout=5"])
    grading = RunFolder.open(path).recipe.grading
    assert (grading.faulty, grading.timeout) == (0.5, 5)


def test_the_docs_list_what_can_change_on_the_way() -> None:
    section = (ROOT / "docs" / "run-folder.md").read_text().partition("## Resume")[2]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = [tuple(re.findall("`(.+?)`", row)) for row in rows]
    assert listed == [MACHINE_SETTINGS, GRADING_SETTINGS, LENGTH_SETTINGS]


def test_other_commands_get_one_line_too() -> None:
    with (
        pytest.raises(RunError, match=r"^out of GPU memory while loading: use less$"),
        out_of_memory.refused("use less"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    with pytest.raises(RuntimeError, match="other"), out_of_memory.refused("use less"):
        raise RuntimeError("other")
