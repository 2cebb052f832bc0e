"""Files of a run that change behind a checkpoint's back are missed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fastslow.base.errors import RunError
from fastslow.runs.checkpoint import check_witness, write_witness


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    run, checkpoint = tmp_path / "run", tmp_path / "checkpoint"
    for folder in (run / "contexts", run / "rollouts", checkpoint):
        folder.mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    (run / "contexts" / "cycle-0000.json").write_text("{}")
    for name in ("step-000001", "cycle-0000"):
        (run / "rollouts" / f"{name}.parquet").write_bytes(b"PAR1")
    write_witness(run, checkpoint)
    return run, checkpoint


def test_what_is_added_later_is_no_change(folders: tuple[Path, Path]) -> None:
    run, checkpoint = folders
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3}\n{"st')
    (run / "contexts" / "cycle-0001.json").write_text("{}")
    check_witness(run, checkpoint)


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "contexts/cycle-0000.json", "rollouts/step-000001.parquet", "rollouts/cycle-0000.parquet"],
)
@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?")],
)
def test_what_is_lost_or_changed_is_named(
    name: str, damage: Callable[[Path], None], folders: tuple[Path, Path]
) -> None:
    run, checkpoint = folders
    damage(run / name)
    with pytest.raises(
        RunError, match=rf"{Path(name).name}' (is missing|has changed) since the checkpoint 'checkpoint'"
    ):
        check_witness(run, checkpoint)


def test_checkpoints_of_earlier_versions_have_no_witness(tmp_path: Path) -> None:
    check_witness(tmp_path, tmp_path)
