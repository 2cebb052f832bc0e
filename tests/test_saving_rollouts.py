"""Whole runs of a real model that save rollouts: an interruption changes nothing, on one process or on two."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from helpers import EXAMPLE, last_checkpoint, outcome, together
from safetensors.torch import load_file

from fastslow import start
from fastslow.export import export_run
from fastslow.recipe import load_recipe

SMALL = [
    "slow.steps=6", "slow.learning_rate=1e-2", "slow.warmup_steps=0", "slow.group=4", "slow.problems=4",
    "fast.cycle=3", "fast.anchors=6", "fast.budget=40", "fast.minibatch=2", "fast.proposals=2", "fast.population=2",
    "evaluation.problems=4", "evaluation.every=3", "output.checkpoint_every=1", "sampling.max_tokens=6",
]  # fmt: skip
SAVING = ["fast.rescore=from-rollouts", "fast.race=true", "fast.adaptive=true", "fast.overlap=true", "fast.reuse=true",
          "fast.reuse_age=1"]  # fmt: skip


@pytest.fixture(scope="module")
def by_words(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> list[str]:
    """A tiny model, and a grader by different words: answers of a group differ, none is perfect, and there are many edits."""
    file = tmp_path_factory.mktemp("grader") / "length.py"
    file.write_text(
        "def grade(answer, row):\n"
        "    words = answer.split()\n"
        "    return len(set(words)) / 8, f'say {len(words)} more words\\nuse the word {(words or [0])[0]}'\n"
    )
    return [f"task.grader={file}:grade", f"model={tiny_folder}", "model.device=cpu"]


def test_an_interrupted_run_ends_as_if_left_alone(by_words: list[str], tmp_path: Path) -> None:
    """From a checkpoint inside a cycle, and between two with the next one lost."""
    alone = start.train(load_recipe(EXAMPLE, [*SMALL, *by_words, *SAVING]), tmp_path / "alone")
    for step in (1, 3):
        folder = tmp_path / f"copy-{step}"
        shutil.copytree(alone, folder)
        for later in range(step + 1, 7):
            shutil.rmtree(folder / "checkpoints" / f"step-{later:06d}")
        if step == 3:
            (folder / "contexts" / "cycle-0001.json").unlink()
        start.resume(folder)
        assert outcome(folder) == outcome(alone)


def test_two_processes_train_one_run_reuse_rollouts_resume_it_export_it_and_refuse_another(
    by_words: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    recipe = [*SMALL, *by_words, *SAVING, "slow.steps=5", "slow.microbatch=8", f"output.folder={folder}"]
    first = together("train", EXAMPLE, *recipe)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("finished:") == 1  # one of them speaks
    expected = outcome(folder)
    assert expected["ledger"]["slow"]["reused"] > 0
    shutil.rmtree(folder / "checkpoints" / "step-000005")
    again = together("train", "--resume", folder)
    assert again.returncode == 0, again.stderr
    assert outcome(folder) == expected
    refused = together("train", EXAMPLE, *recipe)
    assert refused.returncode != 0
    assert "already holds a run" in refused.stderr
    export_run(folder, tmp_path / "model")
    exported, trained = (
        load_file(path / "model.safetensors") for path in (tmp_path / "model", last_checkpoint(folder))
    )
    assert all(torch.equal(exported[name], trained[name]) for name in exported)
