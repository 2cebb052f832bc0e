"""How often the code judge errs: right programs that it rejects, wrong ones and forgeries that it accepts.

    python -m benchmarks.judge [--sample 1]

Problems written by hand are tested in the styles of HumanEval, MBPP, APPS, LiveCodeBench and BigCodeBench, and with expected
values that the test builds in steps or draws at random (benchmarks/judge_corpus). A pair of a program and its tests is right
if plain Python passes it. Right pairs must be accepted and wrong ones rejected. Forgeries are wrong programs that pose as
results, spoil their arguments or tamper with Python; whatever plain Python says of them, none may be accepted.

With `--sample N` only every Nth pair is judged. The exit code is 1 if right programs are accepted in less than 99.5% of the
pairs, or if a wrong program or a forgery is accepted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import tempfile
import time
import unittest
from collections import Counter
from collections.abc import Iterable
from types import CodeType
from typing import Any

from benchmarks.judge_corpus.forged import forgeries
from benchmarks.judge_corpus.styles import FOLDER, TESTS, Pair, generated, written
from fastslow.sandbox import Stdio, run_tests

SECONDS = 10


def judged(pair: Pair) -> tuple[bool, str]:
    """Whether the judge accepts, and its words."""
    score, words = run_tests(
        pair.source,
        pair.tests,
        entry=pair.entry,
        setup=pair.setup,
        seconds=SECONDS,
        packages=pair.packages,
        megabytes=2048,
    )
    return score == 1, words


def passes(pair: Pair) -> bool:
    """Whether plain Python passes: in a process and a folder of its own, without any of the judge."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            code = 1
            signal.alarm(6 * SECONDS)
            with contextlib.suppress(BaseException), contextlib.redirect_stdout(io.StringIO()):
                os.chdir(folder)
                _run(pair)
                code = 0
            os._exit(code)
        return os.waitpid(child, 0)[1] == 0


def _run(pair: Pair) -> None:
    for test in pair.tests if isinstance(pair.tests[0], Stdio) else ():
        sys.stdin, printed = io.StringIO(test.stdin), io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(_compiled(pair.source), {"__name__": "__main__"})
        assert printed.getvalue().split() == test.stdout.split()
    if isinstance(pair.tests[0], Stdio):
        return
    module = type(sys)("solution")
    sys.modules["solution"] = sys.modules["answer"] = module
    space: dict[str, Any] = vars(module)
    for part in (pair.setup, pair.source):
        exec(_compiled(part), space)
    for test in pair.tests:
        if isinstance(test, tuple):
            assert eval(test[0], space) == test[1]
            continue
        before = set(space)
        exec(_compiled(test), space)
        new = [space[name] for name in set(space) - before]
        if pair.entry:
            space["check"](space[pair.entry])
        for each in new:
            if isinstance(each, type) and issubclass(each, unittest.TestCase):
                result = unittest.TestResult()
                unittest.defaultTestLoader.loadTestsFromTestCase(each).run(result)
                assert result.wasSuccessful()
                assert result.testsRun > len(result.skipped)
            elif callable(each) and getattr(each, "__name__", "").startswith("test_"):
                each()


def _compiled(source: str) -> CodeType:
    return compile(source, "pair.py", "exec", dont_inherit=True)


def corpus() -> list[Pair]:
    """Programs that mean no harm, right ones and wrong ones."""
    files = [(FOLDER / "special.txt", "written by hand"), (TESTS / "answers.txt", "tests/sandbox/answers.txt")]
    return [*generated("right"), *generated("wrong"), *(pair for file, style in files for pair in written(file, style))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="judge every Nth pair")
    options = parser.parse_args()
    honest = [(pair, passes(pair)) for pair in corpus()[:: options.sample]]
    right = [pair for pair, passed in honest if passed]
    wrong = [pair for pair, passed in honest if not passed]
    forged = list(forgeries())[:: options.sample]
    judged(right[0])
    started = time.perf_counter()
    rejected = _unlike(right, True)
    each = (time.perf_counter() - started) / len(right)
    accepted, taken_in = _unlike(wrong, False), _unlike(forged, False)
    by_style = Counter(pair.style for pair in right)
    print(f"right programs: {len(right)} pairs ({', '.join(f'{style} {count}' for style, count in by_style.items())})")
    share = 1 - rejected / len(right)
    print(f"  accepted {len(right) - rejected} ({share:.2%}); {1000 * each:.0f} ms a pair")
    print(f"wrong programs: {len(wrong)} pairs, accepted {accepted}")
    print(f"forgeries: {len(forged)}, accepted {taken_in} (plain Python: {sum(map(passes, forged))})")
    sys.exit(share < 0.995 or accepted > 0 or taken_in > 0)


def _unlike(pairs: Iterable[Pair], wanted: bool) -> int:
    errors = 0
    for pair in pairs:
        accepted, words = judged(pair)
        if accepted != wanted:
            errors += 1
            print(f"{'accepted' if accepted else 'rejected'}: {pair.style}, {pair.name}: {words!r}", flush=True)
    return errors


if __name__ == "__main__":
    main()
