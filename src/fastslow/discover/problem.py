"""A problem: what is looked for, the first candidate, and the code that scores candidates, which runs in the sandbox.

A problem file says `goal` and `seed` and has a function `evaluate(candidate) -> (score, words)`; `seconds`, `megabytes`,
`target`, `tolerance`, `suffix`, `processes` and a function `verify` are optional (docs/discover.md). Also to read them, the
file is executed in the sandbox only.
"""

from __future__ import annotations

import ast
import atexit
import hashlib
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import fastslow
from fastslow.base.errors import TaskError
from fastslow.base.text import one_line, shorten
from fastslow.discover import neighbours
from fastslow.sandbox.calling import call
from fastslow.sandbox.runner import Limits, SandboxError

Goal = Literal["maximize", "minimize"]
SECONDS, MEGABYTES = 10.0, 2048
MOST_SECONDS, MOST_MEGABYTES = 24 * 3600.0, 1 << 20
WORDS, CANDIDATE = 4000, 1 << 20
"""Characters that are kept of an evaluator's words, and that a candidate may have."""
FOLDER = 256 * 2**20
"""Bytes of a folder with a problem."""
FILE = "problem.py"
INCLUDED = Path(__file__).parent / "problems"
_NAMES = ("goal", "seed", "seconds", "megabytes", "target", "tolerance", "suffix", "processes", "prompt", "__doc__")
_FUNCTIONS = ("evaluate", "verify")
_PACKAGE = str(Path(fastslow.__file__).resolve().parents[1])


@dataclass(frozen=True)
class Scored:
    """What an evaluation said of a candidate; `score` is None if the candidate is invalid."""

    score: float | None
    words: str = ""
    reason: str = ""
    """Of an invalid one: `error`, `time`, `memory`, `output`, `crash`, or `score` where no finite number was returned."""


@dataclass(frozen=True)
class Problem:
    """What is looked for."""

    name: str
    about: str
    """What is looked for, in words that the model reads."""
    goal: Goal
    seed: str
    """The first candidate."""
    source: str
    """Python with `evaluate`, and `verify` where there is one."""
    file: str
    """The path of the source."""
    folder: Path | None = None
    """A folder that evaluations can read and import from."""
    seconds: float = SECONDS
    """Of work, for one evaluation and for each run of a candidate in it."""
    megabytes: int = MEGABYTES
    target: float | None = None
    """A score that ends the search."""
    tolerance: float = 0.0
    """How much two evaluations of one candidate may differ, relative to the score; more than 0 where time is measured."""
    verifies: bool = False
    """It has a function `verify`."""
    suffix: str = ".py"
    """Of the file that the best candidate is written to; `.py` is a Python program."""
    processes: bool = False
    """Evaluations may start programs of this machine, such as a compiler."""
    prompt: str = ""
    """What the model is asked, with {parent}, {score}, {words} and {best} in it; empty for the usual words."""

    @property
    def is_program(self) -> bool:
        return self.suffix == ".py"

    @property
    def digest(self) -> str:
        """A hash of what its scores follow from."""
        said = [
            self.goal,
            self.seed,
            self.source,
            self.seconds,
            self.megabytes,
            self.target,
            self.tolerance,
            self.prompt,
        ]
        return hashlib.sha256(repr([*said, self.files]).encode("utf-8", "backslashreplace")).hexdigest()[:16]

    @property
    def files(self) -> list[tuple[str, str]]:
        """The files of its folder, each with a hash."""
        found = sorted(self.folder.rglob("*")) if self.folder else []
        return [
            (str(each.relative_to(self.folder or each)), hashlib.sha256(each.read_bytes()).hexdigest())
            for each in found
            if each.is_file()
        ]

    def value(self, score: float) -> float:
        """A score so that higher is better."""
        return score if self.goal == "maximize" else -score

    def better(self, one: float, other: float) -> bool:
        return self.value(one) > self.value(other)

    def reached(self, score: float) -> bool:
        """Whether a score is as good as the target."""
        return self.target is not None and not self.better(self.target, score)

    def evaluate(self, candidate: str) -> Scored:
        """Score a candidate, in a fresh process."""
        return self._score("evaluate", candidate)

    def verify(self, candidate: str) -> Scored:
        """Score a candidate as exactly as the problem can, from scratch."""
        return self._score("verify" if self.verifies else "evaluate", candidate)

    def agree(self, scores: Sequence[float]) -> bool:
        """Whether scores of one candidate differ by no more than the problem allows."""
        return max(scores) - min(scores) <= self.tolerance * max(map(abs, scores))

    def _score(self, function: str, candidate: str) -> Scored:
        try:
            return self._scored(function, candidate)
        except SandboxError:  # a process did not start on a busy machine, say
            return self._scored(function, candidate)

    def _scored(self, function: str, candidate: str) -> Scored:
        folders = _folders(self.folder)
        # The clock also runs while the evaluator waits for a candidate, which has a process and limits of its own.
        wall = 4 * self.seconds + 2
        limits = Limits(self.seconds, self.megabytes, True, wall=wall, readable=folders, processes=self.processes)
        reply = call(
            self.source,
            function,
            [candidate],
            limits,
            file=self.file,
            folders=folders,
            answer=lambda question, left: run_candidate(question, self, left),
        )
        if reply.reason:
            return Scored(None, shorten(reply.error, WORDS), reply.reason)
        return _scored(reply.value)


