"""FSDP2 over two processes: a run, its resume, its export; and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from helpers import BRIEF, EXAMPLE, last_checkpoint, outcome, together
from safetensors.torch import load_file

from fastslow.commands.app import main
from fastslow.launch.evaluate import evaluate_run
from fastslow.launch.export import export_run
from fastslow.runs.folder import RunFolder

FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
}
"""What `accelerate launch` sets for `fsdp_version: 2`; its default is to save weights in parts."""


def test_a_sharded_run_is_resumed_exported_and_measured_and_what_needs_all_weights_is_refused(
    by_words: list[str], tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    recipe = [*BRIEF, *by_words, "slow.learning_rate=1e-2", "slow.microbatch=8", "output.checkpoint_every=1"]
    train, divergence = ["train", EXAMPLE, *recipe], "evaluation.divergence=true"
    trained, frozen, *refused = together(
        [*train, f"output.folder={folder}"],
        [*train, f"output.folder={tmp_path / 'gepa'}", divergence, "method=gepa"],
        [*train, f"output.folder={tmp_path / 'none'}", divergence],
        [*train, f"output.folder={tmp_path / 'none'}", "method=distill"],
        folder=tmp_path / "notes",
        **FSDP2,
    )
    assert [ended.code for ended in trained] == [0, 0], trained
    assert "weights are sharded" in trained[0].error  # else every process had all of them
    assert [ended.code for ended in frozen] == [0, 0], frozen  # weights that do not change do not diverge
    for command, reason in zip(refused, ("evaluation.divergence needs all weights", "method=distill"), strict=True):
        for ended in command:
            assert ended.code == 2
            assert ended.error.startswith(f"error: {reason}")
            assert ended.error.count("\n") == 1
    assert not (tmp_path / "none" / "run.json").exists()

    expected = outcome(folder)
    shutil.rmtree(last_checkpoint(folder))
    RunFolder.open(folder).set_status("interrupted", checkpoint=1)
    capsys.readouterr()
    with pytest.raises(SystemExit) as alone:
        main(["train", "--resume", str(folder)])
    assert alone.value.code == 2
    said = capsys.readouterr().err
    assert "was saved with FSDP and cannot be resumed without" in said
    assert said.startswith("error:")
    assert said.count("\n") == 1
    ((again, other),) = together(["train", "--resume", folder], folder=tmp_path / "later", **FSDP2)
    assert (again.code, other.code) == (0, 0), again
    assert outcome(folder) == expected
    measured = evaluate_run(folder, k=1)
    assert measured.keys() == RunFolder.open(folder).rows("evals")[-1]["results"].keys()
    export_run(folder, tmp_path / "model")
    exported, base = (load_file(path / "model.safetensors") for path in (tmp_path / "model", tiny_folder))
    assert exported.keys() == base.keys()
    trained_weights = load_file(last_checkpoint(folder) / "model.safetensors")
    assert all(torch.equal(exported[name], trained_weights[name]) for name in exported)
    assert not any(torch.equal(exported[name], base[name]) for name in exported)
