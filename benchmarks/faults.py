"""A fault campaign: what becomes of a run that is killed, runs out of disk, or is damaged.

    python -m benchmarks.faults [--every 1] [--kills 50] [--seed 0]

A small run of both loops, with an engine of pure Python, is disturbed once in every way: killed before each of its file
operations and in the middle of each file it writes; each operation refused (disk full, read-only, no permission, too many
open files, input/output error), once and from then on; killed and signalled at random moments; out of memory from some
operation on; under limits of open files and of file size; with a clock that jumps; with graders and reflectors that fail in
every way; and every file of its folder damaged in several ways. Afterwards it is resumed without disturbance. A fault ends
well if the run ends equal to an undisturbed one, if a command ends with one clear message and changes nothing, or, where the
grader or the reflector is another one, if the run ends and counts the faults. The table counts these ends and lists
everything else; the exit code is 1 if there is anything else.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fake_engine import FakeEngine, Numbered
from helpers import deterministic

from fastslow.base.errors import FastSlowError
from fastslow.base.world import World
from fastslow.fast.reflection import ReflectionFailed
from fastslow.fast.reflection.lessons import Lessons
from fastslow.launch import start
from fastslow.launch.assembly import Parts
from fastslow.models.chat import ChatFormat
from fastslow.recipe import build_recipe
from fastslow.records import Feedback
from fastslow.rollouts.play import Player
from fastslow.runs import files
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
SPARE = (2**10, 2**15, 2**18, 2**21)
"""Bytes that may still be taken."""
HOG: list[bytes] = []
"""What takes all other memory of a starved process."""
WRITING = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
Watch = Callable[[int], None]


class Grader(Numbered):
    """The task, whose grader may fail."""

    def __init__(self, fail: Callable[[int], Any] | None = None) -> None:
        super().__init__()
        self.fail, self.graded = fail, 0

    def grade(self, example: Any, answer: str) -> Feedback:
        self.graded += 1
        return super().grade(example, answer) if self.fail is None else self.fail(self.graded)


def run(folder: Path, task: Grader | None = None, reflector: Any = None) -> None:
    """Start the run, or resume it if its folder holds one."""
    task, engine = task or Grader(), FakeEngine()
    parts = Parts(task, engine, Player(task, engine, ChatFormat(engine.tokenizer), RECIPE.grading), task.seed_texts)
    start.assemble = lambda *_: parts
    start.find_world = lambda _: World()
    if reflector is not None:
        start._reflector = lambda *_: reflector
    view = make_view(Console(file=io.StringIO()))
    if (folder / "run.json").exists():
        start.resume(folder, view, task=task)
    else:
        start.train(RECIPE, folder, view, task=task)


def in_child(do: Callable[[], None]) -> tuple[int, str]:
    """The exit status of a function in a process of its own, and what it said: 0, 2 for a FastSlowError, 3 for others."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code, said = 3, ""
        try:
            try:
                do()
                code = 0
            except FastSlowError as error:
                HOG.clear()
                code, said = 2, str(error)
            except BaseException:
                HOG.clear()
                said = traceback.format_exc()
            os.write(writing, said.encode("utf-8", "replace")[:4000])
        finally:
            os._exit(code)
    os.close(writing)
    said = b""
    while part := os.read(reading, 4096):
        said += part
    os.close(reading)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode("utf-8", "replace")


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that a clock does not decide."""
    found: dict[str, Any] = {"status": json.loads((folder / "run.json").read_text())["status"]}
    for path in sorted(folder.glob("*.jsonl")):
        found[path.name] = [deterministic(json.loads(line)) for line in path.read_text().splitlines()]
    for path in sorted(folder.glob("contexts/*.json")):
        found[path.name] = {key: value for key, value in json.loads(path.read_text()).items() if key != "spent"}
    last = sorted((folder / "checkpoints").glob("step-*"))[-1]
    found["weights"] = last.name, (last / "engine.json").read_text()
    return found


def watched(folder: Path, watch: Watch) -> None:
    """Call `watch` with a number before every file operation below the folder that writes."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event in WRITING or (event == "open" and len(arguments) > 2 and int(arguments[2] or 0) & 3)
        if writes and str(folder) in os.fsdecode(arguments[0] if not isinstance(arguments[0], int) else ""):
            count += 1
            watch(count)

    sys.addaudithook(hook)


def halved(number: int) -> Callable[[Path, bytes], None]:
    """`files.write_bytes`, killed in the middle of file `number`."""
    whole, count = files.write_bytes, 0

    def write(path: Path, data: bytes) -> None:
        nonlocal count
        count += 1
        if count == number:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(files.TEMPORARY + path.name).write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        whole(path, data)

    return write


