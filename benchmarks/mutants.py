"""Would the tests notice? Random one-place changes of the core, and the tests that should fail.

    python -m benchmarks.mutants [--sample 300] [--seed 0] [--jobs 1] [--only fast/digest[/model.py[:130]]]

Changes a comparison, an operator, a number, a boolean, `and`, `or` or `not` in `loop`, `state`, `fast`, `slow`, `rollouts`,
`runs`, `prefix` or `study`, in a temporary copy of `src`, and runs the tests that belong to the module and reach the changed
statement, cheapest first, until one fails. The tests of a module are those of its room under `tests/` and those in `EXTRA`. A
first pass, kept in the cache folder, finds which test reaches which line. A change is caught if a test fails or takes far
longer than before. Survivors are listed with the line before and after; those in mutants.toml were judged: they change
nothing that can be observed. The exit code is 1 if less than 95% are caught or answered. Messages, assertions,
`zip(strict=…)`, Triton kernels (they need a GPU) and numbers that only lay out a figure are left out.

mutmut and cosmic-ray do not sample, and run one set of tests for every change; this forks a process that has the libraries
loaded, and runs the few tests that matter.
"""

from __future__ import annotations

import argparse
import builtins
import compileall
import contextlib
import gc
import hashlib
import importlib
import inspect
import json
import marshal
import os
import py_compile
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.mutants_sites import REACHED, Mutant, sites, with_marks

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = ROOT / "src" / "fastslow", ROOT / "tests"
ROOMS = ("loop", "state", "slow", "study", "rollouts", "runs", "prefix", "fast")
ON_A_GPU = ("prefix/decode_attention.py",)
LAYOUT = ("study/figures.py", "runs/board/page.py")
EXTRA = {
    "state.py": ("test_loop.py",),
    "fast/memory.py": ("test_loop.py",),
    "fast/evolution.py": ("test_loop.py",),
    "runs/recorder.py": ("test_loop.py", "test_stops.py", "test_falling.py", "slow/test_withdraw.py"),
    "runs/saving.py": ("test_loop.py",),
    "runs/trouble.py": ("test_loop.py", "test_falling.py"),
    "slow/stream.py": ("test_loop.py",),
}
"""Tests of a module that stand elsewhere."""
SLOW = ("test_browser.py", "test_whole_runs.py", "test_studies.py", "test_training.py", "test_quickstart.py")
"""Left out: they take minutes, for what other tests see as well."""
LOADED = (
    *(
        "torch",
        "torch._dynamo",
        "torch.distributed.fsdp",
        "numpy",
        "pandas",
        "pyarrow.parquet",
        "scipy.stats",
        "scipy.optimize",
    ),
    *("transformers.generation.utils", "transformers.trainer_utils", "trl.trainer.utils", "accelerate", "peft"),
    *("transformers.models.qwen3.modeling_qwen3", "transformers.models.llama.modeling_llama"),
    *("datasets", "gepa", "dspy"),
    *("optuna", "matplotlib.pyplot", "rich.live", "typer", "hypothesis", "pytest"),
)
"""Loaded once, where they are installed: every test process is forked."""
PASSED, FAILED = 0, 1
NO_END = (-signal.SIGKILL, -signal.SIGXCPU)
MOST_MEMORY = 8 * 2**30
MOST_SECONDS = 30.0
"""Seconds of computing that the tests of one change may take where nothing is changed; those beyond are not run."""
MOST_REACH = 600.0
"""Seconds of computing in which a test file must have shown what it reaches."""
IDLE = 6
"""How much longer than its computing a process may take: tests wait, and machines are shared."""
WANTED = 0.95


