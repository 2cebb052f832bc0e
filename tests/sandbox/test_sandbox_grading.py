"""Tests of answers: right ones score 1, wrong ones 0 with words that help, and no trick changes that."""

import json
import math
from collections import Counter, OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fastslow.base.errors import TaskError
from fastslow.sandbox import Stdio, grading, run_tests
from fastslow.sandbox.inside import wire


def cases(file: str) -> dict[str, str]:
    """Cases by their names."""
    texts = Path(__file__).with_name(file).read_text().split("=== ")[1:]
    return {name: text for name, _, text in (case.partition("\n") for case in texts)}


SQUARES = ["assert f(2) == 4", "assert f(3) == 9", "assert f(-1) == 1"]
CHECK = """
def check(candidate):
    for number in range(5):
        assert abs(candidate(number) - number * number) < 1e-6
    assert candidate(10) == 100
"""
HONEST = {name: text.split("--- test\n") for name, text in cases("answers.txt").items()}
"""Answers that mean no harm, right ones and wrong ones, each with its tests."""


def passes(source: str, tests: list[str]) -> bool:
    """The same in this process, without any of the machinery."""
    space: dict[str, Any] = {"__name__": "answer"}
    try:
        exec(source, space)
        for test in tests:
            exec(test, space)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", HONEST)
def test_an_answer_scores_as_if_it_were_simply_run(name: str) -> None:
    source, *tests = HONEST[name]
    score, text = run_tests(source, tests)
    assert (score, text == "Correct: all tests pass.") == (passes(source, tests),) * 2, text


TRICKS = cases("tricks.txt")
"""Wrong answers that want to pass all the same."""


@pytest.mark.parametrize("name", TRICKS)
@pytest.mark.parametrize("entry", [None, "f"], ids=["assertions", "check"])
def test_no_trick_makes_a_wrong_answer_pass(name: str, entry: str | None) -> None:
    score, text = run_tests(TRICKS[name], CHECK if entry else SQUARES, entry=entry, seconds=2)
    assert score == 0
    assert len(text.split("\n")) == 2


FORGED = {name: text.split("--- test\n") for name, text in cases("forged.txt").items()}
"""Wrong answers, each with a test that plain Python, or a judge that looks up what they name, would let them pass or that
they could rewrite."""


@pytest.mark.parametrize("name", FORGED)
def test_no_verdict_is_forged(name: str) -> None:
    source, *tests = FORGED[name]
    assert run_tests(source, tests, seconds=5)[0] == 0


IN_THE_PLACE_OF_AN_ARRAY = """
import numpy as np
class Taken:
    def __array_ufunc__(self, *args, **kwargs): return np.array([True, True])
    def __array_function__(self, *args, **kwargs): return np.array([True, True])
class Derived(np.ndarray):
    def __array_ufunc__(self, *args, **kwargs): return np.array([True, True])
def f(kind): return Taken() if kind == 1 else np.zeros(2).view(Derived) if kind == 2 else np.matrix([[3, 4]])
"""


@pytest.mark.parametrize(
    ("test", "score"),
    [
        ("assert (f(1) == np.array([3, 4])).all()", 0),
        ("assert (np.array([3, 4]) == f(1)).all()", 0),
        ("assert np.isclose(f(1), [3, 4]).all()", 0),
        ("assert (f(2) == np.array([3, 4])).all()", 0),
        ("np.testing.assert_allclose(f(3), [[3, 4]])", 1),
    ],
)
def test_an_object_takes_no_part_in_what_numpy_computes(test: str, score: int) -> None:
    test = f"import numpy as np\n{test}"
    assert run_tests(IN_THE_PLACE_OF_AN_ARRAY, [test], packages=True, megabytes=2048)[0] == score


HONEST_IN_PLACE = """
def f(xs):
    xs.sort()
def pop(xs):
    return xs.pop()
def kind(x):
    return type(x)
"""


@pytest.mark.parametrize(
    "test",
    [
        "xs = [2, 1]\nf(xs)\nassert xs == [1, 2]",
        "xs = [2, 1]\nassert f(xs) is None and xs == [1, 2]",
        "xs = [2, 1]\nf(xs)\nassert pop(xs) == 2\nassert xs == [1]",
        "for xs in [[2, 1], [1, 2]]:\n    f(xs)\n    assert xs == [1, 2]",
        "assert kind(3) is int\nassert kind(3) == int\nassert kind('') is not int\nassert kind('') != int",
        "xs = [2, 1]\nlast = xs[-1]\ngot = pop(xs)\nassert got == last\nassert xs == [2]",
        "xs = [3]\nassert [pop(xs)] == [3]\nassert not xs",
        "def check(candidate):\n    xs = [2, 1]\n    candidate(xs)\n    assert xs == [1, 2]\ncheck(f)",
    ],
)
def test_what_an_honest_answer_does_in_place_counts(test: str) -> None:
    assert run_tests(HONEST_IN_PLACE, [test]) == (1, "Correct: all tests pass.")


