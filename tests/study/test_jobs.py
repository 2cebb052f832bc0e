"""The runs of a study: in which order they start, how many at a time, what is said of them, and what is refused."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from study_helpers import made_run

from fastslow.base.errors import FastSlowError, RunError
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.study import studies, training
from fastslow.study.arms import LOOKS
from fastslow.study.curves import read_curve
from fastslow.study.quickstart import RECIPE
from fastslow.study.studies import STUDIES
from fastslow.study.training import METHODS, Job, Variant, check_methods, jobs_of, run_jobs, run_method

BASE = load_recipe(RECIPE)
FIRST = Variant("first", "the first")


def told(job: Job, parallel: int) -> dict[str, str]:
    """What the process of a run is told: its arguments and its threads, from its log."""
    assert training._start(job, BASE, parallel).wait() == 0
    arguments, threads = job.log.read_text().splitlines()[-2:]
    return {"arguments": arguments, "threads": threads}


def test_a_run_is_begun_from_its_recipe_and_the_weights_before_it_and_then_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = tmp_path / "says.sh"
    says.write_text('#!/bin/sh\necho "$@"\necho $OMP_NUM_THREADS\n')
    says.chmod(0o755)
    monkeypatch.setattr(training.sys, "executable", str(says))
    monkeypatch.setattr(training.os, "cpu_count", lambda: 12)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    exported: list[tuple[Path, Path]] = []

    def save(policy: tuple[Path, str], place: Path) -> None:
        assert policy[1] == "last"
        exported.append((policy[0], place))
        place.mkdir(parents=True)

    monkeypatch.setattr(training, "open_snapshot", lambda folder, step: (folder, step))
    monkeypatch.setattr(training, "save_policy", save)
    first = Variant("first", "the first")
    others = [replace(first, name=name, after=first) for name in ("second", "third")]
    before, *after = jobs_of(others, [3], tmp_path)
    for job in (before, *after):
        recipe = tmp_path / "recipes" / f"{job.name}.yaml"
        assert told(job, 3) == {"arguments": f"-m fastslow train {recipe}", "threads": "4"}
        assert load_recipe(recipe) == job.recipe(BASE)
        assert exported == [(before.folder, tmp_path / "weights" / "first-seed3")] * (job is not before)
    assert load_recipe(tmp_path / "recipes" / "second-seed3.yaml").model.name == str(exported[0][1])
    before.folder.mkdir(parents=True)
    (before.folder / "run.json").write_text("{}")
    for processors, parallel, threads in ((12, 5, "2"), (12, 20, "1"), (None, 1, "1")):
        monkeypatch.setattr(training.os, "cpu_count", lambda processors=processors: processors)
        assert told(before, parallel) == {
            "arguments": f"-m fastslow train --resume {before.folder}",
            "threads": threads,
        }


class Process:
    """A run that trains for three polls and then ends; one named `bad` fails."""

    started: list[str]
    running: set[str]
    most: int

    def __init__(self, command: list[str], stdout: Any, **_: Any) -> None:
        self.recipe = load_recipe(Path(command[-1]))
        self.name, self.left, self.returncode = Path(command[-1]).stem, 3, 0
        Process.started.append(self.name)
        Process.running.add(self.name)
        Process.most = max(Process.most, len(Process.running))
        self.said = stdout.name

    def poll(self) -> int | None:
        self.left -= 1
        Path(self.said).write_text(f"epoch\nstep {3 - self.left}\n\n")
        if self.left:
            return None
        Process.running.discard(self.name)
        self.returncode = int(self.name.startswith("bad"))
        if self.returncode:
            Path(self.said).write_text("Traceback\nError: no such model\n")
        else:
            RunFolder.create(Path(str(self.recipe.output.folder)), self.recipe).set_status("finished")
        return self.returncode


@pytest.fixture
def _processes(monkeypatch: pytest.MonkeyPatch) -> None:
    Process.started, Process.running, Process.most = [], set(), 0
    monkeypatch.setattr(training, "POLL", 0.0)
    monkeypatch.setattr(training, "subprocess", SimpleNamespace(Popen=Process, DEVNULL=None, STDOUT=None))
    monkeypatch.setattr(training, "open_snapshot", lambda folder, step: folder)
    monkeypatch.setattr(training, "save_policy", lambda policy, place: place.mkdir(parents=True))


def begun(names: list[str], out: Path, after: str = "") -> list[Job]:
    variants = [replace(FIRST, name=name, after=FIRST if name == after else None) for name in names]
    return jobs_of(variants, [0], out)


@pytest.mark.usefixtures("_processes")
def test_runs_wait_for_those_they_need_and_no_more_run_than_may(tmp_path: Path) -> None:
    jobs = begun(["second", "other", "third"], tmp_path, after="second")
    assert [job.name for job in jobs] == ["first-seed0", "second-seed0", "other-seed0", "third-seed0"]
    said: list[tuple[str, str]] = []
    run_jobs(jobs, BASE, 2, lambda name, state: said.append((name, state)))
    assert Process.started[:2] == ["first-seed0", "other-seed0"]
    assert sorted(Process.started[2:]) == ["second-seed0", "third-seed0"]
    assert Process.most == 2
    assert [state for name, state in said if name == "second-seed0"] == ["waiting", "step 1", "step 2", "finished"]
    run_jobs(jobs, BASE, 2, lambda name, state: said.append((name, state)))
    assert said[-4:] == [(job.name, "finished") for job in jobs]
    assert len(Process.started) == 4
    with pytest.raises(FastSlowError, match=r"other settings: slow\.steps is "):
        run_jobs(jobs, load_recipe(RECIPE, ["slow.steps=7"]), 2, lambda name, state: None)


@pytest.mark.usefixtures("_processes")
def test_after_a_failure_those_that_run_are_waited_for_and_no_other_starts(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=10)
    with pytest.raises(RunError, match=r"bad-seed0' failed: Error: no such model \(full log: .*bad-seed0\.log"):
        studies._run(begun(["bad", "good", "late"], tmp_path), BASE, 2, console)
    assert Process.started == ["bad-seed0", "good-seed0"]
    assert training.finished(tmp_path / "runs" / "good-seed0")
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.splitlines() == ["bad-seed0: failed", "good-seed0: finished"]


@pytest.mark.usefixtures("_processes")
def test_a_terminal_shows_the_state_of_every_run(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)
    studies._run(begun(["one", "other"], tmp_path), BASE, 1, console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[\d?]*[a-zA-Z]", "", said).splitlines()]
    *_, place = [place for place, line in enumerate(lines) if line == "one-seed0    finished"]
    assert lines[place + 1] == "other-seed0  finished"
    assert "one-seed0: finished" not in lines, "the table has said it"
    assert said.endswith("\x1b[1A\x1b[2K" * 2), "both of its lines are removed at the end"


@pytest.mark.usefixtures("_processes")
def test_a_state_is_a_line_and_cut_where_the_terminal_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_run(jobs: Any, base: Any, parallel: int, tell: Callable[[str, str], None]) -> None:
        tell("one", "step 1 of 5: a long state")

    monkeypatch.setattr(studies, "run_jobs", one_run)
    console = Console(file=io.StringIO(), width=20, force_terminal=True, color_system=None)
    studies._run([], BASE, 1, console)
    said = re.sub(r"\x1b\[[\d?]*[a-zA-Z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert [line.rstrip() for line in said.splitlines() if line.strip()] == ["one  step 1 of 5: a…"]


def test_runs_that_start_from_others_look_like_those(tmp_path: Path) -> None:
    variants = STUDIES["plasticity"].variants(BASE, [{"name": "rulebook"}, {"name": "rulebook", "book": "harbour"}])
    for job in jobs_of(variants, [0], tmp_path):
        made_run(job.folder, [0.1, 0.3], method=job.recipe(BASE).method)
    arms = studies._arms([[Job(variant, 0, tmp_path)] for variant in variants])
    assert [arm.label for arm in arms] == [variant.label for variant in variants]
    assert [arm.look.colour for arm in arms] == [each.colour for each in (studies.BASE, LOOKS["rl"], LOOKS["fst"])]
    assert len({arm.line for arm in arms}) == 1, "colours tell them apart"
    same = studies._arms([[Job(variants[0], 0, tmp_path)], [Job(variants[0], 0, tmp_path)]])
    assert len({arm.line for arm in same}) == 2


# Methods at equal rollouts ---------------------------------------------------------------------------------------------


def test_other_methods_get_the_rollouts_of_fst_and_a_finished_run_is_kept(tmp_path: Path) -> None:
    made_run(tmp_path / "fst", [0.1, 0.3], fast=100)
    assert run_method("fst", BASE, tmp_path) == tmp_path / "fst"
    made_run(tmp_path / "rl", [0.1, 0.3], method="rl")
    assert run_method("rl", BASE, tmp_path) == tmp_path / "rl"
    for method in METHODS[1:]:
        recipe = training._recipe_of(method, BASE, tmp_path)
        assert (recipe.method, recipe.rollouts) == (method, read_curve(tmp_path / "fst").rollouts[-1])
    assert training._recipe_of("fst", BASE, tmp_path) == BASE


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    check_methods(BASE, tmp_path / "new")
    check_methods(BASE, tmp_path)  # empty
    made_run(tmp_path / "runs" / "fst", [0.1, 0.3], settings={"slow": {"steps": 7, "problems": 4, "group": 8}})
    with pytest.raises(FastSlowError, match="is not empty and has no run"):
        check_methods(BASE, tmp_path)
    with pytest.raises(FastSlowError, match=r"holds runs with other settings: .*slow\.steps is 7 there"):
        check_methods(BASE, tmp_path / "runs")
    check_methods(RunFolder.open(tmp_path / "runs" / "fst").recipe, tmp_path / "runs")
    (tmp_path / "file").write_text("")
    with pytest.raises(FastSlowError, match="is a file"):
        check_methods(BASE, tmp_path / "file")


@pytest.mark.parametrize("setting", ["method=rl", "output.folder=elsewhere", "evaluation.every=0"])
def test_settings_that_leave_nothing_to_compare_are_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(FastSlowError, match=setting):
        check_methods(load_recipe(RECIPE, [setting]), tmp_path)
