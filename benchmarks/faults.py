"""A fault campaign: what becomes of a run that is killed, runs out of disk, or is damaged.

    python -m benchmarks.faults [--count 1000] [--kills 50] [--seed 0]
    python -m benchmarks.faults --defects [--count 120] [--only resume]

A small run of both loops, with an engine of pure Python, is disturbed in every way: killed before each of its file operations
and in the middle of each file it writes; each operation refused (disk full, read-only, no permission, too many open files,
input/output error), once and from then on; killed and signalled at random moments; out of memory from some operation on;
under limits of open files and of file size; with a clock that jumps; with graders and reflectors that fail in every way; and
every file of a finished and of a halted run damaged in several ways. Killing and refusing are repeated while a halted run is
resumed. `faults_judge` says which end each fault allows, and compares the folder with that of an undisturbed run. The table
counts the ends and lists what is wrong; the exit code is 1 if anything is. `--count` draws some faults, of every kind.

`--defects` asks whether the judge would notice: each defect of `faults_defects` is put into the product, and faults are tried
until one ends wrong. The exit code is 1 if a defect is not noticed, or if a fault ends wrong without any.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.faults_defects import seeded
from benchmarks.faults_judge import End, Fault, Judge
from benchmarks.faults_run import (
    DAMAGES,
    ENDED,
    KILLED,
    MEMORY,
    REFUSALS,
    REFUSED,
    graded,
    killed,
    killed_in_a_file,
    limited,
    reflected,
    refused,
    resume,
    signalled,
    starved,
    with_jumping_clock,
)
from fastslow.fast.reflection import ReflectionFailed
from fastslow.records import Feedback
from fastslow.runs import files
from fastslow.runs.checkpoint import WITNESSED

SPARE = (2**10, 2**15, 2**18, 2**21)
"""Bytes that a starved process may still take."""
NO_STORAGE = 127
"""The exit code with which glibc ends a process that has no memory for another thread's own data."""
SIGNALS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL, signal.SIGILL, signal.SIGTRAP)
ABORTED = (NO_STORAGE, *(-number for number in SIGNALS))
SURELY = 20
"""File operations that a resumed run makes at least."""
ENDS = ("equal", "clear message, then equal", "refused", "restored", "unneeded", "found", "stopped", "counted", "wrong")


