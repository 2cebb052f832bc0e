"""Runs that fall, runs that cannot learn, and which checkpoint is used of a run."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, Numbered
from fake_runs import make_loop, outcome, recipe_of, resume, run

from fastslow.base.errors import FastSlowWarning, NothingLearnt, RunError
from fastslow.engine.base import Numbers, Update
from fastslow.launch import start
from fastslow.launch.assembly import open_snapshot
from fastslow.launch.results import Run
from fastslow.records import Context
from fastslow.runs import files
from fastslow.runs.checkpoint import Checkpoints
from fastslow.runs.folder import RunFolder

LAST = 28


@pytest.fixture(scope="module", autouse=True)
def _no_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", lambda path: None)
        yield


class Falling(FakeEngine):
    """Right nine times in ten until step 15; then a full step makes it worse, and a smaller one does not."""

    def __init__(self, holds: bool = True) -> None:
        super().__init__(chance=0.0)
        self.skill, self.holds = 0.9, holds

    def update(self, update: Update) -> Numbers:
        self.events.append(("update", update))
        if update.step > 15 and (update.rate == 1 or not self.holds):
            self.skill = max(self.skill - 0.2, 0.1)
        return {"loss": 0.0, "grad_norm": 1.0, "learning_rate": update.rate, "entropy": 0.5}

    def load(self, checkpoint: Path) -> None:
        self.events.append(("load", checkpoint.name))
        self.skill = json.loads((checkpoint / "engine.json").read_text())["skill"]


def falling(method: str = "rl", **changes: Any) -> Any:
    slow = {"steps": LAST, "problems": 8, "group": 8, "microbatch": 8, **changes.pop("slow", {})}
    output = {"checkpoint_every": 100, "save_rollouts": False, **changes.pop("output", {})}
    return recipe_of(method, slow=slow, output=output, evaluation={"every": 0}, **changes)


def shown(loop: Any) -> str:
    return str(loop.record.view.console.file.getvalue())


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that falls and is not held."""
    folder = tmp_path_factory.mktemp("fallen") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastslow.slow.steady.FALLEN", float("inf"))
        run(folder, falling(output={"keep_checkpoints": 1}), Falling())
    return folder


def test_a_fall_is_answered_by_the_best_weights_and_smaller_steps(tmp_path: Path) -> None:
    loop, engine = run(tmp_path / "run", falling(), Falling())
    (loaded,) = [name for kind, name in engine.events if kind == "load"]
    best = int(loaded.removeprefix("step-"))
    assert best <= 16
    assert "has fallen from 0.9" in shown(loop)
    assert f"continues from the weights of step {best}, with a tenth of the learning rate" in shown(loop)
    rows = loop.record.run.rows("metrics")  # type: ignore[union-attr]
    first = next(row["step"] for row in rows if row["learning_rate"] < 1)
    assert 17 <= first <= 24
    assert all(row["reward"] > 0.7 for row in rows[first:]), "the smaller steps hold"
    assert open_snapshot(tmp_path / "run").step == LAST


@pytest.mark.parametrize(("holds", "kills"), [(True, (20,)), (False, (14, 24))])
def test_a_falling_run_that_is_killed_resumes_to_the_same_end(
    holds: bool, kills: tuple[int, ...], tmp_path: Path
) -> None:
    recipe = falling(output={"checkpoint_every": 5, "keep_checkpoints": 2})
    run(tmp_path / "alone", recipe, Falling(holds))
    expected, kept = outcome(tmp_path / "alone"), RunFolder.open(tmp_path / "alone")
    for fails_at in kills:
        folder, engine = tmp_path / str(fails_at), Falling(holds)
        update = engine.update

        def fail(update_: Update, update: Any = update, fails_at: int = fails_at) -> Numbers:
            if update_.step == fails_at:
                raise KeyboardInterrupt
            return update(update_)  # type: ignore[no-any-return]

        engine.update = fail  # type: ignore[method-assign]
        loop = make_loop(folder, recipe, engine)
        loop.record.rescue = lambda error: None  # type: ignore[method-assign]  # killed: nothing is saved
        with pytest.raises(KeyboardInterrupt), loop.record.run:  # type: ignore[union-attr]
            loop.run()
        resume(folder, recipe, Falling(holds))
        assert outcome(folder) == expected
        resumed = RunFolder.open(folder)
        assert resumed.checkpoints.steps() == kept.checkpoints.steps()
        names = ("best", "checkpoint")
        assert [resumed.read_json("run.json")[name] for name in names] == [  # type: ignore[index]
            kept.read_json("run.json")[name]
            for name in names  # type: ignore[index]
        ]