def test_a_swallowed_end_is_an_end() -> None:
    score, _ = run_tests(
        "import os\ndef f():\n    os._exit(0)", ["try:\n    f()\nexcept BaseException:\n    pass\nassert True"]
    )
    assert score == 0


HUNT = """
import gc, os, sys
start = 'sesame' + '-'
def f(question):
    found = set()
    frame = sys._getframe()
    while frame:
        found.update(repr(value) for value in (*frame.f_locals.values(), *frame.f_globals.values()))
        frame = frame.f_back
    for each in gc.get_objects():
        try:
            found.add(repr(each))
        except Exception:
            pass
    for number in range(64):
        try:
            os.lseek(number, 0, 0)
            found.add(os.read(number, 10**6).decode())
        except (OSError, ValueError):
            pass
    for path in ('/proc/self/mem', '/proc/1/mem', '/proc/1/fd/3'):
        try:
            found.add(open(path).read(10**6))
        except OSError:
            pass
    for text in found:
        place = text.find(start)
        if place >= 0:
            return text[place:place + 12]
"""


@pytest.mark.parametrize(
    "tests", [["assert f('word') == 'sesame-81734'"], [("f('word')", "sesame-81734")]], ids=["assertion", "call"]
)
def test_what_is_expected_cannot_be_found(tests: list[Any]) -> None:
    assert run_tests("def f(x):\n    return 'sesame-81734'", tests)[0] == 1
    assert run_tests(HUNT, tests)[0] == 0


