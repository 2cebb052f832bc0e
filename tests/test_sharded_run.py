"""FSDP2 over two processes: a run, its resume, its export; and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from accelerate import DistributedType
from helpers import BRIEF, EXAMPLE, last_checkpoint, outcome, together
from safetensors.torch import load_file

from fastslow import start
from fastslow.engine.local.trainer import FastSlowTrainer
from fastslow.errors import FastSlowError
from fastslow.evaluation.stored import evaluate_run
from fastslow.recipe import load_recipe
from fastslow.runs.export import export_run
from fastslow.runs.folder import RunFolder

FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
}
"""What `accelerate launch` sets for `fsdp_version: 2`; its default is to save weights in parts."""


def test_a_sharded_run_is_resumed_exported_and_measured(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recipe = [*BRIEF, f"model.name={tiny_folder}", "model.device=cpu", "slow.learning_rate=1e-2",
              "slow.microbatch=8", "slow.drop_zero_variance=false", "slow.std=none",
              "output.checkpoint_every=1", f"output.folder={folder}"]  # fmt: skip
    first = together("train", EXAMPLE, *recipe, **FSDP2)
    assert first.returncode == 0, first.stderr
    assert "weights are sharded" in first.stderr  # else every process had all of them
    expected = outcome(folder)
    shutil.rmtree(last_checkpoint(folder))
    RunFolder.open(folder).set_status("interrupted", checkpoint=1)
    with pytest.raises(FastSlowError, match="was saved with FSDP and cannot be resumed without") as alone:
        start.resume(folder)
    assert "\n" not in str(alone.value)
    again = together("train", "--resume", folder, **FSDP2)
    assert again.returncode == 0, again.stderr
    assert outcome(folder) == expected
    measured = evaluate_run(folder, k=1)
    assert measured.keys() == RunFolder.open(folder).rows("evals")[-1]["results"].keys()
    export_run(folder, tmp_path / "model")
    exported, base = (load_file(path / "model.safetensors") for path in (tmp_path / "model", tiny_folder))
    assert exported.keys() == base.keys()
    trained = load_file(last_checkpoint(folder) / "model.safetensors")
    assert all(torch.equal(exported[name], trained[name]) for name in exported)


def test_what_needs_all_weights_is_refused_with_one_line(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = [*BRIEF, f"model.name={tiny_folder}", "model.device=cpu", "slow.microbatch=8", "method=distill"]
    refused = together("train", EXAMPLE, *recipe, f"output.folder={tmp_path / 'run'}", **FSDP2)
    assert refused.returncode != 0
    assert "error: method=distill" in refused.stderr
    assert not (tmp_path / "run" / "run.json").exists()


def test_the_divergence_is_refused_where_weights_are_trained_and_sharded() -> None:
    def refuse(kind: DistributedType, *overrides: str) -> None:
        trainer = Mock(accelerator=Mock(distributed_type=kind))
        FastSlowTrainer._refuse_sharded(trainer, load_recipe(EXAMPLE, ["evaluation.divergence=true", *overrides]))

    for kind in (DistributedType.FSDP, DistributedType.DEEPSPEED):
        with pytest.raises(FastSlowError, match=r"^evaluation\.divergence needs all weights in one process"):
            refuse(kind)
        refuse(kind, "method=gepa")
    refuse(DistributedType.MULTI_CPU)
