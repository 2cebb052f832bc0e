"""The run that `benchmarks.faults` disturbs, the process it runs in, and the ways to disturb it."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fake_engine import FakeEngine, Numbered

from fastslow.base.world import World
from fastslow.commands import app
from fastslow.engine.base import Numbers, Update
from fastslow.fast.reflection.lessons import Lessons
from fastslow.launch import start
from fastslow.launch.assembly import Parts
from fastslow.models.chat import ChatFormat
from fastslow.recipe import build_recipe
from fastslow.records import Feedback
from fastslow.rollouts.play import Player
from fastslow.runs.lock import Lock
from fastslow.runs.view import make_view

for library in ("pandas", "pyarrow.parquet", "fastslow.fast.optimizers.gepa"):  # once, not in thousands of processes
    importlib.import_module(library)
RECIPE = build_recipe(
    {
        "model": "none",
        "task": "given",
        "slow": {"steps": 4, "problems": 2, "group": 2, "microbatch": 4},
        "fast": {
            "population": 2,
            "cycle": 2,
            "anchors": 3,
            "budget": 8,
            "minibatch": 1,
            "optimizer": {"proposer": "full"},
            "reuse": True,
        },
        "evaluation": {"every": 2, "problems": 2, "k": 1},
        "output": {"checkpoint_every": 1},
    }
)
REFUSALS = {
    "disk full": errno.ENOSPC,
    "read-only": errno.EROFS,
    "no permission": errno.EACCES,
    "too many open files": errno.EMFILE,
    "input/output error": errno.EIO,
}
MEMORY = {
    "address space": (resource.RLIMIT_AS, "VmSize:"),
    "data": (resource.RLIMIT_DATA, "VmData:"),
}
"""Limits of memory, with the line of /proc/self/status that says how much is in use."""
HOG: list[bytes] = []
"""What takes all other memory of a starved process."""
WRITING = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
ENDED, REFUSED, KILLED, NO_END, LOCKED = 0, 2, -signal.SIGKILL, 98, 99
LIMIT = 60.0
"""Seconds of work, or without any, after which a command has hung, however busy the machine is; it takes less than one."""
Disturbed = Callable[[Path], None]


class Grader(Numbered):
    """The task, whose grader may fail."""

    def __init__(self, fail: Callable[[int], Any] | None = None) -> None:
        super().__init__()
        self.fail, self.graded = fail, 0

    def grade(self, example: Any, answer: str) -> Feedback:
        self.graded += 1
        return super().grade(example, answer) if self.fail is None else self.fail(self.graded)


class Momentum(FakeEngine):
    """The policy, whose optimizer has a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.momentum = 0.0
        self.tokenizer("yes no")  # a real tokenizer knows its words before it meets them

    def update(self, update: Update) -> Numbers:
        numbers = super().update(update)
        self.momentum = 0.5 * self.momentum + len(update.rows)
        self.skill += 1e-3 * self.momentum
        return numbers

    def prepare(self, checkpoint: Path | None = None) -> None:
        super().prepare(checkpoint)
        if checkpoint is not None:
            self.momentum = json.loads((checkpoint / "optimizer.json").read_text())["momentum"]

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        super().save(folder, teacher=teacher)
        (folder / "optimizer.json").write_text(json.dumps({"momentum": self.momentum}))


def run(folder: Path, task: Grader | None = None, reflector: Any = None) -> None:
    """Start the run, or resume it if its folder holds one."""
    if (folder / "run.json").exists():
        resume(folder)
        return
    task = _assembled(task or Grader())
    if reflector is not None:
        start._reflector = lambda *_: reflector
    start.train(RECIPE, folder, make_view(Console(file=io.StringIO())), task=task)


def resume(folder: Path) -> None:
    """Resume the run, whatever its folder holds."""
    start.resume(folder, make_view(Console(file=io.StringIO())), task=_assembled(Grader()), other_data=True)


def _assembled(task: Grader) -> Grader:
    engine = Momentum()
    parts = Parts(task, engine, Player(task, engine, ChatFormat(engine.tokenizer), RECIPE.grading), task.seed_texts)
    start.assemble = lambda *_: parts
    start.find_world = lambda _: World()
    return task


def in_child(do: Disturbed, folder: Path, limit: float | None = None) -> tuple[int, str]:
    """The exit code of a command in a process of its own, and what it wrote to the terminal. Negative: the signal that ended
    it. `LOCKED`: the folder's lock was still held when the command was over. `NO_END`: it was stopped."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.dup2(writing, 1)
            os.dup2(writing, 2)
            code = _command(do, folder)
        except KeyboardInterrupt:  # it came too late for the command, and ends a process in this way
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        finally:  # whatever happens, the rest of the campaign is the parent's
            os._exit(code)
    os.close(writing)
    os.set_blocking(reading, False)
    said, worked, since, ended = b"", 0.0, time.monotonic(), None
    while ended is None:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            ended = os.waitstatus_to_exitcode(status)
        elif (work := _work_of(child)) > (limit or LIMIT) or time.monotonic() > since + (limit or LIMIT):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            ended = NO_END
        else:
            if work > worked:
                worked, since = work, time.monotonic()
            time.sleep(0.002)
        said += _read(reading)
    os.close(reading)
    return ended, said.decode("utf-8", "replace").strip()


def _work_of(process: int) -> float:
    """Seconds of a processor."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _read(pipe: int) -> bytes:
    said = b""
    try:
        while part := os.read(pipe, 65536):
            said += part
    except BlockingIOError:
        pass
    return said