@pytest.mark.parametrize(
    ("source", "tests", "fact", "advice"),
    [
        (
            HONEST["wrong"][0],
            SQUARES,
            "In test 2 of 3, `assert f(3) == 9`, the code gives a wrong result: `f(3)` is 6.",
            grading.TRACE,
        ),
        (
            "def f(x):\n    print(4)",
            SQUARES,
            "In test 1 of 3, `assert f(2) == 4`, the code gives a wrong result: `f(2)` is None.",
            grading.RETURN_IT,
        ),
        (
            "def f(x):\n    return '4'",
            SQUARES,
            "In test 1 of 3, `assert f(2) == 4`, the code gives a wrong result: `f(2)` is '4'.",
            grading.MATCH_TYPES,
        ),
        (
            "def f(x):\n    return x",
            CHECK,
            "In the test, `assert abs(candidate(number) - number * number) < 1e-06`, the code gives a wrong result: "
            "`abs(candidate(number) - number * number)` is 2.",
            grading.TRACE,
        ),
        (
            "def f(x):\n    return 3",
            [("f(2)", 4)],
            "In the test, `f(2)`, the code gives a wrong result: `f(2)` is 3, instead of 4.",
            grading.TRACE,
        ),
        (
            "def f(x):\n    return 3",
            ["assert 4 == f(2)"],
            "In the test, `assert 4 == f(2)`, the code gives a wrong result: `f(2)` is 3.",
            grading.TRACE,
        ),
        ("def f(x):\n    return 3", ["y = 4\nassert f(2) == y"], "`f(2)` is 3, instead of 4.", grading.TRACE),
        (
            "def f(x):\n    y = 0\n    return x / y",
            SQUARES,
            "In test 1 of 3, `assert f(2) == 4`, the code raises ZeroDivisionError: division by zero, "
            "in line 3 (`return x / y`).",
            grading.EDGE_CASES,
        ),
        (
            "def f(x):\n    return math.sqrt(x)",
            SQUARES,
            "the code raises NameError: name 'math' is not defined",
            grading.DEFINE_NAMES,
        ),
        (
            "def f(x):\nreturn",
            SQUARES,
            "Before the first test, the code raises IndentationError: expected an indented block after function "
            "definition on line 1, in line 2 (`return`).",
            grading.VALID_PYTHON,
        ),
        (
            "import numpy",
            SQUARES,
            "Before the first test, the code raises ModuleNotFoundError: No module named 'numpy', in line 1 ",
            grading.STANDARD_LIBRARY,
        ),
        ("def g(x):\n    return x", SQUARES, "The code does not define `f`.", grading.RIGHT_NAME),
        ("def g(x):\n    return x", CHECK, "The code does not define `f`.", grading.RIGHT_NAME),
        (
            "def f():\n    return 4",
            SQUARES,
            "the code raises TypeError: f() takes 0 positional arguments but 1 was given",
            grading.MATCH_ARGUMENTS,
        ),
        (
            "def f(x):\n    return f(x)",
            SQUARES,
            "the code raises RecursionError: maximum recursion depth exceeded",
            grading.BASE_CASE,
        ),
        ("def f(x):\n    return [0] * 10**12", SQUARES, "the code raises MemoryError, in line 2", grading.LESS_MEMORY),
        (
            "def f(x):\n    return int(input())",
            SQUARES,
            "the code raises EOFError: EOF when reading a line",
            grading.NO_INPUT,
        ),
        (
            "def f(x):\n    open('/etc/new', 'w')",
            SQUARES,
            ": '/etc/new', in line 2 (`open('/etc/new', 'w')`).",
            grading.STAY_INSIDE,
        ),
        ("def f(x):\n    exit()", SQUARES, "the code raises SystemExit, in line 2 (`exit()`).", grading.NO_EXIT),
        (
            "import os\ndef f(x):\n    os._exit(0)",
            SQUARES,
            "In test 1 of 3, `assert f(2) == 4`, the code ends the program instead of returning.",
            grading.NO_EXIT,
        ),
        (
            "import sys\nsys.exit()",
            SQUARES,
            "Before the first test, the code raises SystemExit, in line 2 (`sys.exit()`).",
            grading.NO_EXIT,
        ),
        (
            "import ctypes\ndef f(x):\n    ctypes.string_at(1)",
            SQUARES,
            "the code crashes Python itself (signal 11).",
            grading.BASE_CASE,
        ),
        (
            "while True:\n    pass",
            SQUARES,
            "Before the first test, the code does not come to an end within 1 seconds.",
            grading.FEWER_STEPS,
        ),
        (
            "def f(x):\n    while x < 3:\n        pass\n    return 9",
            ["assert f(3) == 9\nassert f(2) == 9"],
            "In the test, `assert f(2) == 9`, the code does not come to an end within 1 seconds.",
            grading.FEWER_STEPS,
        ),
        (
            "def f(x):\n    while True:\n        print(x)",
            SQUARES,
            "In test 1 of 3, `assert f(2) == 4`, the code prints without end.",
            grading.PRINT_LITTLE,
        ),
        (
            "def f(x):\n    return None",
            ["assert f(2)[0] == 4"],
            "the code gives something that the test cannot use (TypeError: 'NoneType' object is not subscriptable).",
            grading.MATCH_TYPES,
        ),
        ("def f(x):\n    return object()", ["assert f(2) == 4"], "`f(2)` is <object object>.", grading.MATCH_TYPES),
        (
            "print(int(input()) + 1)",
            [Stdio("2\n", "4\n")],
            "In the test, with the input `2`, the code prints `3` instead of `4`.",
            grading.TRACE,
        ),
        (
            "print('Result:', int(input()) * 2)",
            [Stdio("2\n", "4\n")],
            "the code prints `Result: 4` instead of `4`.",
            grading.EXACT_OUTPUT,
        ),
        ("x = int(input()) * 2", [Stdio("2\n", "4\n")], "the code prints nothing instead of `4`.", grading.PRINT_IT),
        (
            "input()\ninput()",
            [Stdio("2\n", "4\n")],
            "the code raises EOFError: EOF when reading a line, in line 2.",
            grading.READ_ALL,
        ),
        (
            "print(1 / int(input()))",
            [Stdio("1\n", "1.0\n"), Stdio("0\n", "\n")],
            "In test 2 of 2, with the input `0`, the code raises ZeroDivisionError: division by zero, in line 1.",
            grading.EDGE_CASES,
        ),
        ("import sys\nsys.exit(1)", [Stdio("", "x")], "the code ends with an error code.", grading.NO_EXIT),
        (
            "while True:\n    pass",
            [Stdio("", "x")],
            "the code does not come to an end within 1 seconds.",
            grading.FEWER_STEPS,
        ),
        ("while True:\n    print(1)", [Stdio("", "x")], "the code prints without end.", grading.PRINT_LITTLE),
        ("x = [0] * 10**12", [Stdio("", "x")], "the code needs more memory than there is.", grading.LESS_MEMORY),
        ("import os\nos.abort()", [Stdio("", "x")], "the code crashes Python itself.", grading.BASE_CASE),
    ],
)
def test_the_feedback_says_what_was_wrong_and_what_helps(source: str, tests: Any, fact: str, advice: str) -> None:
    # Printing until the limit takes time of its own, on a busy machine more than a second.
    seconds = 1 if "within 1 seconds" in fact else 20
    score, text = run_tests(source, tests, entry="f" if tests is CHECK else None, seconds=seconds)
    first, second = text.split("\n")
    assert score == 0
    assert fact in first
    assert second == advice


