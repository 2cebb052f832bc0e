"""A run that is asked to stop keeps all of its completed steps, wherever the request finds it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import SAVED, STEPS, outcome, recipe_of, resume, run
from lengthy_engine import LengthyEngine

from fastslow.base import world
from fastslow.base.world import Stopped, Stops, wait_for
from fastslow.engine.base import Numbers, Update
from fastslow.recipe import dump_recipe
from fastslow.records import Completion
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.recorder import Pace

SHARING = {"reuse": True, "rescore": "from-rollouts", "adaptive": True}


@pytest.fixture(scope="module", autouse=True)
def _no_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", lambda path: None)
        yield


class Interrupted(FakeEngine):
    """Receives a signal in one of its calls."""

    stop_at, calls = -1, 0
    number = signal.SIGTERM

    def called(self) -> None:
        self.calls += 1
        if self.calls == self.stop_at:
            os.kill(os.getpid(), self.number)

    async def sample(self, *arguments: Any, **named: Any) -> list[Completion]:
        self.called()
        return await super().sample(*arguments, **named)

    def update(self, update: Update) -> Numbers:
        self.called()
        return super().update(update)


class InterruptedLengthy(Interrupted, LengthyEngine):
    pass


@pytest.mark.parametrize(
    ("engine", "changes"),
    [
        (Interrupted, {}),
        (Interrupted, {"fast": SHARING}),
        (InterruptedLengthy, {"fast": {"reuse": True}, "sampling": {"ahead": 0.5}}),
    ],
)
def test_stopped_in_any_call_of_the_engine_a_run_resumes_after_its_last_step(
    engine: type[Interrupted], changes: dict[str, Any], tmp_path: Path
) -> None:
    recipe = recipe_of(output={"checkpoint_every": 100}, **changes)
    alone = engine()
    run(tmp_path / "alone", recipe, alone)
    expected = outcome(tmp_path / "alone")
    unsettled = 0
    for stop_at in range(1, alone.calls + 1):
        folder, stopped = tmp_path / str(stop_at), engine()
        stopped.stop_at = stop_at
        with pytest.raises(Stopped, match="SIGTERM"), stopped.world.stops.listening():
            run(folder, recipe, stopped)
        done = [what for kind, what in stopped.events if kind == "update"]
        opened = RunFolder.open(folder)
        assert opened.checkpoints.steps()[-1:] == [len(done)][: len(done)]  # the step in which it came, if it trains
        rows = [row["step"] for row in opened.rows("metrics")]
        assert rows == list(range(1, len(done) + 1))
        unsettled += bool(done) and opened.rows("ledger")[-1]["step"] < len(done)
        again = engine()
        resume(folder, recipe, again)
        assert outcome(folder) == expected
        assert len([kind for kind, _ in again.events if kind == "update"]) == STEPS - len(done)
    assert unsettled  # some came in an evaluation


def test_an_interruption_or_an_error_outside_an_update_is_an_orderly_stop_too(tmp_path: Path) -> None:
    class Fails(FakeEngine):
        async def sample(self, *arguments: Any, **named: Any) -> list[Completion]:
            if len([kind for kind, _ in self.events if kind == "update"]) == 2:
                raise error
            return await super().sample(*arguments, **named)

    recipe = recipe_of("rl", evaluation={"every": 0})
    for number, error in enumerate((KeyboardInterrupt(), SystemExit(3), RuntimeError("no server"))):
        with pytest.raises(type(error)):
            run(tmp_path / str(number), recipe, Fails())
        assert RunFolder.open(tmp_path / str(number)).checkpoints.steps() == [2]


def test_what_fails_in_the_middle_of_an_update_is_not_saved(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.fails_at = SAVED + 2
    with pytest.raises(RuntimeError):
        run(tmp_path / "run", recipe_of(), engine)
    assert RunFolder.open(tmp_path / "run").checkpoints.steps() == [SAVED]


def test_a_checkpoint_by_time_gives_way_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "due", lambda self: True)
    kept: list[list[int]] = []

    class Looks(FakeEngine):
        def update(self, update: Update) -> Numbers:
            kept.append(RunFolder.open(tmp_path / "run").checkpoints.steps())
            return super().update(update)

    run(tmp_path / "run", recipe_of(), Looks())
    assert kept == [[], [1], [2], [3], [3, 4]]
    assert RunFolder.open(tmp_path / "run").checkpoints.steps() == [3, 5]


# Where a signal finds the process -------------------------------------------------------------------------------------


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def stops() -> Iterator[Stops]:
    found = Stops()
    with found.listening():
        yield found
        found.stopping()


def test_a_signal_waits_for_the_end_of_a_step(stops: Stops) -> None:
    done = []

    async def work() -> None:
        terminate()
        done.append("the rest of the step")
        await asyncio.sleep(0)
        done.append("another step")

    with pytest.raises(Stopped, match="SIGTERM"):
        wait_for(work())
    assert done == ["the rest of the step"]
    assert wait_for(asyncio.sleep(0, "still works")) == "still works"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("at", range(1, 6))
def test_a_signal_in_the_machinery_of_coroutines_loses_none(
    at: int, stops: Stops, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes when a step has been taken from the queue and not yet begun."""
    whole, count = asyncio.Handle._run, 0

    def run_handle(self: Any) -> None:
        nonlocal count
        count += 1
        if count == at:
            terminate()
        whole(self)

    monkeypatch.setattr(asyncio.Handle, "_run", run_handle)
    ended = []

    async def rollout() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(asyncio.current_task())

    async def play() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(rollout())

    with pytest.raises(Stopped):
        wait_for(play())
    monkeypatch.undo()
    assert wait_for(asyncio.sleep(0, 1)) == 1
    gc.collect()
    assert caplog.text == ""  # "Task was destroyed but it is pending!"


