"""Whole searches on an engine of pure Python: what is found, counted and left, also after interruptions."""

from pathlib import Path

import pytest
from discover_helpers import Changes, left, recipe, search_of
from fake_engine import Numbered
from fake_runs import make_loop, resume, run

from fastslow.base.errors import TaskError
from fastslow.runs.folder import RunFolder
from fastslow.tasks.stages import Mixture, Part


@pytest.mark.parametrize("method", ["fst", "rl", "gepa"])
def test_a_search_finds_better_candidates_and_writes_the_best(tmp_path: Path, method: str) -> None:
    task = search_of("differences", islands=2)
    run(tmp_path / "run", recipe(method), Changes(), task=task)
    rows = RunFolder.open(tmp_path / "run").rows("candidates")
    evaluated = [row for row in rows if "text" in row]
    assert [row["number"] for row in evaluated] == list(range(1, len(evaluated) + 1))
    assert len({row["id"] for row in evaluated}) == len(evaluated)
    counts = task.memory.archive.counts
    assert counts["evaluations"] == len(evaluated)
    assert counts["proposals"] + 1 == sum(
        counts[name] for name in ("evaluations", "duplicates", "unreadable", "failed")
    )
    assert counts["failed"] == counts["unverified"] == 0
    assert all(row["checks"] == [row["score"]] * 2 for row in rows if "checks" in row)
    valid = [row["score"] for row in evaluated if row["score"] is not None]
    best = task.memory.archive.best
    assert best is not None
    assert best.score == max(valid) > valid[0]
    assert task.problem.evaluate((tmp_path / "run" / "best.txt").read_text()).score == best.score


def test_a_killed_search_resumes_to_the_same(tmp_path: Path) -> None:
    run(tmp_path / "whole", recipe(), Changes(), task=search_of("differences"))
    for step in (1, 4):  # before and after a checkpoint
        engine, folder = Changes(), tmp_path / f"stopped-{step}"
        engine.fails_at = step
        loop = make_loop(folder, recipe(), engine, task=search_of("differences"))
        assert loop.record.run is not None
        loop.record.rescue = lambda error: None  # as after SIGKILL, nothing is saved
        with loop.record.run, pytest.raises(RuntimeError, match="the power is out"):
            loop.run()
        resume(folder, recipe(), Changes(), task=search_of("differences"))
        assert left(folder) == left(tmp_path / "whole"), step


def test_rewards_of_different_steps_are_not_compared(tmp_path: Path) -> None:
    """They are relative to an archive that gets better: a fall of them is none of the policy."""
    loop, _ = run(tmp_path / "run", recipe("rl"), Changes(), task=search_of("differences"))
    assert not loop.state.course.points
    assert RunFolder.open(tmp_path / "run").read_json("run.json")["best"] == loop.state.step  # type: ignore[index]


def test_the_time_before_a_search_begins_is_not_counted(tmp_path: Path) -> None:
    task = search_of("differences", seconds=1000)
    task.memory._started -= 2000  # the model took so long to load
    run(tmp_path / "run", recipe("rl"), Changes(), task=task)
    assert task.memory.archive.counts["evaluations"] > 1


def test_a_search_is_the_only_task_of_its_run() -> None:
    with pytest.raises(TaskError, match="task 'discover' cannot be one of several"):
        Mixture([Part("discover", 1.0, search_of("differences")), Part("other", 1.0, Numbered())])