def all_faults(judge: Judge, kills: int, draw: random.Random) -> Iterator[Fault]:
    operations = len(judge.operations)
    for number in range(1, operations + 1):
        yield Fault("kill before a file operation", str(number), killed(number), codes=(KILLED,))
        for (name, code), lasting in product(REFUSALS.items(), (False, True)):
            kind = f"{name}, {'from an operation on' if lasting else 'at one operation'}"
            # What is refused from then on cannot end well: the last checkpoint is not saved.
            codes = (REFUSED,) if lasting else (ENDED, REFUSED)
            yield Fault(kind, str(number), refused(number, code, lasting), codes=codes, skips=not lasting)
    last = "checkpoints/.writing-step-000004/"  # not the folder itself: one that is there already need not be made
    for number in (number for number, text in enumerate(judge.operations, 1) if last in text):
        disturbed = refused(number, REFUSALS["disk full"], False)
        yield Fault("disk full at the last checkpoint", str(number), disturbed, codes=(REFUSED,))
    for number in range(1, sum("open" in text for text in judge.operations) // 2):
        yield Fault("kill in the middle of a file", str(number), killed_in_a_file(number), codes=(KILLED, ENDED))
    for number in range(1, operations // 2):
        codes = (KILLED,) if number <= SURELY else (KILLED, ENDED)
        yield Fault("kill while resuming", str(number), killed(number), codes=codes, begun="halted")
        code = REFUSALS["disk full"]
        codes = (REFUSED,) if number <= SURELY else (ENDED, REFUSED)
        disturbed = refused(number, code, True)
        yield Fault("disk full while resuming", str(number), disturbed, codes=codes, begun="halted")
    for _, name in product(range(kills), ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")):
        after, which = draw.random() * judge.seconds, getattr(signal, name)
        codes = (ENDED, -which) if name == "SIGKILL" else (ENDED, REFUSED, -which)
        yield Fault(f"{name} at a random moment", f"{after:.3f} s", signalled(name, after), codes=codes, signal=which)
    for number in range(1, operations + 1, 2):
        for (kind, limit), spare in product(MEMORY.items(), SPARE):
            yield Fault(
                f"no more {kind} from an operation on",
                f"{number}, {spare} bytes left",
                starved(number, limit, spare),
                codes=(ENDED, REFUSED, *ABORTED),
                skips=True,
                strict=False,
            )
    yield from surroundings()
    yield from damages(judge)


def surroundings() -> Iterator[Fault]:
    for number in range(3):
        few, small = 8 << number, 512 << number
        yield Fault("few open files", str(few), limited(resource.RLIMIT_NOFILE, few), skips=True)
        yield Fault("small files only", str(small), limited(resource.RLIMIT_FSIZE, small), skips=True)
    for jump in (-1e6, 1e6, 3600.0):
        yield Fault("a clock that jumps", str(jump), with_jumping_clock(jump), codes=(ENDED,))

    def exits(_: int) -> Any:
        sys.exit(0)

    graders = {
        "raises": lambda _: 1 // 0,
        "returns None": lambda _: None,
        "returns text": lambda _: "good",
        "returns NaN": lambda _: Feedback(float("nan")),
        "returns 2": lambda _: Feedback(2.0),
        "returns a coroutine of nothing": lambda _: _nothing(),
        "exits": exits,
    }
    for what, fail in graders.items():
        yield Fault(f"a grader that {what}", "", graded(fail), codes=(REFUSED,), end="found")
    third = graded(lambda n: 1 // 0 if n % 3 == 0 else Feedback(0.5))
    yield Fault("a grader that fails on every third answer", "", third, codes=(REFUSED,), end="stopped")
    moves = graded(lambda _: (os.chdir("/"), Feedback(0.5))[1])
    yield Fault("a grader that changes the folder", "", moves, codes=(ENDED,), end="counted")
    reflectors = {
        "raises": lambda: 1 // 0,
        "refuses": lambda: _raise(ReflectionFailed("no key", permanent=True)),
        "returns nothing": lambda: "",
        "writes hidden characters": lambda: "do \u202eit\u200b",
        "writes half a character": lambda: "do \ud800",
    }
    for what, answer in reflectors.items():
        yield Fault(f"a reflector that {what}", "", reflected(answer), codes=(ENDED,), end="counted")


def damages(judge: Judge) -> Iterator[Fault]:
    for begun, folder in (("whole", judge.whole), ("halted", judge.halted)):
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock"):
            name = str(path.relative_to(folder))
            for how in DAMAGES:
                end = allowed(judge, begun, name, how)
                codes = {"refused": (REFUSED,), "restored": (ENDED, REFUSED)}.get(end, (ENDED,))
                kind = f"a file {how}, {begun} run"
                yield Fault(kind, name, resume, codes=codes, end=end, begun=begun, damaged=(name, how))


def allowed(judge: Judge, begun: str, name: str, how: str) -> End:
    """What the newest checkpoint has seen is needed; what was written after it is written again, but a cycle is read."""
    newest, path = judge.newest[begun], PurePath(name)
    if name == "run.json" and how == "with one bit changed":
        return "restored"  # in the number of a version, say, where nothing is lost
    if name in ("run.json", "recipe.yaml") or name.startswith(f"checkpoints/{newest}/"):
        return "refused"
    if name in judge.seen(begun) and any(path.match(pattern) for pattern in WITNESSED):
        return "refused"
    cycle = path.match("contexts/cycle-*.json") or path.match("rollouts/cycle-*.json.gz")
    return "restored" if cycle and begun == "halted" else "unneeded"


async def _nothing() -> None:
    return None


def _raise(error: Exception) -> Any:
    raise error


def of_every_kind(faults: list[Fault], count: int, draw: random.Random) -> list[Fault]:
    """A random sample in which every kind comes before any comes twice."""
    draw.shuffle(faults)
    seen: Counter[str] = Counter()
    place = {}
    for fault in faults:
        place[fault] = seen[fault.kind]
        seen[fault.kind] += 1
    return sorted(faults, key=place.__getitem__)[:count]


class Campaign:
    def __init__(self, judge: Judge) -> None:
        self.judge, self.results, self.wrong = judge, dict[str, Counter[str]](), list[str]()

    def try_fault(self, fault: Fault) -> bool:
        """Whether it ended as it may."""
        ended, problem = self.judge.judge(fault)
        self.results.setdefault(fault.kind, Counter())[ended] += 1
        if problem:
            self.wrong.append(f"{fault.kind}, {fault.what}: {' '.join(problem.split())}")
            print(self.wrong[-1], file=sys.stderr, flush=True)
        return not problem

    def show(self) -> None:
        table = Table(
            "fault", "tried", *ENDS, title=f"{len(self.judge.operations)} file operations in the undisturbed run"
        )
        for kind, counts in sorted(self.results.items()):
            table.add_row(kind, str(counts.total()), *(str(counts[end] or "") for end in ENDS))
        total = sum(self.results.values(), Counter())
        table.add_section()
        table.add_row("all", str(total.total()), *(str(total[end]) for end in ENDS))
        Console(width=160).print(table)
        for line in self.wrong:
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help="faults to draw; all by default")
    parser.add_argument("--kills", type=int, default=50, help="signals of each kind at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--defects", action="store_true", help="put defects into the product that must be noticed")
    parser.add_argument("--only", action="append", help="of the defects, those whose names contain this")
    chosen = parser.parse_args()
    files.sync = lambda path: None  # none of the faults is a power cut
    judge, draw = Judge(), random.Random(chosen.seed)
    try:
        faults = list(all_faults(judge, chosen.kills, draw))
        if chosen.count is not None or chosen.defects:
            faults = of_every_kind(faults, chosen.count or 120, draw)
        campaign = Campaign(judge)
        missed = seeded(judge, faults, chosen.only or [""]) if chosen.defects else []
        if not chosen.defects:
            for number, fault in enumerate(faults, 1):
                campaign.try_fault(fault)
                if number % 50 == 0:
                    print(f"{number} of {len(faults)}, {len(campaign.wrong)} wrong", file=sys.stderr, flush=True)
            campaign.show()
    finally:
        judge.close()
    sys.exit(1 if campaign.wrong or missed else 0)


if __name__ == "__main__":
    main()
