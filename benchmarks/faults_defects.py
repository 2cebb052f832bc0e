"""Defects that `benchmarks.faults` must notice. Each is put into the product in a process of its own, after the undisturbed
run was made; then faults are tried until one ends wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from benchmarks import faults_run
from benchmarks.faults_judge import Fault, Judge
from fastslow import loop, state
from fastslow.base import world
from fastslow.base.errors import FastSlowError, RunError
from fastslow.commands import app
from fastslow.fast import memory
from fastslow.launch import start
from fastslow.runs import checkpoint, files, folder, lock, recorder, rollout_files
from fastslow.runs.ledger import Ledger

DEFECTS: dict[str, Callable[[], None]] = {}
HANGS = 15.0
"""Seconds after which a command of a defective product has hung."""


def defect(apply: Callable[[], None]) -> Callable[[], None]:
    DEFECTS[apply.__name__.replace("_", " ")] = apply
    return apply


def after(owner: Any, name: str, then: Callable[..., Any]) -> None:
    """Call `then` with the arguments after each call of a function."""
    original = getattr(owner, name)

    def both(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        then(*arguments, **options)
        return result

    setattr(owner, name, both)


def replace(owner: Any, name: str, new: Any) -> None:
    getattr(owner, name)  # it must exist
    setattr(owner, name, new)


def on_resume(then: Callable[[Path], None], *, refused: bool = False) -> None:
    """Do something to the folder before each resume, or after each that is refused."""
    original = start.resume

    def resume(given: Any, *arguments: Any, **options: Any) -> Path:
        if not refused:
            then(Path(given))
            return original(given, *arguments, **options)
        try:
            return original(given, *arguments, **options)
        except FastSlowError:
            then(Path(given))
            raise

    start.resume = resume


# A refused resume ------------------------------------------------------------------------------------------------------


@defect
def resume_always_refuses() -> None:
    def refuse(given: Path) -> None:
        raise RunError(f"'{given}' cannot be resumed")

    on_resume(refuse)


@defect
def a_refused_resume_empties_the_folder() -> None:
    def empty(given: Path) -> None:
        for path in given.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    on_resume(empty, refused=True)


@defect
def a_refused_resume_writes_a_status() -> None:
    def note(given: Path) -> None:
        (given / "run.json").write_text('{"status": "failed"}')

    on_resume(note, refused=True)


@defect
def a_refused_resume_removes_the_damaged_checkpoint() -> None:
    def remove(given: Path) -> None:
        if steps := sorted((given / "checkpoints").glob("step-*")):
            shutil.rmtree(steps[-1])

    on_resume(remove, refused=True)


@defect
def a_damaged_checkpoint_is_used() -> None:
    replace(checkpoint, "find_damage", lambda path: None)


@defect
def a_damaged_checkpoint_is_replaced_by_an_older_one() -> None:
    def latest(self: Any) -> Any:
        whole = [step for step in self.steps() if checkpoint.find_damage(self.folder / checkpoint._name(step)) is None]
        return (whole[-1], self.get(whole[-1])) if whole else None

    replace(checkpoint.Checkpoints, "latest", latest)
    replace(folder.RunFolder, "latest_checkpoint", lambda self: self.checkpoints.latest())


@defect
def changed_logs_are_not_noticed() -> None:
    replace(start, "check_witness", lambda *_: None)


# A resumed run ---------------------------------------------------------------------------------------------------------


@defect
def resume_skips_a_step() -> None:
    after(state.State, "restore", lambda self, *_: setattr(self, "step", self.step + 1))


@defect
def resume_repeats_a_step() -> None:
    after(state.State, "restore", lambda self, *_: setattr(self, "step", max(self.step - 1, 0)))


@defect
def resume_starts_over_without_its_checkpoints() -> None:
    replace(start, "_rewound", lambda *_: None)


@defect
def resume_uses_another_seed() -> None:
    derive = loop.derive_seed
    on_resume(lambda _: replace(loop, "derive_seed", lambda seed, *words: derive(seed + (words[0] == "slow"), *words)))


@defect
def resume_swaps_the_contexts() -> None:
    from_dict = state.Pool.from_dict

    def swapped(data: dict[str, Any]) -> Any:
        pool = from_dict(data)
        return dataclasses.replace(pool, members=tuple(reversed(pool.members)))

    replace(state.Pool, "from_dict", swapped)


@defect
def resume_loses_the_weights() -> None:
    after(faults_run.Momentum, "prepare", lambda self, *_: setattr(self, "skill", 0.0))


@defect
def resume_loses_the_optimizer_state() -> None:
    after(faults_run.Momentum, "prepare", lambda self, *_: setattr(self, "momentum", 0.0))


@defect
def resume_loses_the_ledger() -> None:
    after(state.State, "restore", lambda self, *_: setattr(self, "ledger", Ledger()))


@defect
def resume_loses_the_rollouts_to_be_reused() -> None:
    restore = memory.Memory.restore
    replace(memory.Memory, "restore", lambda self, data, ahead: restore(self, None, ahead))


@defect
def resume_drops_ledger_rows() -> None:
    def drop(self: Any, *_: Any) -> None:
        path = self.path / "ledger.jsonl"
        if path.exists():
            path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))

    after(folder.RunFolder, "rewind", drop)


@defect
def resume_keeps_rows_after_the_checkpoint() -> None:
    def rewind(self: Any, step: int) -> None:
        self.checkpoints.rewind(step)

    replace(folder.RunFolder, "rewind", rewind)


@defect
def resume_duplicates_rollouts() -> None:
    write = rollout_files.RolloutWriter.write

    def twice(self: Any, path: Path, rollouts: Any, *columns: Any) -> None:
        write(self, path, [*rollouts, *rollouts], *([*each, *each] if each is not None else None for each in columns))

    on_resume(lambda _: replace(rollout_files.RolloutWriter, "write", twice))


@defect
def resume_removes_rollouts() -> None:
    on_resume(lambda given: [path.unlink() for path in given.glob("rollouts/*.parquet")])


@defect
def resume_writes_outside_the_folder() -> None:
    on_resume(lambda given: (given.parent / "notes.txt").write_text("resumed"))


@defect
def resume_writes_to_the_current_folder() -> None:
    on_resume(lambda given: Path("notes.txt").write_text("resumed"))


@defect
def resume_leaves_temporary_files() -> None:
    on_resume(lambda given: (given / "rollouts" / "half.tmp").write_text("half") if given.is_dir() else None)


@defect
def resume_hangs() -> None:
    on_resume(lambda _: time.sleep(3600))


@defect
def a_finished_run_keeps_its_old_checkpoint_number() -> None:
    set_status = folder.RunFolder.set_status

    def without(self: Any, status: str, **extra: Any) -> None:
        set_status(self, status, **{key: value for key, value in extra.items() if key != "checkpoint"})

    replace(folder.RunFolder, "set_status", without)


# Errors and ends -------------------------------------------------------------------------------------------------------


@defect
def errors_exit_with_0() -> None:
    def complain(text: str) -> None:
        os.write(2, f"error: {text}\n".encode())
        raise SystemExit(0)

    replace(app, "_complain", complain)


@defect
def errors_are_silent_and_exit_with_0() -> None:
    def complain(text: str) -> None:
        raise SystemExit(0)

    replace(app, "_complain", complain)


@defect
def errors_show_a_traceback() -> None:
    class Nothing(Exception):
        pass

    replace(app, "FastSlowError", Nothing)
    os.environ[app.TRACEBACK] = "1"


@defect
def errors_are_unexpected() -> None:
    class Nothing(Exception):
        pass

    replace(app, "FastSlowError", Nothing)


@defect
def errors_say_nothing() -> None:
    def complain(text: str) -> None:
        raise SystemExit(2)

    replace(app, "_complain", complain)


@defect
def the_lock_is_kept() -> None:
    replace(lock.Lock, "release", lambda self: None)


@defect
def signals_kill_outright() -> None:
    replace(world.Stops, "listening", lambda self, **_: nullcontext())


@defect
def how_a_run_ended_is_not_recorded() -> None:
    replace(start, "_record", lambda *_: None)


@defect
def files_are_written_in_place() -> None:
    @contextmanager
    def in_place(path: Path) -> Iterator[Path]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.explained(path):
            yield path
            path.replace(path)  # as many file operations as before

    replace(files, "temporary", in_place)


@defect
def failed_writes_are_ignored() -> None:
    @contextmanager
    def ignored(path: Path) -> Iterator[None]:
        try:
            yield
        except OSError:
            return

    replace(files, "explained", ignored)
    replace(recorder.Recorder, "_save", _ignoring(recorder.Recorder._save))


def _ignoring(function: Callable[..., Any]) -> Callable[..., Any]:
    def ignored(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except RunError:
            return None

    return ignored


@defect
def the_last_checkpoint_may_fail() -> None:
    checkpointed = recorder.Recorder.checkpoint

    def lenient(self: recorder.Recorder) -> None:
        with suppress(RunError):
            checkpointed(self)

    replace(recorder.Recorder, "checkpoint", lenient)


@defect
def a_broken_grader_is_not_found_before_step_1() -> None:
    preflight = start.preflight

    def lenient(*arguments: Any) -> Ledger:
        try:
            return preflight(*arguments)
        except start.GradingError:
            return Ledger()

    replace(start, "preflight", lenient)


@defect
def faulty_grades_are_ignored() -> None:
    player = faults_run.Player
    original = player.__init__

    def without(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self.faulty.count = lambda rollouts: None

    replace(player, "__init__", without)


@defect
def failed_reflections_are_not_counted() -> None:
    save = folder.RunFolder.save_cycle

    def without(self: Any, cycle: int, data: dict[str, Any], memory: Any = None) -> None:
        save(self, cycle, json.loads(json.dumps({**data, "faults": {}, "rejected": []})), memory)

    replace(folder.RunFolder, "save_cycle", without)


# ----------------------------------------------------------------------------------------------------------------------


def seeded(judge: Judge, faults: list[Fault], only: list[str]) -> list[str]:
    """Put each defect into the product and try the faults until one ends wrong; the defects that none notices, and the
    product itself if a fault ends wrong without any defect."""
    faults_run.LIMIT = HANGS
    every: dict[str, Callable[[], None]] = {"no defect": lambda: None, **DEFECTS}
    chosen = {name: apply for name, apply in every.items() if any(part in name for part in only)}
    missed, started = [], time.perf_counter()
    for name, apply in chosen.items():
        noticed = _noticed(judge, faults, apply)
        print(f"{name}: {noticed or f'all {len(faults)} faults end well'}", flush=True)
        if bool(noticed) == (name == "no defect"):
            missed.append(name)
    took = time.perf_counter() - started
    print(f"{len(chosen)} cases in {took:.0f} s; not noticed, or wrong without a defect: {', '.join(missed) or 'none'}")
    return missed


def _noticed(judge: Judge, faults: list[Fault], apply: Callable[[], None]) -> str:
    """The first fault that ends wrong, with what is wrong, "" if none does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            apply()
            for number, fault in enumerate(faults, 1):
                if problem := judge.judge(fault)[1]:
                    said = f"fault {number}, {fault.kind} ({fault.what}): {' '.join(problem.split())}"
                    os.write(writing, said.encode("utf-8", "replace")[:300])
                    break
        except BaseException as error:
            os.write(2, f"the defect cannot be tried: {error!r}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        found = said.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return found