@pytest.mark.parametrize("raises", ["pytest.raises", "raises"])
@pytest.mark.parametrize(
    ("source", "score"),
    [
        ("def f(x):\n    if x < 0:\n        raise ValueError('negative')\n    return True", 1),
        ("def f(x):\n    return True", 0),
        ("def f(x):\n    raise TypeError('no')", 0),
        ("def f(x):\n    return False", 0),  # the assertion is not reached
    ],
)
def test_an_error_that_is_expected_is_an_assertion(source: str, score: int, raises: str) -> None:
    pytest_too = f"import pytest\nfrom pytest import raises\nif f(1):\n    with {raises}(ValueError):\n        f(-1)"
    assert run_tests(source, [pytest_too], packages=True)[0] == score


@pytest.mark.parametrize(
    ("source", "stdin", "stdout", "score"),
    [
        ("print(sum(map(int, input().split())))", "1 2 3", "6", 1),
        ("print(sum(map(int, input().split())))", "1 2 3\n", "6\n\n", 1),
        ("import sys\nprint(*sorted(sys.stdin.read().split()), sep='\\n')", "b\na\n", "a\nb", 1),
        ("print('6 ')", "", "6", 1),
        ("print(' 6')", "", "6", 0),
        ("print('6\\n7')", "", "6 7", 0),
        ("print('6')\nprint()", "", "6", 1),
        ("print()\nprint('6')", "", "6", 0),
        ("print('é', end='')", "", "é", 1),
        ("print(input())", "ü", "ü", 1),
        ("print(6)\nraise ValueError", "", "6", 0),
        ("print(6)\nimport sys\nsys.exit(0)", "", "6", 1),
        ("if __name__ == '__main__':\n    print(6)", "", "6", 1),
        (
            "import threading\nthreading.stack_size(2**26)\nthreading.Thread(target=lambda: print(6)).start()",
            "",
            "6",
            1,
        ),
        ("pass", "", "", 1),
    ],
)
def test_programs_are_compared_line_by_line(source: str, stdin: str, stdout: str, score: float) -> None:
    assert run_tests(source, [Stdio(stdin, stdout)])[0] == score


@pytest.mark.parametrize(
    ("returned", "expected", "score"),
    [
        ("4", 4, 1),
        ("4.0", 4, 1),
        ("'4'", 4, 0),
        ("(1, 2)", [1, 2], 1),
        ("[1, 2]", (1, 2), 0),
        ("[(1, 2), (3,)]", [[1, 2], [3]], 1),
        ("{'a': (1,)}", {"a": [1]}, 1),
        ("{'a': 1, 'b': 2}", {"a": 1}, 0),
        ("[1, 2, 3]", [1, 2], 0),
        ("{1, 2}", [1, 2], 0),
        ("None", None, 1),
        ("0", None, 0),
        ("'12'", ["1", "2"], 0),
    ],
)
def test_a_call_is_compared_with_its_value_and_json_has_no_tuples(returned: str, expected: Any, score: float) -> None:
    assert run_tests(f"def f():\n    return {returned}", [("f()", expected)])[0] == score


def test_secret_tests_are_not_quoted() -> None:
    for source in (
        "def f(x):\n    return 4",
        "def f(x):\n    return 4 if x == 2 else None",
        "def f(x):\n    return {2: 4}.get(x, '')",
    ):
        _, text = run_tests(source, SQUARES, shown=1)
        assert text.startswith("In test 2 of 3, the code gives a wrong result.\n")
    _, text = run_tests("def f(x):\n    return 5", SQUARES, shown=1)
    assert "`assert f(2) == 4`" in text
    _, text = run_tests("def f(x):\n    return None", ["assert f('q')[0] == 'r'"], shown=0)
    assert text.startswith("In the test, the code gives something that the test cannot use.\n")
    _, text = run_tests("print(5)", [Stdio("secret", "4")], shown=0)
    assert text.startswith("In the test, the code prints something else than it should.\n")