@pytest.mark.parametrize(("place", "lost"), [("run.json", False), ("run.json", True), ("prune", True)])
def test_which_checkpoints_stay_does_not_depend_on_where_saving_one_failed(
    place: str, lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, or refused once by the disk, after a checkpoint is in its place and before the rest is done."""
    recipe = falling(
        slow={"steps": 9, "problems": 4, "group": 2}, output={"checkpoint_every": 4, "keep_checkpoints": 1}
    )
    run(tmp_path / "alone", recipe, Falling())
    expected = RunFolder.open(tmp_path / "alone")
    assert any(step % 4 and step != 9 for step in expected.checkpoints.steps()), "the best ones are kept"
    whole = (RunFolder.write_json, Checkpoints.prune)
    for fails_at in range(1, 5):
        saved = 0

        def fail(fails_at: int = fails_at) -> None:
            nonlocal saved
            saved += 1
            if saved == fails_at:
                raise KeyboardInterrupt if lost else RunError("the disk is full")

        def write_json(self: RunFolder, name: str, data: Any, fail: Any = fail) -> None:
            if name == place and data.get("checkpoint", 0) > (self.read_json(name) or {}).get("checkpoint", 0):
                fail()
            whole[0](self, name, data)

        def prune(self: Checkpoints, *arguments: Any, fail: Any = fail) -> None:
            if place == "prune":
                fail()
            whole[1](self, *arguments)

        monkeypatch.setattr(RunFolder, "write_json", write_json)
        monkeypatch.setattr(Checkpoints, "prune", prune)
        folder = tmp_path / str(fails_at)
        loop = make_loop(folder, recipe, Falling())
        if lost:
            loop.record.rescue = lambda error: None  # type: ignore[method-assign]  # killed: nothing is saved
        with contextlib.suppress(KeyboardInterrupt, RunError), loop.record.run:  # type: ignore[union-attr]
            loop.run()
        monkeypatch.undo()
        resume(folder, recipe, Falling())
        opened = RunFolder.open(folder)
        assert opened.checkpoints.steps() == expected.checkpoints.steps()
        found, wanted = (each.read_json("run.json") or {} for each in (opened, expected))
        assert {**found, "started": ""} == {**wanted, "started": ""}
        assert outcome(folder) == outcome(tmp_path / "alone")


def test_a_best_checkpoint_that_could_not_be_saved_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastslow.slow.steady.FALLEN", float("inf"))
    begin = Checkpoints.begin

    def full(self: Checkpoints, step: int) -> Path:
        if step < LAST:
            raise RunError("the disk is full")
        return begin(self, step)

    monkeypatch.setattr(Checkpoints, "begin", full)
    loop, _ = run(tmp_path / "run", falling(), Falling())
    assert loop.state.course.chosen(LAST) < LAST
    assert (RunFolder.open(tmp_path / "run").read_json("run.json") or {})["best"] == LAST
    assert open_snapshot(tmp_path / "run").step == LAST


def test_the_best_checkpoint_is_kept_and_used_unless_another_is_asked_for(fallen: Path) -> None:
    opened = RunFolder.open(fallen)
    info = opened.read_json("run.json") or {}
    best = info["best"]
    assert 3 <= best <= 16
    assert info["checkpoint"] == LAST
    assert {best, LAST} <= set(opened.checkpoints.steps())
    assert len(opened.checkpoints.steps()) <= 3, "the two best and the last"
    with pytest.warns(
        FastSlowWarning, match=f"at step {best}, whose training reward was better .* {LAST}; `--step last`"
    ):
        assert open_snapshot(fallen).step == best
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_snapshot(fallen, "last").step == LAST
        assert open_snapshot(fallen, best).step == best
    assert f"best: step {best} by training reward, ended at step {LAST}" in repr(Run(fallen))
    with pytest.raises(RunError, match="no checkpoint of step 1 "):
        open_snapshot(fallen, 1)


def test_a_best_checkpoint_that_is_removed_by_a_resume_is_not_named(fallen: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(fallen, folder)
    opened = RunFolder.open(folder)
    best = (opened.read_json("run.json") or {})["best"]
    for step, named in ((None, best), (best, best), (0, None)):
        start._rewound(opened, opened.recipe, step, {})
        assert (opened.read_json("run.json") or {})["best"] == named
    assert opened.chosen_checkpoint() is None


def test_a_damaged_best_checkpoint_is_refused(fallen: Path) -> None:
    opened = RunFolder.open(fallen)
    best = (opened.read_json("run.json") or {})["best"]
    file = opened.checkpoints.get(best) / "engine.json"
    before = file.read_bytes()
    try:
        file.write_bytes(b"{}")
        with pytest.raises(RunError, match=f"step {best}.* is damaged"):
            open_snapshot(fallen)
        assert open_snapshot(fallen, "last").step == LAST
    finally:
        file.write_bytes(before)


def test_a_run_that_does_not_fall_is_used_at_its_end(tmp_path: Path) -> None:
    run(tmp_path / "run", falling(slow={"steps": 14}), Falling())
    assert (RunFolder.open(tmp_path / "run").read_json("run.json") or {})["best"] == 14


# Runs that cannot learn ------------------------------------------------------------------------------------------------


def test_a_run_that_cannot_learn_stops_and_can_be_told_to_continue(tmp_path: Path) -> None:
    recipe, folder = falling(slow={"steps": 12, "patience": 8}), tmp_path / "run"
    loop = make_loop(folder, recipe, FakeEngine(chance=-1.0))
    again = re.escape(f'fastslow.resume("{folder}", task=…, overrides=["slow.patience=null"])')
    said = rf"stopped after step 8.* for 8 steps .* equal: .*patience=8.*{again}"
    with pytest.raises(NothingLearnt, match=said), loop.record.run:  # type: ignore[union-attr]
        loop.run()
    assert RunFolder.open(folder).checkpoints.steps()[-1] == 8
    with pytest.raises(NothingLearnt, match="stopped after step 9"):
        resume(folder, recipe, FakeEngine(chance=-1.0))
    endless = falling(slow={"steps": 12, "patience": None})
    loop, _ = resume(folder, endless, FakeEngine(chance=-1.0))
    assert loop.state.step == 12
    run(tmp_path / "alone", endless, FakeEngine(chance=-1.0))
    assert outcome(folder) == outcome(tmp_path / "alone")


def test_a_gradient_starts_the_count_again(tmp_path: Path) -> None:
    class Rare(Falling):
        def _completion(self, text: str, draw: Any) -> Any:
            self.skill = 0.0
            self.chance = 0.5 if len([kind for kind, _ in self.events if kind == "sample"]) in (6, 12) else -1.0
            return super()._completion(text, draw)

    loop, _ = run(tmp_path / "rare", falling(slow={"steps": 16, "patience": 8}), Rare())
    assert loop.state.step == 16


@pytest.mark.parametrize("method", ["gepa", "distill"])
def test_a_method_that_needs_no_different_rewards_is_not_stopped(method: str, tmp_path: Path) -> None:
    loop, _ = run(tmp_path / "run", falling(method, slow={"steps": 14, "patience": 2}), FakeEngine(chance=-1.0))
    assert loop.state.step == 14


def test_with_a_fast_loop_cycles_count_too(tmp_path: Path) -> None:
    """Cycles of two steps: five of them without a new text, counted from the last one that kept any."""
    recipe = falling("fst", slow={"steps": 40, "patience": 3}, fast={"cycle": 2})
    loop = make_loop(tmp_path / "run", recipe, FakeEngine(chance=-1.0))
    evolve, texts = loop.evolution.evolve, iter(["a", "b", "c"])  # type: ignore[union-attr]

    def growing(problems: Any) -> Any:
        pool = evolve(problems)
        text = next(texts, None)  # the first three cycles find a text
        if text is None:
            return loop.state.pool
        member = type(pool.best)(Context({"system": text}))
        return type(pool)((member, *pool.members[:1]))

    loop.evolution.evolve = growing  # type: ignore[union-attr, method-assign]
    said = r"stopped after step 14.*for 10 steps.*and no new text was kept"
    with pytest.raises(NothingLearnt, match=said), loop.record.run:  # type: ignore[union-attr]
        loop.run()


def test_a_stage_begins_a_course_of_its_own(tmp_path: Path) -> None:
    recipe = falling(slow={"steps": 12, "patience": 8})
    loop = make_loop(tmp_path / "run", recipe, FakeEngine(chance=-1.0), task=Numbered())
    loop.stage_ends = (6, 12)
    with loop.record.run:  # type: ignore[union-attr]
        loop.run()
    assert loop.state.course.idle == 6
    assert [each.step for each in loop.state.course.points] == list(range(7, 13))
    assert all(step > 6 for step in loop.state.course.peaks)
