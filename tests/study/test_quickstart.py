"""The quickstart in small, from the command line: results, resuming after Ctrl-C, refusals."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from helpers import outcome
from PIL import Image

from fastslow.commands.app import main
from fastslow.recipe import load_recipe
from fastslow.runs.view import PlainView
from fastslow.study.curves import read_curve
from fastslow.study.training import METHODS

SMALL = [
    "slow.steps=2",
    "slow.problems=2",
    "slow.group=4",
    "slow.microbatch=8",
    "fast.anchors=2",
    "fast.budget=6",
    "task.shortest=3",
    "task.longest=4",
    "sampling.max_tokens=8",
    "evaluation.problems=2",
    "evaluation.every=2",
    "output.checkpoint_every=1",
]


def quickstart(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["quickstart", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def small(tiny_folder: Path) -> list[str]:
    return [*SMALL, f"model={tiny_folder}"]


@pytest.fixture(scope="module")
def finished(small: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quickstart") / "runs"
    assert quickstart(*small, "--out", folder) == 0
    return folder


def test_the_summary_says_what_the_runs_say(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    assert list(summary) == list(METHODS)
    for method, ended in summary.items():
        curve = read_curve(finished / method)
        assert ended == {
            "reward": curve.rewards[-1],
            "rollouts": curve.rollouts[-1],
            "kl": curve.kls[-1],
            "seconds": curve.seconds[-1],
        }
        assert ended["rollouts"] >= summary["fst"]["rollouts"]
        assert ended["seconds"] > 0
    assert summary["gepa"]["kl"] == 0


def test_the_curves_are_drawn(finished: Path) -> None:
    with Image.open(finished / "curves.png") as picture:
        assert picture.format == "PNG"
        assert len(picture.convert("RGB").getcolors(picture.width * picture.height) or []) > 10


def test_once_finished_it_only_shows_the_results(
    small: list[str], finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for method in METHODS for path in (finished / method).rglob("*")}
    assert quickstart(*small, "--out", finished) == 0
    shown = capsys.readouterr().out
    assert "1 of 3" not in shown
    assert "step " not in shown
    for part in ("FST", "RL only", "GEPA only", "95% interval", "seed text", "Answer the question.", "curves.png"):
        assert part in shown
    assert shlex.join(["contexts", str(finished / "fst")]) in shown  # on one line, however narrow the screen
    assert shlex.join(["board", str(finished)]) in shown
    assert before == {path: path.stat().st_mtime_ns for method in METHODS for path in (finished / method).rglob("*")}


def test_stopped_by_the_keyboard_it_resumes_to_the_same_end(
    small: list[str],
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(finished / "fst", folder / "fst")
    step = PlainView.step

    def stop(view: PlainView, number: int, *others: object) -> None:
        step(view, number, *others)  # type: ignore[arg-type]
        if number == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PlainView, "step", stop)
        assert quickstart(*small, "--out", folder) == 2
    shown = capsys.readouterr()
    assert "2 of 3: RL only" in shown.out
    assert "1 of 3" not in shown.out
    assert shown.err.startswith("error: interrupted; `")
    assert shown.err.endswith(f"{shlex.join(['quickstart', *small, '--out', str(folder)])}` resumes\n")
    assert shown.err.count("\n") == 1
    assert quickstart(*small, "--out", folder) == 0
    assert "resumes after 8 of" in capsys.readouterr().out
    for method in METHODS:
        assert outcome(folder / method) == outcome(finished / method)


def test_another_folder_or_other_settings_are_refused_in_one_line(
    small: list[str], finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    for arguments, expected in (
        ([*small, "--out", tmp_path], "is not empty and has no run"),
        ([*small, "seed=3", "--out", finished], "seed is 0 there and 3 here"),
        (["seed", "--out", tmp_path / "new"], "'seed' is not KEY=VALUE"),
    ):
        assert quickstart(*arguments) == 2
        shown = capsys.readouterr().err
        assert expected in shown
        assert shown.startswith("error:")
        assert shown.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_mistake_leaves_no_folder_in_the_way(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quickstart(*small, "task.book=none", "--out", tmp_path / "new") == 2
    assert "none" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_recipe_of_the_quickstart_can_be_trained_from(finished: Path) -> None:
    """As the last lines on the screen propose."""
    recipe = load_recipe(finished / "fst" / "recipe.yaml", ["task.book=orchard", "output.folder=runs/orchard"])
    assert recipe.tasks[0].options["book"] == "orchard"
    assert recipe.rollouts is None
