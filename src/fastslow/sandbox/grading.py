"""Testing an answer in Python: 1 when every test passes, else 0 and words about the first that does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.sandbox.inside import wire
from fastslow.sandbox.inside.pieces import has_checks
from fastslow.sandbox.runner import OUTPUT, Limits, Outcome, run

# Advice that holds for every problem, each a whole sentence; what is true of one problem goes on lines of its own.
VALID_PYTHON = "Write complete Python that runs as it stands, and put nothing but Python into the block."
DEFINE_NAMES = "Define every name before using it, and import every module that the code uses."
RIGHT_NAME = "Give the function exactly the name and the parameters that the question or its example uses."
STANDARD_LIBRARY = "Use nothing but Python's standard library."
MATCH_ARGUMENTS = (
    "Think of which types the arguments have before using them, and accept them in the order they are given."
)
EDGE_CASES = "Handle the edge cases too: empty input, a single element, zero, negative numbers and repeated values."
BASE_CASE = "Give every recursion a base case that is always reached, or use a loop instead."
LESS_MEMORY = "Keep only what is needed: do not build huge lists or numbers."
FEWER_STEPS = "Choose an algorithm that needs few steps on large inputs, and make sure that every loop ends."
NO_INPUT = "Take the input from the function's parameters, and never call input()."
READ_ALL = "Read exactly the lines that the input has, in the order that the question describes."
STAY_INSIDE = "Use no files, no network and no other processes: compute the result from the input."
NO_EXIT = "Never call exit() or end the program: let every function return its result."
RETURN_IT = "Return the result with a return statement; printing it is not enough."
PRINT_IT = "Print the result; returning it is not enough."
MATCH_TYPES = "Return exactly the type that is asked for: a list is not a tuple, and a number is not a string."
PLAIN_DATA = (
    "Return plain data where data is asked for, and leave the arguments as they are unless they are to be changed."
)
EXACT_OUTPUT = "Print exactly what is asked for and nothing else: no prompts, no labels, no extra lines."
PRINT_LITTLE = "Print nothing but the result, and never inside a loop without an end."
TRACE = "Work an example through by hand, step by step, and check that the code gives exactly that result."

_BY_ERROR = {
    **dict.fromkeys(("SyntaxError", "IndentationError", "TabError"), VALID_PYTHON),
    **dict.fromkeys(("NameError", "UnboundLocalError"), DEFINE_NAMES),
    **dict.fromkeys(("ModuleNotFoundError", "ImportError"), STANDARD_LIBRARY),
    **dict.fromkeys(("TypeError", "AttributeError"), MATCH_ARGUMENTS),
    **dict.fromkeys(("PermissionError", "OSError", "FileNotFoundError", "BlockingIOError"), STAY_INSIDE),
    "RecursionError": BASE_CASE,
    "MemoryError": LESS_MEMORY,
    "SystemExit": NO_EXIT,
    "EOFError": NO_INPUT,
}
_UNDEFINED = re.compile(r"NameError: name '(\w+)' is not defined")
_LINE = re.compile(r'File "answer\.py", line (\d+)')


@dataclass(frozen=True)
class Stdio:
    """A test of a whole program: what it reads, and what it must print but for white space at the ends of lines."""

    stdin: str
    stdout: str


Test = str | tuple[str, Any] | Stdio
"""Python with assertions in it, a call with the value it must return, or a run with the text it must print."""


def run_tests(
    source: str,
    tests: str | Sequence[Test],
    *,
    entry: str | None = None,
    setup: str = "",
    shown: int | None = None,
    seconds: float = 5,
    megabytes: int = 512,
    packages: bool = False,
    layers: Sequence[str] | None = None,
) -> tuple[float, str]:
    """1 when all tests pass, else 0; and what to say about it. The tests run in a process that the answer cannot reach.

    `entry` names the function that tests of the form `def check(candidate)` are called with. `setup` is code that runs before
    the answer and before the tests. Of the tests, the first `shown` may be quoted in the text: the others are secret.
    """
    tests = [tests] if isinstance(tests, str) else list(tests)
    check_tests(tests)
    limits = Limits(seconds, megabytes, packages, layers)
    if isinstance(tests[0], Stdio):
        return _run_programs(source, [test for test in tests if isinstance(test, Stdio)], shown, limits)
    given = {"tests": [_as_json(test, entry) for test in tests], "setup": setup, "entry": entry}
    outcome, said = run(source, given, limits, setup=setup)
    if said.get("verdict") == "passed":
        return 1.0, "Correct: all tests pass."
    words = _Words(outcome.reason, said, len(tests), len(tests) if shown is None else shown, seconds)
    return 0.0, "\n".join(words.lines())


def check_tests(tests: Sequence[Test]) -> None:
    """Refuse tests that are not Python or that no answer could fail."""
    if not tests:
        raise TaskError("there are no tests; expected at least one")
    if len({isinstance(test, Stdio) for test in tests}) > 1:
        raise TaskError("some tests are calls and others are whole programs with their input; expected one kind only")
    for number, test in enumerate(tests, 1):
        try:
            if isinstance(test, str):
                tree = ast.parse(test)
                if not (has_checks(tree) or any(isinstance(node, ast.Raise) for node in ast.walk(tree))):
                    raise TaskError(
                        f"test {number} ('{one_line(test, 60)}') has no assert, so every answer would pass it"
                    )
            elif isinstance(test, tuple):
                call, expected = test
                ast.parse(call, mode="eval")
                wire.as_data(expected, _refuse)
        except SyntaxError as error:
            raise TaskError(f"test {number} is not Python: {error.msg} (line {error.lineno})") from None


def as_assertion(test: Test) -> str:
    """A test as a person would write it."""
    return (
        test if isinstance(test, str) else f"assert {test[0]} == {test[1]!r}" if isinstance(test, tuple) else str(test)
    )


def _refuse(value: Any) -> Any:
    raise TaskError(
        f"a test expects a value of type {type(value).__name__}; expected plain data, or write an assertion"
    )


def _as_json(test: Test, entry: str | None) -> dict[str, Any]:
    if isinstance(test, tuple):
        return {"call": test[0], "expected": wire.as_data(test[1], _refuse)}
    assert isinstance(test, str)
    defined = {node.name for node in ast.parse(test).body if isinstance(node, ast.FunctionDef)}
    return {"code": f"{test}\n\ncheck({entry})" if entry and "check" in defined else test}


_OVER = {
    "time": ("does not come to an end within {:g} seconds", FEWER_STEPS),
    "memory": ("needs more memory than there is", LESS_MEMORY),
    "output": ("prints without end", PRINT_LITTLE),
}
"""What is said of code that goes over a limit."""


def _over(reason: str, where: str, seconds: float) -> list[str]:
    fact, advice = _OVER[reason]
    return [f"{where} the code {fact.format(seconds)}.", advice]


class _Words:
    """What is said about an answer that did not pass its tests."""

    def __init__(self, reason: str, said: dict[str, Any], tests: int, shown: int, seconds: float) -> None:
        self._reason, self._said, self._seconds = reason, said, seconds
        place = said if "test" in said else said.get("at", {})
        number: int | None = place.get("test")
        self._quoted = number is not None and number < shown
        self._statement = f"`{one_line(place.get('statement', ''), 300)}`"
        self._where = "Before the first test,"
        if number is not None:
            name = f"In test {number + 1} of {tests}" if tests > 1 else "In the test"
            self._where = f"{name}, {self._statement}," if self._quoted else f"{name},"

    def lines(self) -> list[str]:
        verdict = self._said.get("verdict")
        if self._reason == "output" or (self._reason in _OVER and verdict in ("ended", None)):
            return _over(self._reason, self._where, self._seconds)
        fact, advice = "brings the tests to a stop", STAY_INSIDE
        match verdict:
            case "failed":
                fact, advice = self._failed()
            case "raised":
                error = one_line(self._said["error"], 300)
                line = f", in line {self._said['line']}" if self._said.get("line") else ""
                code = f" (`{one_line(self._said['code'], 120)}`)" if line and self._said.get("code") else ""
                fact, advice = f"raises {error}{line}{code}", _advice(error)
            case "unsure":
                words = f": {one_line(self._said['error'], 200)}" if self._quoted else ""
                return [f"{self._where} the result cannot be judged{words}.", PLAIN_DATA]
            case "broken":  # the test cannot continue: a name is not there, or it cannot use what it was given
                if undefined := _UNDEFINED.match(self._said["error"]):
                    return [f"The code does not define `{undefined[1]}`.", RIGHT_NAME]
                words = f" ({one_line(self._said['error'], 200)})" if self._quoted else ""
                fact, advice = f"gives something that the test cannot use{words}", MATCH_TYPES
            case "ended" if (self._said.get("status") or 0) < 0:
                fact, advice = f"crashes Python itself (signal {-self._said['status']})", BASE_CASE
            case "ended":
                fact, advice = "ends the program instead of returning", NO_EXIT
        return [f"{self._where} the code {fact}.", advice]

    def _failed(self) -> tuple[str, str]:
        got, kinds = self._said.get("got"), self._said.get("kinds") or ["", ""]
        fact = "gives a wrong result"
        if self._quoted and got is not None:
            fact += f": `{one_line(self._said['call'], 200)}` is {one_line(got, 200)}"
            if self._said["expected"] not in self._statement:
                fact += f", {'instead of' if kinds[0] else 'compared with'} {one_line(self._said['expected'], 200)}"
        return fact, RETURN_IT if got == "None" else MATCH_TYPES if kinds[0] != kinds[1] else TRACE


def _run_programs(source: str, tests: list[Stdio], shown: int | None, limits: Limits) -> tuple[float, str]:
    for number, test in enumerate(tests):
        longest = OUTPUT + len(test.stdout.encode("utf-8", "surrogatepass"))
        outcome, _ = run(source, None, replace(limits, output=longest), stdin=test.stdin)
        printed = outcome.stdout
        quoted = shown is None or number < shown
        where = f"In test {number + 1} of {len(tests)}," if len(tests) > 1 else "In the test,"
        where += f" with the input `{one_line(test.stdin, 200)}`," if quoted else ""
        if outcome.reason:
            return 0.0, "\n".join(_about_program(outcome, where, limits.seconds))
        if _lines(printed) != _lines(test.stdout):
            words = f"`{one_line(printed, 200)}`" if quoted else "something else than it should"
            fact = f"{where} the code prints {words if printed.strip() else 'nothing'}"
            fact += f" instead of `{one_line(test.stdout, 200)}`." if quoted else "."
            holds = "".join(test.stdout.split()) in "".join(printed.split())
            advice = PRINT_IT if not printed.strip() else EXACT_OUTPUT if holds and test.stdout.strip() else TRACE
            return 0.0, f"{fact}\n{advice}"
    return 1.0, "Correct: all tests pass."


def _about_program(outcome: Outcome, where: str, seconds: float) -> list[str]:
    if outcome.reason in _OVER:
        return _over(outcome.reason, where, seconds)
    if outcome.reason == "crash":
        return [f"{where} the code crashes Python itself.", BASE_CASE]
    error = outcome.stderr.strip().rpartition("\n")[2]
    lines = _LINE.findall(outcome.stderr)
    if not lines:
        return [f"{where} the code ends with an error code.", NO_EXIT]
    advice = READ_ALL if error.partition(":")[0] == "EOFError" else _advice(error)
    return [f"{where} the code raises {one_line(error, 300)}, in line {lines[-1]}.", advice]


def _advice(error: str) -> str:
    return _BY_ERROR.get(error.partition(":")[0], EDGE_CASES)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
