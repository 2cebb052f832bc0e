"""The benchmark of a step runs where there is nothing but a CPU, and its numbers hang together."""

from __future__ import annotations

import importlib
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

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


def test_answers_end_where_they_were_told_to(tmp_path: Path) -> None:
    """With an adapter, and with answers of random lengths, which are the same in both systems."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
        patch.syspath_prepend(ROOT)
        step, systems = importlib.import_module("benchmarks.step"), importlib.import_module("benchmarks.step_systems")
        seen: dict[str, list[int]] = {"fastslow": [], "trl": []}
        rollout, score, job = systems._rollout, systems.score, None

        def counted(number: int, prompt: list[int], completion: Any, *rest: Any) -> Any:
            seen["fastslow"].append(len(completion.ids))
            return rollout(number, prompt, completion, *rest)

        patch.setattr(systems, "_rollout", counted)
        start = systems.run_trl

        def run_trl(given: Any, clock: Any) -> None:
            nonlocal job
            job = given
            patch.setattr(systems, "score", lambda ids: seen["trl"].append(len(ids)) or score(ids))
            start(given, clock)

        patch.setitem(step.SYSTEMS, "trl", (run_trl, False, "TRL, transformers"))
        options = ["--shape=tiny", "--lora", "4", "--mean-tokens=4", "--kl=0", "--repeats=1", "--contexts", "20"]
        step.main([*options, *SIZES, "--tokens=9", f"--out={tmp_path / 'step'}"])
    told = [length for lengths in job.lengths for length in lengths]  # type: ignore[attr-defined]
    assert seen["fastslow"] == seen["trl"] == told
    assert len(set(told)) > 1
    report = json.loads((tmp_path / "step.json").read_text())
    assert [row["completion_tokens"] for row in report["rows"]] == [sum(told[8:])] * 2


def test_steps_with_rollouts_begun_ahead_train_on_complete_groups(tmp_path: Path) -> None:
    taken: list[list[int]] = []
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
        patch.syspath_prepend(ROOT)
        step, systems = importlib.import_module("benchmarks.step"), importlib.import_module("benchmarks.step_systems")
        take, begun = systems.Begun.take, None

        def seen(self: Any, *given: Any) -> Any:
            nonlocal begun
            begun, found = self, take(self, *given)
            taken.append([len(completion.ids) for completion in found[1]])
            return found

        patch.setattr(systems.Begun, "take", seen)
        options = ["--shape=tiny", "--lora", "4", "--mean-tokens=8", "--kl=0", "--repeats=3", "--contexts", "20"]
        step.main([*options, *SIZES, "--tokens=40", "--systems", "fastslow", "--ahead=1", f"--out={tmp_path / 'step'}"])
    groups = [begun.lengths[start : start + 4] for start in range(0, 32, 4)]  # type: ignore[attr-defined]
    assert [len(lengths) for lengths in taken] == [8] * 4
    trained = [lengths[start : start + 4] for lengths in taken for start in (0, 4)]
    assert all(each in groups for each in trained)
    assert trained != groups  # some were passed over until they were complete


def test_lengths_have_their_mean() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        draw = importlib.import_module("benchmarks.step_lengths").draw_lengths
    found = draw(100_000, 345, 1024, 0)
    assert sum(found) / len(found) == pytest.approx(345, rel=0.02)
    assert 1 <= min(found) < max(found) == 1024
    assert draw(3, None, 16, 0) == draw(3, 16, 16, 0) == [16] * 3


def test_a_decoding_step_is_divided_into_parts() -> None:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.syspath_prepend(ROOT)
        importlib.import_module("benchmarks.decode").main(["--shape=tiny", "--rows=8", "--columns", "16"])
    kernels, *words = printed.getvalue().splitlines()[-1].split()
    assert kernels == "none"
    columns, step, launched, weights, _, *parts, _ = map(float, words)
    assert columns == 16
    assert len(parts) == 4
    assert all(number > 0 for number in (step, launched, weights, *parts))


def test_there_is_a_picture(out: Path) -> None:
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
