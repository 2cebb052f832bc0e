"""The benchmark of a step runs where there is nothing but a CPU, and its numbers hang together."""

from __future__ import annotations

import importlib
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from helpers import ROOT

SIZES = ["--problems=2", "--group=4", "--population=2", "--tokens=3", "--problem-tokens=8", "--microbatch=4"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("benchmark") / "step"
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.syspath_prepend(ROOT)
        step = importlib.import_module("benchmarks.step")
        step.main(["--model=tiny", "--repeats=1", f"--out={out}", *SIZES, "--contexts", "0", "90"])
    assert "TRL, transformers" in printed.getvalue()
    return out


def test_every_system_and_length_has_its_phases(out: Path) -> None:
    report = json.loads(out.with_suffix(".json").read_text())
    assert [(row["system"], row["context"]) for row in report["rows"]] == [
        ("fastslow", 0),
        ("fastslow", 90),
        ("trl", 0),
        ("trl", 90),
    ]
    for row in report["rows"]:
        assert row["seconds"] == pytest.approx(sum(row["phases"].values()))
        assert all(row["phases"][phase] > 0 for phase in ("sampling", "grading", "reference", "update"))
        assert row["tokens_per_second"] == pytest.approx(8 * 3 / row["seconds"])
        assert row["peak_bytes"] > 1e8
        assert 0 < row["shares"]["sampling"]["matrix"] < 1


def test_there_is_a_picture(out: Path) -> None:
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
