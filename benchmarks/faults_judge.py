"""Which end a fault allows, and whether a run came to it.

What a folder holds is compared file by file, without what a clock put there. A fault allows one of these ends:

- `equal`: resumed without disturbance, the run ends with exactly the files of an undisturbed one.
- `refused`: one clear message, the folder unchanged byte for byte, and with the damaged file restored it resumes `equal`.
- `restored`: as `unneeded`, or one clear message, and with the damaged file restored it resumes `equal`.
- `unneeded`: the run ends `equal`; the damaged file, which it does not read, may stay as it is.
- `found`: one clear message before step 1, no folder left behind, and with the right grader the run ends `equal`.
- `stopped`: one clear message, recorded in run.json, and with the right grader the run can be resumed to its end.
- `counted`: the run ends with all its rows, and counts the faults.

A command that hangs, writes beside its folder, keeps the lock, says more than one message or shows a traceback is wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.faults_run import (
    DAMAGES,
    ENDED,
    KILLED,
    LOCKED,
    NO_END,
    REFUSED,
    Disturbed,
    damage,
    in_child,
    killed,
    run,
    watched,
)
from fastslow.runs.checkpoint import MANIFEST, WITNESS

End = Literal["equal", "refused", "restored", "unneeded", "found", "stopped", "counted"]
CLOCK = ("seconds", "phases", "started")
"""Keys of JSON files that a clock decides."""
HASHES = (MANIFEST, WITNESS)
"""Files of hashes, which differ with the clock: their keys are compared."""


@dataclass(frozen=True)
class Fault:
    kind: str
    what: str
    disturbed: Disturbed
    codes: tuple[int, ...] = (ENDED, REFUSED)
    """How the disturbed command may end."""
    end: End = "equal"
    begun: str | None = None
    """The folder that is there from the start, `whole` or `halted`; None for a new run."""
    damaged: tuple[str, str] | None = None
    """A file of that folder, and how it is damaged."""
    skips: bool = False
    """A checkpoint that could not be saved may be missing, as long as a later one is there."""
    strict: bool = True
    """Nothing but one message may be on the terminal; not where memory is short: libraries write there too."""
    signal: int = 0


class Judge:
    """The undisturbed run, a halted one, and what a folder must hold in the end."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="faults-"))
        self.place, around = self.home / "runs", self.home / "around"
        for each in (self.place, around):
            each.mkdir()
        os.environ |= {"HOME": str(around), "TMPDIR": str(around), "XDG_CACHE_HOME": str(around)}
        tempfile.tempdir = None
        os.chdir(around)
        started = time.perf_counter()
        self.whole, self.halted, self.folder = (self.place / name for name in ("whole", "halted", "run"))
        code, said = in_child(run, self.whole)
        if code != ENDED:
            raise SystemExit(f"the undisturbed run fails: {said}")
        self.seconds = time.perf_counter() - started
        self.expected = contents(self.whole)
        self.operations = self._operations()
        third = next(n for n, text in enumerate(self.operations, 1) if "checkpoints/step-000003" in text)
        in_child(killed(third), self.halted)
        self.newest = {name: _newest(self.place / name) for name in ("whole", "halted")}

    def close(self) -> None:
        os.chdir("/")
        shutil.rmtree(self.home, ignore_errors=True)

    def _operations(self) -> list[str]:
        """The file operations of an undisturbed run."""
        note = self.home / "operations"

        def counted(folder: Path) -> None:
            with note.open("a") as file:
                watched(
                    folder, lambda _, text: print(text, file=file, flush=True) if "operations" not in text else None
                )
                run(folder)

        in_child(counted, self.folder)
        operations = note.read_text().splitlines()
        note.unlink()
        return operations

    def seen(self, begun: str) -> set[str]:
        """The files of the run that the newest checkpoint notes."""
        return set(json.loads((self.place / begun / "checkpoints" / self.newest[begun] / WITNESS).read_text()))

    def judge(self, fault: Fault) -> tuple[str, str]:
        """How the run came to a right end, or "wrong", and what is wrong."""
        folder, before = self._prepared(fault)
        surroundings = self._surroundings()
        code, said = in_child(fault.disturbed, folder)
        problem = _wrong_end(fault, code, said)
        if not problem and self._surroundings() != surroundings:
            problem = f"files beside the folder: {sorted(self._surroundings() ^ surroundings)[:3]}"
        if not problem:
            problem = getattr(self, f"_{fault.end}")(fault, folder, code, before)
        if not problem and self._surroundings() != surroundings:
            problem = f"files beside the folder after resume: {sorted(self._surroundings() ^ surroundings)[:3]}"
        if problem:
            return "wrong", problem
        if fault.end == "equal":
            return "equal" if code != REFUSED else "clear message, then equal", ""
        return fault.end, ""

    def _prepared(self, fault: Fault) -> tuple[Path, dict[str, bytes]]:
        shutil.rmtree(self.folder, ignore_errors=True)
        if fault.begun:
            shutil.copytree(self.place / fault.begun, self.folder)
        if fault.damaged:
            name, how = fault.damaged
            damage(self.folder / name, DAMAGES[how])
        return self.folder, raw(self.folder)

    def _surroundings(self) -> set[str]:
        found = (path for path in self.home.rglob("*") if not path.is_relative_to(self.place / "run"))
        return {f"{path.relative_to(self.home)} {path.stat().st_size if path.is_file() else ''}" for path in found}

    def _resumed(self, folder: Path, skips: bool = False, except_for: str | None = None) -> str:
        """What is wrong with the run after an undisturbed resume, "" if nothing is."""
        code, said = in_child(run, folder)
        if code != ENDED or said:
            return f"resume ends with {_named(code)}: {said[:300]}"
        different = self._different(folder, skips, except_for)
        return f"resumed, but {different}" if different else ""

    def _different(self, folder: Path, skips: bool = False, except_for: str | None = None) -> str:
        found = contents(folder)
        last = max((name.split("/")[1] for name in found if name.startswith("checkpoints/step-")), default="")
        for name in sorted({*found, *self.expected}):
            older = (name.startswith("checkpoints/") and last not in name) or name.endswith(".json.gz")
            if name == except_for or (skips and older and name not in found):
                continue
            if name.endswith(WITNESS) and set(found.get(name, ())) > set(self.expected.get(name, ())):
                continue  # it may note files of a later cycle, which a run that starts over finds in its folder
            if name.endswith(WITNESS) and {*self.expected.get(name, ())} - {*found.get(name, ())} == {except_for}:
                continue  # nor can it note the file that is gone
            if found.get(name) != self.expected.get(name):
                how = "missing" if name not in found else "left over" if name not in self.expected else "different"
                return f"{name} is {how}"
        return ""

    # The ends ---------------------------------------------------------------------------------------------------------

    def _equal(self, fault: Fault, folder: Path, code: int, _: dict[str, bytes]) -> str:
        if code == ENDED and (different := self._different(folder, fault.skips)):
            return f"ended without an error, but {different}"
        if fault.signal and (problem := _wrong_status(folder, code)):
            return problem
        return self._resumed(folder, fault.skips)

    def _refused(self, fault: Fault, folder: Path, code: int, before: dict[str, bytes]) -> str:
        if code != REFUSED:
            return "not refused"
        if (after := raw(folder)) != before:
            changed = sorted(name for name in {*after, *before} if after.get(name) != before.get(name))
            return f"refused, but changed {', '.join(changed[:3])}"
        return self._restored(fault, folder, code, before)

    def _restored(self, fault: Fault, folder: Path, code: int, before: dict[str, bytes]) -> str:
        if code == ENDED:
            return self._unneeded(fault, folder, code, before)
        assert fault.begun
        assert fault.damaged
        name = fault.damaged[0]
        shutil.copy2(self.place / fault.begun / name, folder / name)
        return self._resumed(folder)

    def _unneeded(self, fault: Fault, folder: Path, code: int, before: dict[str, bytes]) -> str:
        assert fault.damaged
        name = fault.damaged[0]
        if different := self._different(folder, except_for=name):
            return f"ended without an error, but {different}"
        if raw(folder).get(name) == before.get(name) or name == "run.json":
            return ""  # neither read nor written, or one key of several
        return self._different(folder)

    def _found(self, fault: Fault, folder: Path, code: int, _: dict[str, bytes]) -> str:
        return "a folder is left behind" if folder.exists() else self._resumed(folder)

    def _stopped(self, fault: Fault, folder: Path, code: int, _: dict[str, bytes]) -> str:
        recorded = _recorded(folder)
        if recorded.get("status") != "failed" or not recorded.get("error"):
            return f"run.json says {recorded}"
        again, said = in_child(run, folder)
        if again != ENDED or said:
            return f"resume ends with {_named(again)}: {said[:300]}"
        return _incomplete(folder)

    def _counted(self, fault: Fault, folder: Path, code: int, _: dict[str, bytes]) -> str:
        if problem := _incomplete(folder):
            return problem
        cycles = [json.loads(path.read_text()) for path in folder.glob("contexts/cycle-*.json")]
        counted = sum(len(cycle["rejected"]) + sum(cycle["faults"].values()) for cycle in cycles)
        return "" if counted or "grader" in fault.kind else "the faults are not counted"


