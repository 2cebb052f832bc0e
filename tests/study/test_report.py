"""A comparison as an object says what `fastslow compare` writes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from study_helpers import made_run, staged_run

from fastslow.base.errors import FastSlowError
from fastslow.study.report import ComparedRuns, _runs_among, compare


@pytest.fixture
def compared(tmp_path: Path) -> ComparedRuns:
    folders = [
        made_run(tmp_path / "fst", [0.1, 0.2, 0.6, 0.8], fast=160),
        made_run(tmp_path / "rl", [0.1, 0.2, 0.4, 0.3], method="rl"),
    ]
    return compare(folders)


def test_the_tables_are_those_that_the_command_writes(compared: ComparedRuns, tmp_path: Path) -> None:
    out = compared.save(tmp_path / "out")
    assert (out / "report.html").exists()
    for name, frame in (("table.csv", compared.table), ("points.csv", compared.points)):
        with (out / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(frame) == len(rows)
        assert list(frame.columns) == list(rows[0])
        assert list(frame["arm"]) == [row["arm"] for row in rows]
    end = compared.table[compared.table["measure"] == "reward at the end"].set_index("arm")["mean"]
    assert end.to_dict() == {"FST": 0.8, "RL only": 0.3}
    assert compared.table["low"].dtype == float


def test_it_is_shown_as_text_and_as_html(compared: ComparedRuns) -> None:
    assert compared.title in repr(compared)
    assert "Training cost" in repr(compared)
    assert all(f"· {line}" in repr(compared) for line in compared.findings)
    page = compared._repr_html_()
    assert "<td>RL only</td>" in page
    assert all(line.split(";")[0] in page for line in compared.findings)


def test_a_notebook_can_show_its_figures(compared: ComparedRuns) -> None:
    assert compared.plot()._repr_png_().startswith(b"\x89PNG")
    assert {"reward", "cost", "divergence", "entropy"} == set(compared.figures)
    with pytest.raises(FastSlowError, match="no figure 'loss' of these runs; there are reward, cost"):
        compared.plot("loss")


def test_the_baseline_and_the_rollouts_are_chosen_as_on_the_command_line(tmp_path: Path) -> None:
    folders = [made_run(tmp_path / "a", [0.1, 0.5, 0.9]), made_run(tmp_path / "b", [0.1, 0.2, 0.3], method="rl")]
    found = compare(folders, "fst", 320)
    assert found.comparison.baseline.label == "FST"
    assert found.points["rollouts"].max() == 320


def test_it_says_of_how_many_seeds_and_problems_it_is(compared: ComparedRuns, tmp_path: Path) -> None:
    assert "of one seed: 95% intervals over" in compared.subtitle
    assert "; 1 seed; " in compared.subtitle
    seeds = [made_run(tmp_path / f"rl-{seed}", [0.1, 0.3], method="rl", seed=seed) for seed in range(3)]
    assert "; 3 seeds; " in compare(seeds).subtitle
    mixed = compare([*seeds, made_run(tmp_path / "fst-0", [0.1, 0.8])]).subtitle
    assert "; 1 to 3 seeds; " in mixed


def test_runs_with_stages_are_left_to_the_command(tmp_path: Path) -> None:
    folder = staged_run(tmp_path / "run", {"rulebook": [0.1, 0.5, 0.4], "star-graph": [0.0, 0.1, 0.6]}, "fst")
    with pytest.raises(FastSlowError, match=r"has stages; .* `fastslow compare`"):
        compare([folder])


@pytest.mark.parametrize(("count", "more"), [(1, ""), (4, ""), (5, " and 1 more"), (7, " and 3 more")])
def test_of_what_is_no_run_four_are_named(count: int, more: str, tmp_path: Path) -> None:
    run, others = made_run(tmp_path / "run", [0.1, 0.2]), [tmp_path / f"figures-{number}" for number in range(count)]
    for other in others:
        other.mkdir()
    named = ", ".join(f"'{other}'" for other in others[:4])
    assert _runs_among([*others, run]) == ([run], [f"skipped, no run: {named}{more}"])