class Reach:
    """A pytest plugin: the lines of the package that each test runs, and its seconds. What a test has made for several, in a
    fixture of their file, all of them run."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self._lines: set[tuple[str, int]] = set()
        self._seconds = 0.0
        self._shared: dict[tuple[str, str], list[str]] = {}
        setattr(builtins, REACHED, self._lines.add)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._lines.clear()

    def pytest_runtest_setup(self, item: Any) -> None:
        for name, (*_, fixture) in item._fixtureinfo.name2fixturedefs.items():
            if fixture.scope != "function" and fixture.baseid.endswith(".py") and not name.startswith("_"):
                self._shared.setdefault((fixture.baseid, name), []).append(item.nodeid)

    def pytest_runtest_call(self) -> None:
        self._seconds = -_computed()  # without fixtures that the first test of a file makes for all

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            self._seconds += _computed()
        if report.failed or report.skipped:
            self._lines.clear()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.found[nodeid] = {"seconds": self._seconds, "lines": set(self._lines)}

    def pytest_sessionfinish(self) -> None:
        for tests in self._shared.values():
            theirs = set().union(*(self.found[test]["lines"] for test in tests))
            for test in tests:
                self.found[test]["lines"] = theirs | self.found[test]["lines"]
        for found in self.found.values():
            by_file: dict[str, list[int]] = {}
            for name, line in sorted(found["lines"]):
                by_file.setdefault(name, []).append(line)
            found["lines"] = by_file


def _computed() -> float:
    """Seconds of computing of this process and of those it has waited for, however busy the machine is."""
    return sum(os.times()[:4])


class Copy:
    """A copy of the source in which a file can be changed; what is not changed is compiled once. Where it is `marked`, every
    statement of a function says that it is reached."""

    def __init__(self, place: Path, *, marked: bool = False) -> None:
        self.place, self.package = place, place / "src" / "fastslow"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(self.package, quiet=2, invalidation_mode=unchecked)
        for path in self.package.rglob("*.py") if marked else ():
            tree = with_marks(path.read_text(), str(path.relative_to(self.package)))
            compiled = Path(importlib.util.cache_from_source(str(path)))
            header = compiled.read_bytes()[:16]
            compiled.write_bytes(header + marshal.dumps(compile(tree, str(path), "exec", dont_inherit=True)))

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        path = self.package / mutant.file
        source, compiled = path.read_text(), Path(importlib.util.cache_from_source(str(path)))
        kept = compiled.read_bytes()
        compiled.unlink()
        path.write_text(mutant.apply(source))
        try:
            yield
        finally:
            path.write_text(source)
            compiled.write_bytes(kept)


def start_tests(copy: Copy, arguments: Sequence[str], most: float, reached: Path | None = None) -> int:
    """Start a process that runs tests against a copy of the source, in a group of its own, and computes for at most so many
    seconds; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 3
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        with (copy.place / "output.txt").open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(most), int(most)))
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = str(copy.package.parent)
        sys.path[:0] = [str(copy.package.parent), str(ROOT)]
        reach = Reach()
        import pytest

        shutil.rmtree(copy.place / "tests", ignore_errors=True)
        quiet = ("-q", "-p", "no:cacheprovider", f"--basetemp={copy.place / 'tests'}")
        code = int(pytest.main([*quiet, *arguments], plugins=[reach] if reached else None))
        if reached:
            reached.write_text(json.dumps(reach.found))
    finally:
        os._exit(code)


def in_turn(work: Iterable[Callable[[Copy], Iterator[tuple[int, float]]]], copies: Sequence[Copy]) -> None:
    """Do the work, one piece in each copy at a time. A piece yields a process and a time limit, and gets the exit code."""
    free, busy, waiting = list(copies), dict[int, tuple[Any, Copy, float]](), iter(work)
    try:
        while True:
            while free and (piece := next(waiting, None)) is not None:
                copy = free.pop()
                running = piece(copy)
                child, limit = next(running)
                busy[child] = running, copy, time.perf_counter() + limit
            if not busy:
                return
            time.sleep(0.02)
            for child, (running, copy, until) in list(busy.items()):
                if time.perf_counter() > until:
                    _end_group(child)
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    _end_group(child)  # what the tests have started and left
                    del busy[child]
                    free.append(copy)
                    with contextlib.suppress(StopIteration):
                        running.send(os.waitstatus_to_exitcode(status))
    finally:
        for child, (running, _, _) in busy.items():
            _end_group(child)
            running.close()