def _command(do: Disturbed, folder: Path) -> int:
    """Do it as the command line does: with its messages and its exit codes."""

    def command(_: Any) -> None:
        try:
            do(folder)
        finally:
            HOG.clear()

    app.app, code = command, ENDED  # type: ignore[assignment]
    try:
        app.main([])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception as error:
        print(f"Traceback: {error!r}", flush=True)
        code = 1
    sys.stderr.flush()
    return LOCKED if code in (ENDED, REFUSED) and _is_locked(folder) else code


def _is_locked(folder: Path) -> bool:
    gc.collect()
    try:
        if (folder / "lock").exists():
            Lock(folder / "lock").release()
    except Exception as error:
        return "in use" in str(error)
    return False


# Ways to disturb -------------------------------------------------------------------------------------------------------


def watched(folder: Path, watch: Callable[[int, str], None]) -> None:
    """Call `watch` with a number and the operation before every file operation below the folder that writes."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event in WRITING or (event == "open" and len(arguments) > 2 and int(arguments[2] or 0) & 3)
        if writes and str(folder) in os.fsdecode(arguments[0] if not isinstance(arguments[0], int) else ""):
            count += 1
            watch(count, f"{event} {arguments[0]} {arguments[1]}")

    sys.addaudithook(hook)


def killed(number: int) -> Disturbed:
    def disturbed(folder: Path) -> None:
        watched(folder, lambda count, _: os.kill(os.getpid(), signal.SIGKILL) if count == number else None)
        run(folder)

    return disturbed


def killed_in_a_file(number: int) -> Disturbed:
    """Killed when half of a file is written."""

    def disturbed(folder: Path) -> None:
        whole, count = Path.write_bytes, 0

        def write_bytes(path: Path, data: Any) -> int:
            nonlocal count
            count += 1
            if count == number:
                whole(path, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(path, data)

        Path.write_bytes = write_bytes  # type: ignore[method-assign]
        run(folder)

    return disturbed


def refused(number: int, code: int, lasting: bool) -> Disturbed:
    def refuse(count: int, _: str) -> None:
        if count == number or (lasting and count > number):
            raise OSError(code, os.strerror(code))

    def disturbed(folder: Path) -> None:
        watched(folder, refuse)
        run(folder)

    return disturbed


def starved(number: int, limit: tuple[int, str], spare: int) -> Disturbed:
    """From an operation on no memory is left but some spare bytes."""
    what, field = limit

    def lower(count: int, _: str) -> None:
        if count == number:
            used = next(line for line in Path("/proc/self/status").read_text().splitlines() if field in line)
            kept_free = [bytes(512) for _ in range(spare // 512)]
            resource.setrlimit(what, (int(used.split()[1]) * 1024, resource.getrlimit(what)[1]))
            size = 2**16
            while size >= 256:  # what Python and the C library hold in reserve is used up too
                try:
                    HOG.append(bytes(size))
                except MemoryError:
                    size //= 2
            kept_free.clear()

    def disturbed(folder: Path) -> None:
        watched(folder, lower)
        run(folder)

    return disturbed


def signalled(name: str, after: float) -> Disturbed:
    def disturbed(folder: Path) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored by what nohup starts
        target = os.getpid()
        if os.fork() == 0:
            time.sleep(after)
            if os.getppid() == target:
                os.kill(target, getattr(signal, name))
            os._exit(0)
        run(folder)

    return disturbed


def limited(what: int, amount: int) -> Disturbed:
    def disturbed(folder: Path) -> None:
        resource.setrlimit(what, (amount, resource.getrlimit(what)[1]))
        run(folder)

    return disturbed


def with_jumping_clock(jump: float) -> Disturbed:
    def disturbed(folder: Path) -> None:
        clock, offset = time.perf_counter, 0.0

        def odd() -> float:
            nonlocal offset
            offset += jump
            return clock() + offset

        time.perf_counter = time.time = time.monotonic = odd
        run(folder)

    return disturbed


def graded(fail: Callable[[int], Any]) -> Disturbed:
    return lambda folder: run(folder, Grader(fail))


def reflected(fail: Callable[[], Any]) -> Disturbed:
    class Failing(Lessons):
        def __call__(self, request: Any) -> str:
            return fail()

    return lambda folder: run(folder, reflector=Failing())


def _flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"x"


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "with one bit changed": _flip,
    "cut in half": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "of zeros": lambda data: bytes(len(data)),
    "that is gone": lambda data: None,
}


def damage(path: Path, how: Callable[[bytes], bytes | None]) -> None:
    data = how(path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