class Campaign:
    def __init__(self, every: int, kills: int, seed: int) -> None:
        self.every, self.kills, self.draw = every, kills, random.Random(seed)
        self.place = Path(tempfile.mkdtemp(prefix="faults-"))
        self.results: dict[str, Counter[str]] = {}
        self.wrong: list[str] = []
        files.sync = lambda path: None  # none of the faults is a power cut
        started = time.perf_counter()
        self.whole = self.place / "whole"
        assert in_child(lambda: run(self.whole))[0] == 0, "the undisturbed run fails"
        self.seconds = time.perf_counter() - started
        self.expected = outcome(self.whole)
        self.operations = self._counted()

    def _counted(self) -> int:
        reading, writing = os.pipe()

        def count() -> None:
            watched(self.place, lambda number: os.write(writing, b"."))
            run(self.place / "counted")

        in_child(count)
        os.close(writing)
        total = 0
        while part := os.read(reading, 65536):
            total += len(part)
        os.close(reading)
        return total

    def try_fault(
        self, kind: str, what: str, disturbed: Callable[[Path], None], *, copy: bool = False, other: bool = False
    ) -> None:
        """Disturb a run, then resume it undisturbed. With `copy`, the folder of the whole run is there from the start. With
        `other`, the grader or the reflector is another one, so that the run cannot end equal."""
        folder = self.place / "run"
        shutil.rmtree(folder, ignore_errors=True)
        if copy:
            shutil.copytree(self.whole, folder)
        code, said = in_child(lambda: disturbed(folder))
        ended = _judge_other(folder, code, said) if other else self._judge(folder, code, said, copy)
        self.results.setdefault(kind, Counter())[ended] += 1
        if ended == "wrong":
            self.wrong.append(f"{kind}, {what}: {said.strip().splitlines()[-1:] or code}")

    def _judge(self, folder: Path, code: int, said: str, copy: bool) -> str:
        if code == 3 or "\n" in said.strip():
            return "wrong"
        if (
            code == 2 and copy
        ):  # refused: nothing may be lost by that, and an earlier step can be chosen where it is intact
            return "clear message"
        again, words = in_child(lambda: run(folder))
        if again == 0 and outcome(folder) == self.expected:
            return "clear message, then equal" if code == 2 else "equal"
        return "clear message" if again == 2 and "\n" not in words.strip() else "wrong"

    def run(self) -> None:
        for number in range(1, self.operations + 1, self.every):
            self.try_fault("kill before a file operation", str(number), lambda folder, n=number: self._kill(folder, n))
            for name, code in REFUSALS.items():
                for lasting in (False, True):
                    kind = f"{name}, {'from an operation on' if lasting else 'at one operation'}"
                    self.try_fault(
                        kind, str(number), lambda folder, n=number, c=code, w=lasting: self._refuse(folder, n, c, w)
                    )
        for number in range(1, self.operations // 2, self.every):
            self.try_fault("kill in the middle of a file", str(number), lambda folder, n=number: self._half(folder, n))
        for number in range(self.kills):
            after = self.draw.random() * self.seconds
            for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"):
                self.try_fault(
                    f"{name} at a random moment",
                    str(number),
                    lambda folder, s=name, t=after: self._signal(folder, s, t),
                )
        for number in range(1, self.operations + 1, 2 * self.every):
            for (kind, limit), spare in product(MEMORY.items(), SPARE):
                self.try_fault(
                    f"no more {kind} from an operation on",
                    f"{number}, {spare} bytes left",
                    lambda folder, n=number, w=limit, s=spare: self._starve(folder, n, w, s),
                )
        for kind, disturbed in self._surroundings().items():
            for number in range(3):
                other = kind.startswith(("a grader", "a reflector"))
                self.try_fault(kind, str(number), lambda folder, d=disturbed, n=number: d(folder, n), other=other)
        for path in sorted(path for path in self.whole.rglob("*") if path.is_file() and path.name != "lock"):
            name = str(path.relative_to(self.whole))
            for kind, damage in DAMAGES.items():
                self.try_fault(
                    f"a file {kind}", name, lambda folder, d=damage, f=name: _damaged(folder / f, d, folder), copy=True
                )

    def _kill(self, folder: Path, number: int) -> None:
        watched(folder, lambda count: os.kill(os.getpid(), signal.SIGKILL) if count == number else None)
        run(folder)

    def _half(self, folder: Path, number: int) -> None:
        files.write_bytes = halved(number)
        run(folder)

    def _refuse(self, folder: Path, number: int, code: int, lasting: bool) -> None:
        def refuse(count: int) -> None:
            if count == number or (lasting and count > number):
                raise OSError(code, os.strerror(code))

        watched(folder, refuse)
        run(folder)

    def _starve(self, folder: Path, number: int, limit: tuple[int, str], spare: int) -> None:
        def lower(count: int) -> None:
            if count == number:
                what, field = limit
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

        watched(folder, lower)
        run(folder)

    def _signal(self, folder: Path, name: str, after: float) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored by what nohup starts
        sender = os.fork()
        if sender == 0:
            time.sleep(after)
            os.kill(os.getppid(), getattr(signal, name))
            os._exit(0)
        with contextlib.suppress(KeyboardInterrupt):  # it came when the run was over, or had not begun
            run(folder)

    def _surroundings(self) -> dict[str, Callable[[Path, int], None]]:
        def limited(what: int, amount: int) -> Callable[[Path, int], None]:
            def disturbed(folder: Path, number: int) -> None:
                resource.setrlimit(what, (amount << number, resource.getrlimit(what)[1]))
                run(folder)

            return disturbed

        def graded(fail: Callable[[int], Any]) -> Callable[[Path, int], None]:
            return lambda folder, number: run(folder, Grader(fail))

        def reflected(fail: Callable[[], Any]) -> Callable[[Path, int], None]:
            class Failing(Lessons):
                def __call__(self, request: Any) -> str:
                    return fail()

            return lambda folder, number: run(folder, reflector=Failing())

        def jumps(folder: Path, number: int) -> None:
            clock, offset = time.perf_counter, [0.0]

            def odd() -> float:
                offset[0] += (-1e6, 1e6, 3600.0)[number]
                return clock() + offset[0]

            time.perf_counter = time.time = time.monotonic = odd
            run(folder)

        def odd_exit(_: int) -> Any:
            sys.exit(0)

        return {
            "few open files": limited(resource.RLIMIT_NOFILE, 8),
            "small files only": limited(resource.RLIMIT_FSIZE, 512),
            "a clock that jumps": jumps,
            "a grader that raises": graded(lambda _: 1 // 0),
            "a grader that returns None": graded(lambda _: None),
            "a grader that returns text": graded(lambda _: "good"),
            "a grader that returns NaN": graded(lambda _: Feedback(float("nan"))),
            "a grader that returns 2": graded(lambda _: Feedback(2.0)),
            "a grader that returns a coroutine of nothing": graded(lambda _: _nothing()),
            "a grader that exits": graded(odd_exit),
            "a grader that fails on every third answer": graded(lambda n: 1 // 0 if n % 3 == 0 else Feedback(0.5)),
            "a grader that changes the folder": graded(lambda _: (os.chdir("/"), Feedback(0.5))[1]),
            "a reflector that raises": reflected(lambda: 1 // 0),
            "a reflector that refuses": reflected(lambda: _raise(ReflectionFailed("no key", permanent=True))),
            "a reflector that returns nothing": reflected(lambda: ""),
            "a reflector that writes hidden characters": reflected(lambda: "do \u202eit\u200b"),
            "a reflector that writes half a character": reflected(lambda: "do \ud800"),
        }

    def show(self) -> None:
        ends = ["equal", "clear message, then equal", "clear message", "ended, faults counted", "wrong"]
        table = Table("fault", "tried", *ends, title=f"{self.operations} file operations in the undisturbed run")
        for kind, counts in self.results.items():
            table.add_row(kind, str(counts.total()), *(str(counts[end]) for end in ends))
        total = sum(self.results.values(), Counter())
        table.add_section()
        table.add_row("all", str(total.total()), *(str(total[end]) for end in ends))
        Console(width=140).print(table)
        for line in self.wrong:
            print(line)


def _judge_other(folder: Path, code: int, said: str) -> str:
    if code == 2 and "\n" not in said.strip():
        return "clear message"
    if code != 0 or json.loads((folder / "run.json").read_text())["status"] != "finished":
        return "wrong"
    return "ended, faults counted"


async def _nothing() -> None:
    return None


def _raise(error: Exception) -> Any:
    raise error


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


def _damaged(path: Path, damage: Callable[[bytes], bytes | None], folder: Path) -> None:
    data = damage(path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    if (folder / "run.json").exists():
        run(folder)
    else:
        raise FastSlowError("run.json is gone: the folder is no run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="try every so many file operations")
    parser.add_argument("--kills", type=int, default=50, help="signals of each kind at random moments")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    campaign = Campaign(chosen.every, chosen.kills, chosen.seed)
    try:
        campaign.run()
    finally:
        shutil.rmtree(campaign.place, ignore_errors=True)
    campaign.show()
    sys.exit(1 if campaign.wrong else 0)


if __name__ == "__main__":
    main()