def test_a_signal_while_coroutines_are_ended_is_not_lost(stops: Stops, caplog: pytest.LogCaptureFixture) -> None:
    left, ended = [], []

    async def stays() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            terminate()
            ended.append("closed")
            raise

    async def work() -> int:
        left.extend(asyncio.ensure_future(stays()) for _ in range(3))
        await asyncio.sleep(0)
        return 5

    with pytest.raises(Stopped):
        wait_for(work())
    assert ended == ["closed"] * 3
    assert caplog.text == ""


@pytest.mark.parametrize("within", ["a step", "a thread", "no coroutine"])
def test_what_blocks_is_interrupted_where_it_is(within: str, stops: Stops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "GRACE", 0.01)

    async def blocks() -> None:
        forever()

    def forever() -> None:
        terminate()
        time.sleep(120)  # a guard: it ends earlier
        raise AssertionError

    async def waits() -> None:
        terminate()
        await world.in_thread(threading.Event().wait, 120)
        raise AssertionError

    with pytest.raises(Stopped):
        forever() if within == "no coroutine" else wait_for(blocks() if within == "a step" else waits())


def test_a_signal_that_a_library_swallows_or_wraps_is_still_heard(
    stops: Stops, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Swallows:
        def __del__(self) -> None:
            terminate()
            for _ in range(10**4):
                pass

    done = []

    def work() -> None:
        with stops.whole():
            with stops.whole():
                Swallows()
            done.append("the inner end is not the outer one's")

    with pytest.raises(Stopped):
        work()
    assert done
    stops.stopping()
    Swallows()
    with stops.whole():  # once is enough
        pass


def test_a_signal_shortly_before_the_end_is_raised_at_the_end() -> None:
    stops, done = Stops(), []

    def run() -> None:
        with stops.listening():
            terminate()
            done.append("all")

    with pytest.raises(Stopped):
        run()
    assert done == ["all"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interruption_while_a_recipe_is_written_stays_one(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any, **__: Any) -> None:
        raise error

    recipe = recipe_of()
    monkeypatch.setattr(type(recipe.fast.reflection), "model_dump", write)
    with pytest.raises(error):
        dump_recipe(recipe)


PROCESS = """
import asyncio, os, signal, sys
from fake_engine import FakeEngine, Numbered
from fastslow.base.world import World
from fastslow.commands.app import main
from fastslow.launch import start
from fastslow.launch.assembly import Parts
from fastslow.models.chat import ChatFormat
from fastslow.rollouts.play import Player

class Slow(FakeEngine):
    in_flight = True

    async def sample(self, prompts, *arguments, **named):
        while True:
            await asyncio.sleep(0.02)
            for _ in range(2 * 10**5):  # the signal also finds it computing
                pass
            if os.environ.get("STAYS") != str([kind for kind, _ in self.events].count("update")):
                break
        return await super().sample(prompts, *arguments, **named)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
task, engine = Numbered(), Slow()
start.assemble = lambda *_: Parts(task, engine, Player(task, engine, ChatFormat(engine.tokenizer)), task.seed_texts)
start.find_world = lambda _: World()
main(sys.argv[1:])
"""


def launch(*arguments: str | Path, stays: int = -1) -> subprocess.Popen[str]:
    """A run in a process of its own, which after so many updates samples until it is stopped."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", PROCESS, "train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STAYS": str(stays)},
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, and beside it the run that nobody stops."""
    folder = tmp_path_factory.mktemp("process")
    recipe = recipe_of(slow={"steps": 8}, output={"checkpoint_every": 100})
    (folder / "recipe.yaml").write_text(dump_recipe(recipe))
    assert launch(folder / "recipe.yaml", f"output.folder={folder / 'alone'}").communicate(timeout=300)[1] == ""
    return folder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_process_says_one_line_and_its_run_resumes_without_a_repeated_step(
    number: signal.Signals, undisturbed: Path
) -> None:
    folder = undisturbed / number.name
    process = launch(undisturbed / "recipe.yaml", f"output.folder={folder}", stays=5)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 5/"):
            break
    process.send_signal(number)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 2
    *_, step = RunFolder.open(folder).checkpoints.steps()  # the best so far may be kept too
    assert step == 5
    by = "stopped by SIGTERM" if number == signal.SIGTERM else "interrupted"
    again = f'fastslow.resume("{folder}", task=…)'
    assert error == f"error: {by} after step {step}, which is saved; resume with `{again}`\n"
    said, error = launch("--resume", folder).communicate(timeout=300)
    assert error == ""
    assert f"resuming after step {step}; no completed step is repeated" in said
    assert outcome(folder) == outcome(undisturbed / "alone")
