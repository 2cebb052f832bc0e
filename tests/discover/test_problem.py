"""Problem files are read and run in the sandbox only; what they return is checked."""

import math
from pathlib import Path

import pytest
from discover_helpers import HEAD, SUM, write

from fastslow.base.errors import TaskError
from fastslow.discover import run
from fastslow.discover.problem import load_problem


def test_a_file_is_a_problem(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, SUM, "sums.py"))
    assert (problem.name, problem.goal, problem.suffix, problem.verifies) == ("sums", "maximize", ".py", False)
    assert problem.about == "Find three numbers with the largest sum, each at most 1."
    scored = problem.evaluate(problem.seed)
    assert scored.score == 0.1 + 0.2 + 0.3
    assert scored.words == "the sum is 0.6000000000000001"


@pytest.mark.parametrize(
    ("candidate", "reason", "words"),
    [
        ("def solve():\n    return [2, 2, 2]", "error", "ValueError: expected three numbers of at most 1"),
        ("def solve(:", "error", "SyntaxError"),
        ("def solve():\n    return [float('nan')] * 3", "error", "expected three"),
        ("def solve():\n    return [-float('inf')] * 3", "score", "the sum is -inf"),
        ("def solve():\n    import time\n    time.sleep(60)", "error", "did not end within 1 seconds"),
        ("def solve():\n    import os\n    os.kill(os.getppid(), 9)", "error", "PermissionError"),
        ("import sys\nsys.exit(0)", "error", "SystemExit: 0"),
        ("def solve():\n    return lambda: 1", "error", "no plain data"),
    ],
)
def test_candidates_that_fail_are_invalid_with_words(tmp_path: Path, candidate: str, reason: str, words: str) -> None:
    scored = load_problem(write(tmp_path, SUM)).evaluate(candidate)
    assert scored.score is None
    assert scored.reason == reason
    assert words in scored.words


@pytest.mark.parametrize(
    ("returned", "score", "reason"),
    [
        ("1", 1.0, ""),
        ("(1, 'fine')", 1.0, ""),
        ("0.1 + 0.2", 0.1 + 0.2, ""),
        ("True", None, "score"),
        ("'1'", None, "score"),
        ("None", None, "score"),
        ("(float('nan'), 'no number')", None, "score"),
        ("float('inf')", None, "score"),
        ("10 ** 400", None, "score"),
        ("(1, 2, 3)", None, "score"),
        ("{1}", None, "error"),
        ("'x' * (40 * 2**20)", None, "output"),
        ("__import__('os').abort()", None, "crash"),
        ("bytearray(4 * 2**30)", None, "memory"),
        ("__import__('numpy').float32(0.5)", 0.5, ""),
    ],
)
def test_only_a_finite_number_is_a_score(tmp_path: Path, returned: str, score: float | None, reason: str) -> None:
    source = f"goal = 'minimize'\nseed = 'x'\nseconds = 3\ndef evaluate(candidate):\n    return {returned}\n"
    problem = load_problem(write(tmp_path, source))
    assert (problem.suffix, problem.about) == (".txt", "problem")
    scored = problem.evaluate("anything")
    assert (scored.score, scored.reason) == (score, reason)


def test_an_evaluation_leaves_nothing_behind(tmp_path: Path) -> None:
    source = """goal = "maximize"
seed = "x"
def evaluate(candidate):
    import os
    with open("count", "a+") as file:
        file.write("x")
        file.seek(0)
        written = len(file.read())
    for place in (os.path.dirname(__file__), "/tmp"):
        try:
            open(os.path.join(place, "left"), "w").write("x")
        except OSError:
            continue
    return written
"""
    problem = load_problem(write(tmp_path, source))
    assert [problem.evaluate("x").score for _ in range(2)] == [1.0, 1.0]
    assert not (tmp_path / "left").exists()


def test_a_folder_is_a_problem_with_its_files(tmp_path: Path) -> None:
    write(tmp_path, "import helper\ngoal = 'minimize'\nseed = 'first.py'\ntarget = 0\n"
          "def evaluate(candidate):\n    return helper.LIMIT\n"
          "def verify(candidate):\n    return helper.LIMIT + 1\n")  # fmt: skip
    write(tmp_path, "LIMIT = 4\n", "helper.py")
    write(tmp_path, "def first():\n    pass\n", "first.py")
    problem = load_problem(tmp_path)
    assert problem.seed == "def first():\n    pass\n"
    assert problem.evaluate("x").score == 4
    assert problem.verifies
    assert problem.verify("x").score == 5
    assert problem.better(1.0, 2.0)
    assert problem.reached(0.0)
    assert problem.reached(-1.0)
    assert not problem.reached(1e-9)


def test_results_and_arguments_keep_full_precision(tmp_path: Path) -> None:
    source = HEAD + "def evaluate(candidate):\n    return run(candidate, 'solve', [0.1, 1/3], {'a': (1, 2)})[1]\n"
    problem = load_problem(write(tmp_path, source))
    assert problem.evaluate("def solve(x, y):\n    assert y == {'a': [1, 2]}\n    return x").score == 1 / 3


def test_outside_an_evaluation_run_runs_too() -> None:
    assert run("def double(x):\n    return 2 * x", "double", math.pi) == 2 * math.pi


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("goal = 'maximize'\nseed = 'x'\n", "no function evaluate"),
        ("seed = 'x'\ndef evaluate(c): pass\n", "goal='None'; expected 'maximize' or 'minimize'"),
        ("goal = 'maximize'\ndef evaluate(c): pass\n", "seed='None'; expected a text"),
        (
            "goal = 'maximize'\nseed = 'x'\nseconds = -1\ndef evaluate(c): pass\n",
            "seconds='-1'; expected a number from",
        ),
        ("goal = 'maximize'\nseed = 'x'\ntarget = float('nan')\ndef evaluate(c): pass\n", "target='nan'; expected"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero (line 1 of problem.py)"),
        ("goal = ", "cannot be loaded: SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_problem_is_said_in_one_line(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(TaskError) as refused:
        load_problem(write(tmp_path, source))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_problem_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="there is no problem"):
        load_problem(tmp_path / "nowhere.py")
    with pytest.raises(TaskError, match=r"has no problem\.py"):
        load_problem(tmp_path)