def _folders(folder: Path | None) -> list[str]:
    """What the code of a problem can read and import from: its folder, if it has one, and this package."""
    return [*([str(folder)] if folder else []), _PACKAGE]


def run_candidate(
    question: Mapping[str, Any], problem: Problem | None = None, left: float = math.inf
) -> dict[str, Any]:
    """Answer a question of `programs.run`, in as many seconds as are left."""
    most, memory = (problem.seconds, problem.megabytes) if problem else (SECONDS, MEGABYTES)
    seconds = min(float(question["seconds"] or most), most)
    megabytes = min(int(question["megabytes"] or memory), memory)
    wall = max(min(2 * seconds + 1, left), 0.1)
    limits = Limits(seconds, megabytes, bool(question["packages"]), wall=wall)
    reply = call(
        str(question["candidate"]), str(question["function"]), question["arguments"], limits, file="candidate.py"
    )
    return {"value": reply.value, "reason": reply.reason, "error": reply.error}


def _scored(value: Any) -> Scored:
    score, words = (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (value, "")
    text = words if isinstance(words, str) else one_line(words)
    if isinstance(score, bool) or not isinstance(score, int | float):
        said = f"evaluate() returned {one_line(value, 120)}; expected a score and words"
        return Scored(None, said, "score")
    try:
        number = float(score)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        return Scored(None, shorten(text, WORDS) or f"the score is {number}, no finite number", "score")
    return Scored(number, shorten(text, WORDS))


# Loading ---------------------------------------------------------------------------------------------------------------


def load_problem(path: str | Path) -> Problem:
    """The problem of a file, of a folder with a `problem.py`, of OpenEvolve or gepa, or of that included name."""
    place = Path(path).expanduser()
    if not place.exists() and (included := INCLUDED / f"{str(path).replace('-', '_')}.py").is_file():
        return read_problem(included, None, str(path))
    if not (place / FILE).is_file() and (theirs := neighbours.find(place)):
        copy = readable_copy(theirs.folder)
        file = copy / theirs.file
        file.write_text(theirs.source, encoding="utf-8")
        return read_problem(file, copy, place.resolve().stem)
    if place.is_dir():
        if not (place / FILE).is_file():
            raise TaskError(f"the folder '{place}' has no {FILE}; expected a problem file in it (docs/discover.md)")
        copy = readable_copy(place)
        return read_problem(copy / FILE, copy, place.resolve().name)
    if not place.is_file():
        raise TaskError(
            f"there is no problem '{path}'; expected a Python file, a folder with {FILE}, or one of {included_problems()}"
        )
    return read_problem(place, None, place.stem)


def readable_copy(folder: Path) -> Path:
    """A copy of a folder that evaluations can read whoever they run as; it stays as it is when the folder is changed."""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > FOLDER:
        raise TaskError(
            f"the folder '{folder}' has {size / 2**20:,.0f} megabytes; expected a problem and what it needs, at "
            f"most {FOLDER / 2**20:,.0f}"
        )
    kept = tempfile.TemporaryDirectory(prefix="fastslow-problem-")
    atexit.register(kept.cleanup)
    copy = Path(kept.name).resolve() / folder.resolve().name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for place in (copy.parent, copy, *copy.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    return copy


def included_problems() -> list[str]:
    files = sorted(INCLUDED.glob("[!_]*.py")) if INCLUDED.is_dir() else []
    return [file.stem.replace("_", "-") for file in files]


def read_problem(file: Path, folder: Path | None, name: str) -> Problem:
    """The problem of a file; with a folder, evaluations can read it."""
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TaskError(f"the problem '{file}' cannot be read: {one_line(error)}") from None
    file = file.resolve()
    folders = _folders(folder)
    limits = Limits(60, MEGABYTES, packages=True, readable=folders)
    reply = call(source, [*_NAMES, *_FUNCTIONS], [], limits, file=str(file), folders=folders)
    if reply.reason:
        raise TaskError(f"the problem '{file}' cannot be loaded: {one_line(reply.error)}")
    return make_problem(reply.value, source, file, folder, name)


def make_problem(said: Mapping[str, Any], source: str, file: Path, folder: Path | None, name: str) -> Problem:
    """A problem from what its file says; a TaskError where that is wrong."""

    def refuse(what: str, expected: str) -> TaskError:
        return TaskError(f"the problem '{file}' has {what}={one_line(said.get(what), 80)!r}; expected {expected}")

    def number(what: str, default: float, low: float, high: float) -> float:
        value = said.get(what)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise refuse(what, f"a number from {low:g} to {high:g}")
        return float(value)

    if said.get("evaluate") is not True:
        raise TaskError(
            f"the problem '{file}' has no function evaluate(candidate); expected one that returns a score and words"
        )
    if said.get("goal") not in get_args(Goal):
        raise refuse("goal", "'maximize' or 'minimize'")
    seed = said.get("seed")
    if not isinstance(seed, str) or not seed.strip():
        raise refuse("seed", "a text: the first candidate, or the name of a file beside it")
    suffix = said.get("suffix")
    if "\n" not in seed and (beside := file.parent / seed.strip()).is_file():
        seed, suffix = beside.read_text(encoding="utf-8"), suffix or beside.suffix
    suffix = suffix or (".py" if _is_program(seed) else ".txt")
    if not isinstance(suffix, str) or not suffix[1:].isalnum() or suffix[0] != ".":
        raise refuse("suffix", "the end of a file name, such as '.py' or '.txt'")
    target = said.get("target")
    if target is not None:
        target = number("target", 0.0, -math.inf, math.inf)
        if not math.isfinite(target):
            raise refuse("target", "a finite number")
    return Problem(
        name=name,
        about=" ".join(str(said.get("__doc__") or name).split("\n\n")[0].split()),
        goal=said["goal"],
        seed=seed,
        source=source,
        file=str(file),
        folder=folder,
        seconds=number("seconds", SECONDS, 0.01, MOST_SECONDS),
        megabytes=int(number("megabytes", MEGABYTES, 64, MOST_MEGABYTES)),
        target=target,
        tolerance=number("tolerance", 0.0, 0.0, 1.0),
        verifies=said.get("verify") is True,
        suffix=suffix,
        processes=bool(said.get("processes")),
        prompt=str(said.get("prompt") or ""),
    )


def _is_program(text: str) -> bool:
    """Whether a text is Python that defines something."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in tree.body)
