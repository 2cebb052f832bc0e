"""The ledger as tables: what they show adds up to what was booked."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from fastslow.recipe import Recipe
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import PURPOSES, Entry, Ledger, show_ledger, spending, sum_rows, sums_by


@pytest.fixture
def run(tmp_path: Path, recipe: Recipe) -> RunFolder:
    return RunFolder.create(tmp_path / "run", recipe)


def printed(run: RunFolder, *, steps: bool, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show_ledger(run, console, steps=steps)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def shown(run: RunFolder, *, steps: bool) -> list[list[str]]:
    """The cells of every line that begins with a purpose or a number."""
    lines = (line.split() for line in printed(run, steps=steps))
    return [cells for cells in lines if cells and (cells[0] in (*PURPOSES, "training", "all") or cells[0].isdecimal())]


def book(run: RunFolder) -> Ledger:
    """Two cycles of two steps; a rollout costs 10 prompt tokens and 2 of completion."""
    total = Ledger()
    for step in range(5):
        row = Ledger()
        if step % 2:
            row.book(
                "rescore", Entry(rollouts=8, calls=8, prompt_tokens=80, completion_tokens=16, seconds=1.0, reused=3)
            )
            row.book("reflection", Entry(calls=2, prompt_tokens=1000, completion_tokens=100, seconds=0.5, cost=0.25))
        row.book("preflight", Entry(seconds=0.001))  # shown as zero
        if step:
            row.book("slow", Entry(rollouts=16 - step, calls=16 - step, prompt_tokens=160, seconds=2.0, reused=step))
        else:
            row.book("evaluation", Entry(rollouts=4, calls=4, faults={"grader": 1}))
        run.append("ledger", {"step": step, "cycle": max(step - 1, 0) // 2, "spent": row.spent()})
        total.add(row)
    return total


def test_the_lines_add_up(run: RunFolder) -> None:
    total = book(run)
    lines = {line[0]: line[1:] for line in shown(run, steps=False)}
    # rollouts, reused, calls, prompt tokens, completion tokens, seconds, cost
    assert lines["slow"] == ["54", "10", "54", "640", "0", "8.0", "0.0000"]
    assert lines["reflection"] == ["0", "0", "4", "2,000", "200", "1.0", "0.5000"]
    assert lines["evaluation"] == ["4", "0", "4", "0", "0", "0.0", "0.0000"]
    assert lines["training"][:3] == ["70", "16", "74"]
    assert lines["all"][:3] == ["74", "16", "78"]
    assert not lines.keys() & {"withdrawn", "rescue", "fast-score", "preflight"}, "rows of zeros are left out"
    assert "faults of evaluation: 1 grader" in printed(run, steps=False)
    # slow, rescore, evaluation, reused, reflections, tokens, seconds, cost: the others are zero
    assert lines["0"] == ["29", "8", "4", "6", "2", "1,516", "5.5", "0.2500"]
    assert lines["1"] == ["25", "8", "0", "10", "2", "1,516", "5.5", "0.2500"]
    assert sum_rows(run.rows("ledger")) == total
    assert sums_by(run.rows("ledger"), "step")[3]["slow"].rollouts == 13


def test_a_large_run_fits_80_columns(run: RunFolder) -> None:
    row = Ledger()
    for purpose in PURPOSES:
        row.book(
            purpose,
            Entry(128_000, 256_000, 123_456_789, 98_765_432, seconds=54_321.98, cost=123.4567, reused=64_000),
        )
    run.append("ledger", {"step": 1, "cycle": 0, "spent": row.spent()})
    lines = printed(run, steps=True)
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= 80
    table = lines[: lines.index("")] if "" in lines else lines
    assert sum("123.46M" in line for line in table) == len(PURPOSES)


def test_the_same_numbers_can_be_read_by_a_program(run: RunFolder) -> None:
    total = book(run)
    found = spending(run, steps=True)
    assert found["spent"]["all"]["rollouts"] == total.total().rollouts
    assert found["spent"]["evaluation"]["faults"] == {"grader": 1}
    assert [each["cycle"] for each in found["cycles"]] == [0, 1]
    assert sum(each["spent"]["slow"]["rollouts"] for each in found["steps"]) == total["slow"].rollouts
    assert "steps" not in spending(run, steps=False)


def test_steps_are_shown_when_asked_for(run: RunFolder) -> None:
    book(run)
    assert [line[0] for line in shown(run, steps=True)][-5:] == ["0", "1", "2", "3", "4"]
    assert len(shown(run, steps=True)) == len(shown(run, steps=False)) + 5


def test_a_run_without_a_step_says_so(run: RunFolder) -> None:
    assert "has no entries" in " ".join(" ".join(printed(run, steps=False)).split())
    assert spending(run, steps=False)["cycles"] == []


def test_faults_of_older_runs_have_their_present_names(run: RunFolder) -> None:
    for step, fault in enumerate(("cut_off", "truncated")):
        row = Ledger()
        row.book("slow", Entry(rollouts=4, faults={fault: step + 1}))
        run.append("ledger", {"step": step, "cycle": 0, "spent": row.spent()})
    assert "faults of slow: 3 truncated" in printed(run, steps=False)


def test_rows_after_a_checkpoint_are_forgotten_with_it(run: RunFolder) -> None:
    book(run)
    run.rewind(2)
    assert [row["step"] for row in run.rows("ledger")] == [0, 1, 2]


def test_what_a_cycle_leaves_comes_back_and_goes(run: RunFolder) -> None:
    left = {"contexts": {}, "rollouts": [{"logprob": -0.1 / 3, "text": "odd \udc80"}]}
    run.save_cycle(3, {"cycle": 3}, left)
    run.save_cycle(4, {"cycle": 4})
    assert run.cycle(3, with_memory=True) == {"cycle": 3, "memory": left}
    assert run.cycle(4, with_memory=True) is None
    assert run.cycle(4) == {"cycle": 4}
    assert [data["cycle"] for data in run.cycles()] == [3, 4]
    run.forget_memory(3)
    assert run.cycle(3, with_memory=True) is not None
    run.forget_memory(4)
    assert run.cycle(3, with_memory=True) is None


def test_a_damaged_packed_file_is_explained(tmp_path: Path) -> None:
    files.write_packed(tmp_path / "some.json.gz", {"numbers": list(range(1000))})
    data = (tmp_path / "some.json.gz").read_bytes()
    for broken in (data[:50], b"no gzip", data[:-20] + b"x" * 20):
        (tmp_path / "some.json.gz").write_bytes(broken)
        with pytest.raises(files.RunError, match=r"some\.json\.gz' cannot be read"):
            files.read_packed(tmp_path / "some.json.gz")
    assert files.read_packed(tmp_path / "none.json.gz") is None