def _end_group(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


# Which tests ----------------------------------------------------------------------------------------------------------


def tests_of(module: str) -> list[Path]:
    """The test files that belong to a module of the package: those of its room, and some that stand elsewhere."""
    room = _room(module)
    files = {path for path in (TESTS / room).rglob("test_*.py") if path.name not in SLOW}
    return sorted({*files, *TESTS.glob(f"test_{room}.py"), *(TESTS / name for name in EXTRA.get(module, ()))})


def _room(module: str) -> str:
    return module.split("/", maxsplit=1)[0].removesuffix(".py")


def reached_by(files: Iterable[Path], copies: Sequence[Copy]) -> dict[str, dict[str, Any]]:
    """Which lines each test of these files runs; kept in the cache folder until what they run changes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fastslow" / "mutants"
    cache.mkdir(parents=True, exist_ok=True)
    helpers = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    state = _digest(*sorted(helpers))
    kept = {path: cache / f"{_digest(path)}-{state}.json" for path in sorted(files)}

    def piece(path: Path) -> Callable[[Copy], Iterator[tuple[int, float]]]:
        def run(copy: Copy) -> Any:
            started, new = time.perf_counter(), copy.place / "reach.json"
            code = yield start_tests(copy, [str(path.relative_to(ROOT))], MOST_REACH, new), IDLE * MOST_REACH
            if code in (PASSED, FAILED):
                tests = json.loads(new.read_text())
                source = {name: _digest(PACKAGE / name) for each in tests.values() for name in each["lines"]}
                kept[path].write_text(json.dumps({"source": source, "tests": tests}))
            say(f"{path.relative_to(ROOT)}: {time.perf_counter() - started:.0f} s, exit code {code}")

        return run

    if unknown := [piece(path) for path, place in kept.items() if _reach(place) is None]:
        for copy in copies:
            shutil.rmtree(copy.place / "marked", ignore_errors=True)
        in_turn(unknown, [Copy(copy.place / "marked", marked=True) for copy in copies])
    return {test: found for place in kept.values() for test, found in (_reach(place) or {}).items()}


def _reach(place: Path) -> dict[str, dict[str, Any]] | None:
    """What is kept of the tests of a file, as long as each file of the package that they reach is as it was."""
    if not place.exists():
        return None
    kept = json.loads(place.read_text())
    same = all((PACKAGE / name).exists() and _digest(PACKAGE / name) == was for name, was in kept["source"].items())
    return dict(kept["tests"]) if same else None


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def chosen_tests(mutant: Mutant, reach: dict[str, dict[str, Any]]) -> tuple[list[str], float]:
    """The tests that run the changed statement, cheapest first, and the seconds they take."""
    files = tuple(str(path.relative_to(ROOT)) for path in tests_of(mutant.file))
    own = {test: found for test, found in reach.items() if test.split("::")[0] in files}
    lines = set(range(mutant.first, mutant.last + 1))
    hit = [test for test, found in own.items() if lines & set(found["lines"].get(mutant.file, ()))]
    if mutant.always:  # importing runs it: any test of the module can notice
        hit = [test for test, found in own.items() if mutant.file in found["lines"]]
    tests, total = [], 0.0
    for test in sorted(hit, key=lambda test: own[test]["seconds"]):
        if total + own[test]["seconds"] > MOST_SECONDS:
            break
        tests, total = [*tests, test], total + own[test]["seconds"]
    return tests, total


# The changes ----------------------------------------------------------------------------------------------------------


def try_mutants(mutants: Sequence[Mutant], copies: Sequence[Copy]) -> dict[Mutant, str]:
    """How each change ended: caught, caught (no end), survived, or not reached. One room comes after the other."""
    ended: dict[Mutant, str] = {}
    reach: dict[str, dict[str, Any]] = {}

    def piece(mutant: Mutant) -> Callable[[Copy], Iterator[tuple[int, float]]] | None:
        tests, seconds = chosen_tests(mutant, reach)

        def run(copy: Copy) -> Any:
            most = 20 + 5 * seconds
            with copy.changed(mutant):
                code = yield start_tests(copy, ["-x", *tests], most), IDLE * most
            ended[mutant] = "survived" if code == PASSED else "caught, no end" if code in NO_END else "caught"
            say(f"{len(ended)}/{len(mutants)} {ended[mutant]} by {len(tests)} tests: {described(mutant)}")

        if not tests:
            ended[mutant] = "not reached"
            say(f"{len(ended)}/{len(mutants)} not reached: {described(mutant)}")
        return run if tests else None

    for room in ROOMS:
        inside = [each for each in mutants if _room(each.file) == room]
        reach |= reached_by({path for mutant in inside for path in tests_of(mutant.file)}, copies)
        in_turn([run for mutant in inside if (run := piece(mutant))], copies)
    return ended


def described(mutant: Mutant) -> str:
    before, after = mutant.lines((PACKAGE / mutant.file).read_text())
    return f"{mutant.file}:{mutant.line}\n    {before}\n  → {after}"


def answered() -> set[tuple[str, str, str]]:
    """Changes that were judged: file, line before, line after."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {(each["file"], each["before"], each["after"]) for each in listed.get("equivalent", ())}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def drawn(sample: int, seed: int, only: str) -> list[Mutant]:
    """A random sample of all changes, or of those in files whose path begins so."""
    found = [mutant for mutant in sites(PACKAGE, ROOMS) if mutant.file not in ON_A_GPU]
    found = [
        each
        for each in found
        if not (each.file in LAYOUT and re.fullmatch(r"[\d.e+-]+", each.text) and each.end > each.start)
    ]
    path, _, line = only.partition(":")
    found = [each for each in found if each.file.startswith(path) and (not line or each.line == int(line))]
    return random.Random(seed).sample(found, min(sample, len(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="changes to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--only",
        default="",
        help="only files whose path in the package begins so, or one line of a file: fast/digest/model.py:130",
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the copies are removed whatever ends the command
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "CI": "1"}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and finding them takes as long as the tests do
    for library in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    with contextlib.suppress(ImportError):  # a failure need not be small
        runner = importlib.import_module("hypothesis.internal.conjecture.engine").ConjectureRunner
        for name in [each for each in vars(runner) if each.startswith("shrink_interesting")]:
            setattr(runner, name, lambda self: None)
    inspect.getmodule(main.__code__)  # it keeps which file each module is of; pydantic asks for every class
    gc.collect()
    gc.freeze()  # collections in the forked processes pass over what is loaded
    mutants, known = drawn(chosen.sample, chosen.seed, chosen.only), answered()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copies = [Copy(Path(place) / str(number)) for number in range(chosen.jobs)]
        ended = try_mutants(mutants, copies)
    judged = {
        mutant: "answered"
        for mutant, how in ended.items()
        if how in ("survived", "not reached")
        and (mutant.file, *mutant.lines((PACKAGE / mutant.file).read_text())) in known
    }
    ended |= judged
    counts = Counter(ended.values())
    open_ = [mutant for mutant, how in ended.items() if how in ("survived", "not reached")]
    for mutant in sorted(open_, key=lambda each: (each.file, each.line)):
        print(f"{ended[mutant]}: {described(mutant)}")
    share = 1 - len(open_) / len(mutants)
    print(f"{len(mutants)} changes, seed {chosen.seed}: {share:.1%} caught or answered; {dict(counts)}")
    sys.exit(0 if share >= WANTED else 1)


if __name__ == "__main__":
    main()
