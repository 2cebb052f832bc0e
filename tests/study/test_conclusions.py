"""What studies say of made-up runs whose answers are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from study_helpers import made_run, staged_run

from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.arms import Arm, make_arm
from fastslow.study.conclusions import CONCLUSIONS, Conclusion, _stage_names, kept
from fastslow.study.figures import save

FST = {0: [0.0, 0.4, 0.6, 0.8], 1: [0.0, 0.5, 0.5, 0.7], 2: [0.0, 0.3, 0.5, 0.9]}
RL = {0: [0.0, 0.2, 0.4, 0.3], 1: [0.0, 0.2, 0.3, 0.5], 2: [0.0, 0.0, 0.0, 0.0]}


def arms(tmp_path: Path, baseline: dict[int, list[float]] = RL) -> list[Arm]:
    fst = [RunFolder.open(made_run(tmp_path / f"fst-{seed}", FST[seed], seed=seed, fast=160)) for seed in FST]
    rl = [
        RunFolder.open(made_run(tmp_path / f"rl-{seed}", rewards, method="rl", seed=seed, kl=0.02))
        for seed, rewards in baseline.items()
    ]
    return [make_arm("FST", "fst", fst, 0), make_arm("RL only", "rl", rl, 0)]


def conclude(name: str, tmp_path: Path, baseline: dict[int, list[float]] = RL) -> Conclusion:
    found = CONCLUSIONS[name](arms(tmp_path, baseline), "made up")
    save(found.figure, tmp_path, name)
    assert Image.open(tmp_path / f"{name}.png").size[0] > 500
    return found


def number(found: Conclusion, arm: str, measure: str) -> float:
    (estimate,) = [value for label, what, value, _ in found.numbers if (label, what) == (arm, measure)]
    return estimate.mean


@pytest.mark.parametrize("name", [name for name in CONCLUSIONS if name != "continual"])
def test_every_study_states_its_finding_and_where_the_arms_ended(name: str, tmp_path: Path) -> None:
    found = conclude(name, tmp_path)
    assert found.finding
    assert number(found, "FST", "reward at the end") == pytest.approx(0.8)
    assert number(found, "RL only", "reward at the end") == pytest.approx(0.8 / 3)


def test_star_graph_counts_the_seeds_that_leave_zero(tmp_path: Path) -> None:
    found = conclude("star-graph", tmp_path)
    assert found.finding == "Leaves zero reward: FST with 3 of 3 seeds, RL only with 2 of 3 seeds"
    assert number(found, "FST", "first evaluation above zero, step") == 10


def test_ablations_name_what_the_seeds_settle(tmp_path: Path) -> None:
    said = "Significantly different from FST over these seeds: "
    assert conclude("ablations", tmp_path / "apart").finding == f"{said}none"  # 0.5, 0.2 and 0.9 less
    near = {0: [0.0, 0.3], 1: [0.0, 0.25], 2: [0.0, 0.3]}  # 0.5, 0.45 and 0.6 less
    assert conclude("ablations", tmp_path / "near", near).finding == f"{said}RL only by -0.52 [-0.71, -0.33]"


def test_continual_reads_every_task_at_the_end_of_its_stage(tmp_path: Path) -> None:
    rewards = {"fst": {"a": [0.0, 0.6, 0.5], "b": [0.0, 0.1, 0.8]}, "rl": {"a": [0.0, 0.3, 0.1], "b": [0.0, 0.0, 0.4]}}
    made = [
        make_arm(method, method, [RunFolder.open(staged_run(tmp_path / method, by_task, method))], 0)  # type: ignore[arg-type]
        for method, by_task in rewards.items()
    ]
    found = CONCLUSIONS["continual"](made, "made up")
    assert number(found, "fst", "a, at the end of its stage") == 0.6
    assert number(found, "rl", "b, at the end of its stage") == 0.4
    assert number(found, "rl", "share of the best arm, mean over stages") == pytest.approx(0.5)
    assert found.finding == "When the task changes, reward at the end of a stage is on average: fst 0.70, rl 0.35"


def test_what_is_kept_is_the_reward_on_earlier_tasks_at_the_end(tmp_path: Path) -> None:
    rewards = {"a": [0.0, 0.6, 0.5, 0.2], "b": [0.0, 0.1, 0.8, 0.3], "c": [0.0, 0.0, 0.0, 0.9]}
    made = [make_arm("FST", "fst", [RunFolder.open(staged_run(tmp_path / "run", rewards, "fst"))], 0)]
    assert [(arm, measure, found.mean, digits) for arm, measure, found, digits in kept(made)] == [
        ("FST", "a, at the end of the run", 0.2, 2),
        ("FST", "b, at the end of the run", 0.3, 2),
    ]


DIGITS = {"reward": 2, "difference": 2, "asymptote": 2, "share": 2, "seconds": 2, "KL": 3, "times": 1, "training": 0}
"""How many a number is shown with, by how its measure begins."""


@pytest.mark.parametrize("name", [name for name in CONCLUSIONS if name != "continual"])
def test_numbers_are_shown_with_as_many_digits_as_their_kind_deserves(name: str, tmp_path: Path) -> None:
    for _, measure, _, digits in conclude(name, tmp_path).numbers:
        assert digits == DIGITS.get(measure.split()[0], 0), measure


def test_stages_of_one_family_are_named_by_what_differs() -> None:
    stages = [{"name": "rulebook", "book": book, "words": 3, "steps": 1} for book in ("library", "harbour")]
    recipe = build_recipe({"model": "nano", "stages": [*stages, {"name": "star-graph", "degree": 2, "steps": 1}]})
    assert _stage_names(recipe) == ["rulebook (library)", "rulebook (harbour)", "star-graph"]
