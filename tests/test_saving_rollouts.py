"""Whole runs of a real model that save rollouts: an interruption changes nothing, on one process or on two."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from helpers import EXAMPLE, last_checkpoint, outcome, together
from safetensors.torch import load_file

from fastslow.launch import start
from fastslow.launch.export import export_run
from fastslow.recipe import load_recipe

SMALL = [
    "slow.steps=6", "slow.learning_rate=1e-2", "slow.warmup_steps=0", "slow.group=4", "slow.problems=4",
    "fast.cycle=3", "fast.anchors=6", "fast.budget=40", "fast.minibatch=2", "fast.optimizer.proposals=2", "fast.population=2",
    "evaluation.problems=4", "evaluation.every=3", "output.checkpoint_every=1", "sampling.max_tokens=6",
]  # fmt: skip
SAVING = ["fast.rescore=from-rollouts", "fast.adaptive=true", "fast.reuse=true"]


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
        start.resume(folder, step=step, trust=True)
        assert outcome(folder) == outcome(alone)


def test_two_processes_train_one_run_reuse_rollouts_resume_it_export_it_and_refuse_another(
    by_words: list[str], tmp_path: Path
) -> None:
    folder, copy = tmp_path / "run", tmp_path / "copy"
    recipe = [*SMALL, *by_words, *SAVING, "slow.steps=5", "slow.microbatch=8", "evaluation.divergence=true"]
    train = ["train", EXAMPLE, *recipe]
    trained, _, _, resumed, refused = together(
        [*train, f"output.folder={folder}"],
        ["copy", folder, copy],
        ["remove", copy / "checkpoints" / "step-000005"],
        ["train", "--resume", copy, "--step", "4", "--trust"],
        [*train, f"output.folder={folder}"],
        folder=tmp_path / "notes",
    )
    for command in (trained, resumed):
        assert [ended.code for ended in command] == [0, 0], command
        assert "finished:" in command[0].output
        assert command[1].output == ""  # one process speaks
    assert outcome(folder)["ledger"]["slow"]["reused"] > 0
    assert outcome(copy) == outcome(folder)
    for ended in refused:
        assert ended.code == 2
        assert "already holds a run" in ended.error
        assert ended.error.count("\n") == 1
    export_run(folder, tmp_path / "model")
    exported, trained = (
        load_file(path / "model.safetensors") for path in (tmp_path / "model", last_checkpoint(folder))
    )
    assert all(torch.equal(exported[name], trained[name]) for name in exported)