def test_code_before_the_answer_and_imports_in_it() -> None:
    setup = """
import math
from collections import Counter as Count
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b
"""
    source = "def f(pairs):\n    return math.prod(p.a * p.b for p in pairs)"
    tests = ["assert f([Pair(1, 2), Pair(3, 4)]) == math.prod([1, 2, 3, 4])", "assert Count('a') == {'a': 1}"]
    assert run_tests(source, tests, setup=setup) == (1.0, "Correct: all tests pass.")


def test_packages_only_when_asked_for() -> None:
    source = "import numpy\ndef f(xs):\n    return numpy.array(xs) * 2\ndef g(xs):\n    return numpy.array(xs).sum()"
    tests = ["assert list(f([1, 2])) == [2, 4]", "assert g([1, 2]) == 3"]
    assert run_tests(source, tests)[0] == 0
    assert run_tests(source, tests, packages=True) == (1.0, "Correct: all tests pass.")


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ([], "there are no tests; expected at least one"),
        (["f(2)"], r"test 1 \('f\(2\)'\) has no assert, so every answer would pass it"),
        (["assert f(2) == 4", "assert f(2) = 4"], r"test 2 is not Python: .* \(line 1\)"),
        ([("f(", 1)], "test 1 is not Python"),
        ([("f()", object())], "a test expects a value of type object; expected plain data"),
        (["assert f()", Stdio("", "")], "expected one kind only"),
    ],
)
def test_tests_that_are_none_are_refused(tests: list[Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        run_tests("", tests)


Point = namedtuple("Point", "x y")
plain = some.deferred(lambda: atoms | containers)
few = some.lists(plain, max_size=3)
atoms = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(),
    some.integers(min_value=2**62, max_value=2**200),
    some.floats(allow_nan=False),
    some.text(),
    some.binary(),
    some.complex_numbers(allow_nan=False),
    some.decimals(allow_nan=False),
    some.fractions(),
    some.dates(),
    some.datetimes(timezones=some.just(UTC) | some.none()),
    some.times(),
    some.timedeltas(),
    some.builds(range, some.integers(-9, 9), some.integers(-9, 9)),
    some.sets(some.integers() | some.text()),
    some.frozensets(some.tuples(some.integers())),
    some.text().map(Counter),
)
containers = some.one_of(
    few,
    few.map(tuple),
    few.map(deque),
    some.builds(Point, plain, plain),
    some.dictionaries(some.text() | some.integers() | some.tuples(some.integers()), plain, max_size=3),
    some.dictionaries(some.text(), plain, max_size=3).map(OrderedDict),
)


@given(plain)
@settings(max_examples=100, deadline=None)
def test_plain_data_comes_over_as_it_was(value: Any) -> None:
    def never(_: Any) -> Any:
        raise AssertionError

    again = wire.from_data(json.loads(json.dumps(wire.as_data(value, never))), never)
    assert again == value
    assert _types(again) == _types(value)


def _types(value: Any) -> Any:
    """The types of a value and of all in it, as far as they stand in order."""
    inside = value.items() if isinstance(value, dict) else value if isinstance(value, tuple | list | deque) else ()
    return type(value).__name__, [_types(each) for each in inside]


def test_what_is_like_plain_data_comes_over_as_that() -> None:
    class Mine(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([9])

    class Number(int):
        pass

    def over(value: Any) -> Any:
        return wire.from_data(wire.as_data(value, lambda kept: {"kept": 0}), lambda stand_in: stand_in)

    assert over(Mine([1, 2])) == [1, 2]
    assert type(over(Number(2**70))) is int
    assert over(Counter("aab")) == Counter("aab")
    assert over(object()) == {"kept": 0}
    assert math.isnan(over(float("nan")))
    assert over([Decimal("1.10"), Fraction(2, 6)]) == [Decimal("1.10"), Fraction(1, 3)]
    assert over((date(2024, 2, 29), time(1, 2), datetime(2024, 1, 1), timedelta(days=-1))) == (
        date(2024, 2, 29), time(1, 2), datetime(2024, 1, 1), timedelta(days=-1)
    )  # fmt: skip


def test_a_program_may_print_as_much_as_it_must() -> None:
    must = Stdio("", "x" * 600_000)
    assert run_tests("print('x' * 600_000)", [must])[0] == 1
    assert "prints without end" in run_tests("while True: print('x' * 1000)", [must], seconds=20)[1]
