"""GEPA alone from the base model and from a run's weights, on three rulebooks, as small as it goes."""

from __future__ import annotations

import csv
import math
import shutil
from pathlib import Path

import pytest
import yaml
from PIL import Image
from rich.console import Console
from study_helpers import made_run

from fastslow.base.errors import FastSlowError
from fastslow.launch import start
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.curves import Estimate
from fastslow.study.quickstart import RECIPE
from fastslow.study.suite import Source, Spoke, _path, _short, collect, find_sources, radar, radar_title, run_suite

BRIEF = ["slow.steps=1", "slow.problems=2", "slow.group=4", "slow.microbatch=8", "slow.warmup_steps=0"]
BRIEF += ["slow.learning_rate=1e-2", "task.shortest=3", "task.longest=4", "fast.anchors=2", "fast.budget=4"]
BRIEF += ["fast.cycle=1", "evaluation.problems=2", "evaluation.divergence=false", "sampling.max_tokens=6"]
TASKS = ["rulebook/harbour", "rulebook/library", "{name: rulebook, book: orchard, words: 2}"]


@pytest.fixture(scope="module")
def trained(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run of all weights, and one of an adapter."""
    folder = tmp_path_factory.mktemp("trained")
    settings = {"rl": [], "fst": ["model.lora={rank: 4, alpha: 8}"]}
    return {
        method: start.train(
            load_recipe(RECIPE, [*BRIEF, f"method={method}", f"model={tiny_folder}", *more]), folder / method
        )
        for method, more in settings.items()
    }


@pytest.fixture(scope="module")
def suite(trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Spoke]]:
    out = tmp_path_factory.mktemp("suite") / "out"
    return out, run_suite([*trained.values()], TASKS, out, Console(quiet=True), k=2)


def test_every_task_is_scored_from_every_starting_point(suite: tuple[Path, list[Spoke]]) -> None:
    out, spokes = suite
    names = ["rulebook/harbour", "rulebook/library", "rulebook book=orchard words=2"]
    assert list(dict.fromkeys(spoke.task for spoke in spokes)) == names
    assert list(dict.fromkeys(spoke.source for spoke in spokes)) == ["Base", "FST", "RL only"]
    assert len(spokes) == 3 * 3 * 2 * 2
    for spoke in spokes:
        assert 0 <= spoke.score.low <= spoke.score.mean <= spoke.score.high <= 1
    with (out / "suite.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows] == [spoke.score.mean for spoke in spokes]
    for kind in ("png", "svg"):
        assert (out / f"radar.{kind}").exists()
    with Image.open(out / "radar.png") as picture:
        assert min(picture.size) > 500


def test_the_weights_are_the_runs_own_and_nobody_starts_from_an_evolved_text(
    suite: tuple[Path, list[Spoke]], trained: dict[str, Path], tiny_folder: Path
) -> None:
    out, _ = suite
    recipes = {
        path.parent.name: RunFolder.open(path.parent).recipe for path in out.glob("runs/rulebook-harbour/*/run.json")
    }
    assert set(recipes) == {"base-seed0", "rl-seed0", "fst-seed0"}
    assert {recipe.method for recipe in recipes.values()} == {"gepa"}
    assert {recipe.model.lora for recipe in recipes.values()} == {None}
    assert recipes["base-seed0"].model.name == str(tiny_folder)
    assert recipes["rl-seed0"].model.name == str(trained["rl"] / "checkpoints" / "step-000001")
    assert recipes["fst-seed0"].model.name == str(out.resolve() / "models" / "fst-seed0")  # the adapter, merged
    for path in out.glob("runs/*/*"):
        assert (
            RunFolder.open(path).cycles()[0]["carried"]
            == RunFolder.open(out / "runs/rulebook-harbour/base-seed0").cycles()[0]["carried"]
        )
        assert not list(path.glob("checkpoints/*/*.safetensors"))


def test_a_finished_suite_is_kept_and_other_settings_are_refused(
    suite: tuple[Path, list[Spoke]], trained: dict[str, Path]
) -> None:
    out, spokes = suite
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/run.json")}
    again = run_suite([*trained.values()], TASKS, out, Console(quiet=True), k=2)
    assert again == spokes
    assert {path: path.stat().st_mtime_ns for path in before} == before
    with pytest.raises(FastSlowError, match=r"with other settings: fast.budget is 4 there and 5 here"):
        run_suite([*trained.values()], TASKS, out, Console(quiet=True), overrides=["fast.budget=5"], k=2)


def test_mistakes_are_told(trained: dict[str, Path], suite: tuple[Path, list[Spoke]], tmp_path: Path) -> None:
    console = Console(quiet=True)
    with pytest.raises(FastSlowError, match="no task is given"):
        run_suite([trained["rl"]], [], tmp_path / "out", console)
    with pytest.raises(FastSlowError, match=r"--task \[1\]: expected a name"):
        run_suite([trained["rl"]], ["[1]"], tmp_path / "out", console)
    with pytest.raises(FastSlowError, match="no run is given"):
        find_sources([])
    with pytest.raises(FastSlowError, match="second run of RL only with seed 0"):
        find_sources([trained["rl"], trained["rl"]])
    with pytest.raises(FastSlowError, match="has frozen weights"):
        find_sources([suite[0] / "runs" / "rulebook-harbour" / "base-seed0"])
    assert not (tmp_path / "out").exists()


def test_code_of_a_run_that_was_not_made_here_needs_trust(trained: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "received"
    shutil.copytree(trained["rl"], folder)
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    recipe["task"] = {"name": "dataset", "path": "rows.jsonl", "grader": "grading:grade"}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(FastSlowError, match=r"executes code: .*--trust"):
        run_suite([folder], TASKS, tmp_path / "out", Console(quiet=True))


def test_the_title_says_who_is_best_on_how_many_tasks() -> None:
    def spokes(scores: dict[str, list[float]]) -> list[Spoke]:
        return [
            Spoke(str(task), source, None, "after", "mean", Estimate(score, score - 0.1, score + 0.1), 10)
            for source, values in scores.items()
            for task, score in enumerate(values)
        ]

    assert radar_title(spokes({"Base": [0.1, 0.5, 0.2], "FST": [0.2, 0.4, 0.9]})) == (
        "After GEPA, FST is highest on 2 of 3 tasks, beyond the intervals on 1"
    )
    assert radar_title(spokes({"Base": [0.1, 0.5], "FST": [0.3, 0.4]})) == (
        "After GEPA, Base and FST are each highest on 1 of 2 tasks"
    )


def test_the_title_is_of_mean_scores_after_gepa() -> None:
    def spoke(source: str, score: float, when: str = "after", measure: str = "mean") -> Spoke:
        return Spoke("task", source, None, when, measure, Estimate(score), 10)

    spokes = [
        spoke("Base", 0.2),
        spoke("FST", 0.3),
        spoke("Base", 0.9, when="before"),
        spoke("Base", 0.9, measure="best"),
    ]
    assert radar_title(spokes) == "After GEPA, FST is highest on 1 of 1 tasks, beyond the intervals on 0"
    assert radar_title(spokes, "best") == "After GEPA, Base is highest on 1 of 1 tasks, beyond the intervals on 0"


def test_scores_are_those_of_the_first_and_the_last_evaluation_over_seeds(tmp_path: Path) -> None:
    """After GEPA that is the best context or, where none was found, the seed text."""
    sources = [Source(label, method, seed) for label, method in (("Base", None), ("FST", "fst")) for seed in (0, 1)]
    for source in sources:
        rewards = [0.2 + 0.1 * source.seed, 0.5, 0.6 + 0.1 * source.seed]
        made_run(_path(tmp_path, "a task", source), rewards, method="rl" if source.method is None else "fst")
    scores = {
        (each.source, each.when, each.measure): each.score.mean for each in collect(tmp_path, ["a task"], sources)
    }
    assert scores == {
        (label, when, measure): pytest.approx(0.25 if when == "before" else 0.65)
        for label in ("Base", "FST")
        for when in ("before", "after")
        for measure in ("mean", "best")
    }


@pytest.mark.parametrize(("most", "rim"), [(0.05, 0.1), (0.4, 0.46), (0.95, 1.0)])
def test_a_radar_shows_every_score_and_reaches_beyond_the_highest(most: float, rim: float) -> None:
    tasks, sources = ("a", "b", "c"), ("Base", "FST", "RL only")
    spokes = [
        Spoke(task, source, None, when, measure, Estimate(score := most / (1 + place + number), 0.9 * score, score), 10)
        for measure in ("mean", "best")
        for number, source in enumerate(sources)
        for when in ("after", "before")
        for place, task in enumerate(tasks)
    ]
    left, right = radar(spokes, 4).axes
    assert (left.get_title(), right.get_title()) == ("mean@4 (reward, 0 to 1)", "best@4 (reward, 0 to 1)")
    assert left.get_ylim() == pytest.approx((0, rim))
    rings = [line for line in left.get_lines() if len(line.get_ydata()) == 4]
    for number in range(3):
        for ring in rings[2 * number : 2 * number + 2]:
            assert list(ring.get_ydata()) == pytest.approx([most / (1 + place + number) for place in (0, 1, 2, 0)])
            assert list(ring.get_xdata()) == pytest.approx([0, 2 * math.pi / 3, 4 * math.pi / 3, 0])
    assert [ring.get_linestyle() for ring in rings] == ["--", "-"] * 3
    whiskers = [line for line in left.get_lines() if len(line.get_ydata()) == 2]
    shifts = {round(float(line.get_xdata()[0]) % (2 * math.pi / 3), 9) for line in whiskers}
    assert shifts == {round(shift % (2 * math.pi / 3), 9) for shift in (-0.035, 0.0, 0.035)}
    assert [label.get_horizontalalignment() for label in left.get_xticklabels()] == ["center", "left", "right"]


def test_a_radar_names_tasks_by_what_is_their_own() -> None:
    assert _short(["rulebook/harbour", "rulebook/library"]) == ["harbour", "library"]
    assert _short(["rulebook book=a words=2", "rulebook book=b words=2", "gsm8k"]) == [
        "rulebook book=a\nwords=2",
        "rulebook book=b\nwords=2",
        "gsm8k",
    ]
    assert _short(["a x=1", "a"]) == ["x=1", "a"]