def _wrong_end(fault: Fault, code: int, said: str) -> str:
    """What is wrong with how the disturbed command ended, whatever it did to the folder."""
    if code not in fault.codes:
        return f"ended with {_named(code)}: {said[-300:]}"
    lines = said.splitlines()
    messages = [line for line in lines if line.startswith("error: ") and "(unexpected;" not in line]
    if code == REFUSED and (len(messages) != 1 or (fault.strict and len(lines) != 1)):
        return f"refused without one clear message: {said[-300:]}"
    return f"says {said[-300:]}" if fault.strict and code == ENDED and said else ""


def _named(code: int) -> str:
    return {NO_END: "no end", LOCKED: "the lock still held", KILLED: "a kill"}.get(code, f"exit code {code}")


def _wrong_status(folder: Path, code: int) -> str:
    """What run.json must say of a run that a signal has stopped: killed outright is only one that had not begun, or ended."""
    recorded = _recorded(folder)
    if code == REFUSED and recorded and recorded["status"] != "interrupted":
        return f"interrupted, but run.json says {recorded['status']}"
    begun = (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size
    if code < 0 and code != -signal.SIGKILL and begun and recorded["status"] != "finished":
        return "killed outright in the middle of the run"
    return ""


def _recorded(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _incomplete(folder: Path) -> str:
    """What a finished run lacks, whatever its scores were."""
    recorded = _recorded(folder)
    if recorded.get("status") != "finished":
        return f"run.json says {recorded.get('status')}"
    for name, first in (("metrics", 1), ("ledger", 0)):
        steps = [json.loads(line)["step"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        if steps != list(range(first, 5)):
            return f"{name}.jsonl has steps {steps}"
    return ""


def raw(folder: Path) -> dict[str, bytes]:
    """The bytes of every file but the lock, which holds the number of a process."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def contents(folder: Path) -> dict[str, Any]:
    """Everything in a run folder that a clock does not decide, by file."""
    return {name: _timeless(name, data) for name, data in raw(folder).items()}


def _timeless(name: str, data: bytes) -> Any:
    read: Callable[[bytes], Any] = json.loads
    try:
        if name.endswith(".jsonl"):
            return [_without_clock(read(line)) for line in data.splitlines()]
        if name.endswith(".json"):
            found = read(data)
            if Path(name).name in HASHES:
                return sorted(found.get("files", found))
            return _without_clock(found)
    except (ValueError, AttributeError):
        pass
    return data


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_clock(inner) for key, inner in value.items() if key not in CLOCK}
    return [_without_clock(inner) for inner in value] if isinstance(value, list) else value


def _newest(folder: Path) -> str:
    return max(path.name for path in (folder / "checkpoints").glob("step-*"))
