"""The same problem in the styles of HumanEval, MBPP, APPS, LiveCodeBench and BigCodeBench, and with expected values that the
test computes: in steps, from random numbers, before and after the call."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.sandbox import Stdio

FOLDER = Path(__file__).parent
TESTS = FOLDER.parents[1] / "tests" / "sandbox"


@dataclass(frozen=True)
class Pair:
    """A program with its tests, as `run_tests` takes them."""

    name: str
    style: str
    source: str
    tests: list[Any]
    entry: str | None = None
    setup: str = ""
    packages: bool = False


@dataclass(frozen=True)
class Problem:
    name: str
    parameters: str
    draw: str
    cases: list[tuple[Any, ...]]
    right: str
    wrong: str
    reference: str

    @property
    def expected(self) -> list[Any]:
        space: dict[str, Any] = {}
        exec(self.right, space)
        return [space[self.name](*ast.literal_eval(repr(case))) for case in self.cases]

    def call(self, case: tuple[Any, ...], function: str = "") -> str:
        return f"{function or self.name}({', '.join(map(repr, case))})"

    def imports(self) -> str:
        return "from decimal import Decimal\nimport datetime\n" if re.search("Decimal|datetime", self.right) else ""


def problems() -> list[Problem]:
    found = []
    for text in (FOLDER / "problems.txt").read_text().split("=== ")[1:]:
        head, cases, body = text.split("\n", 2)
        name, parameters, draw = head.split(" | ", 2)
        right, wrong, reference = re.split(r"--- \w+\n", body)
        given = [ast.literal_eval(case.strip().replace("set()", "None")) for case in cases.split("; ")]
        given = [tuple(set() if each is None else each for each in case) for case in given]
        found.append(Problem(name, parameters, draw, given, right, wrong, reference))
    return found


def _mbpp(problem: Problem) -> tuple[str, dict[str, Any]]:
    pairs = zip(problem.cases, problem.expected, strict=True)
    return "", {
        "tests": [f"assert {problem.call(case)} == {value!r}" for case, value in pairs],
        "setup": problem.imports(),
    }


def _human_eval(problem: Problem) -> tuple[str, dict[str, Any]]:
    lines = [
        f"    assert abs({problem.call(case, 'candidate')} - {value!r}) < 1e-6"
        if isinstance(value, float)
        else f"    assert {problem.call(case, 'candidate')} == {value!r}, 'wrong'"
        for case, value in zip(problem.cases, problem.expected, strict=True)
    ]
    text = problem.imports() + "METADATA = {}\n\n\ndef check(candidate):\n" + "\n".join(lines)
    return "", {"tests": [text], "entry": problem.name}


def _calls(problem: Problem) -> tuple[str, dict[str, Any]]:
    return "", {
        "tests": [(problem.call(case), value) for case, value in zip(problem.cases, problem.expected, strict=True)]
    }


def _solution(problem: Problem) -> tuple[str, dict[str, Any]]:
    extra = f"\n\nclass Solution:\n    def {problem.name}(self, *args):\n        return {problem.name}(*args)\n"
    pairs = zip(problem.cases, problem.expected, strict=True)
    tests = [f"assert Solution().{problem.call(case)} == {value!r}" for case, value in pairs]
    return extra, {"tests": tests, "setup": problem.imports()}


def _stdio(problem: Problem) -> tuple[str, dict[str, Any]]:
    extra = f"\n\nargs = [eval(input()) for _ in range(int(input()))]\nprint({problem.name}(*args))\n"
    tests = [
        Stdio("\n".join([str(len(case)), *map(repr, case)]) + "\n", f"{value}\n")
        for case, value in zip(problem.cases, problem.expected, strict=True)
    ]
    return extra, {"tests": tests}


def _unittest(problem: Problem) -> tuple[str, dict[str, Any]]:
    methods = [
        f"    def test_case_{number}(self):\n        got = {problem.call(case)}\n"
        f"        self.assert{'AlmostEqual' if isinstance(value, float) else 'Equal'}(got, self.expected[{number}])\n"
        f"        self.assertIsInstance(got, type(self.expected[{number}]))\n"
        for number, (case, value) in enumerate(zip(problem.cases, problem.expected, strict=True))
    ]
    text = f"{problem.imports()}import unittest\n\n\nclass TestCases(unittest.TestCase):\n    def setUp(self):\n"
    return "", {"tests": [text + f"        self.expected = {problem.expected!r}\n\n" + "\n".join(methods)]}


def _in_steps(problem: Problem) -> tuple[str, dict[str, Any]]:
    call = f"{problem.name}({problem.parameters})"
    body = f"{problem.reference.rstrip()}\nassert {call} == result"
    return "", {"tests": [f"for {problem.parameters}, in {problem.cases!r}:\n" + textwrap.indent(body, "    ")]}


def _drawn(problem: Problem) -> tuple[str, dict[str, Any]]:
    body = f"{problem.parameters}, = {problem.draw}\ngot = {problem.name}({problem.parameters})\n"
    body += f"{problem.reference.rstrip()}\nassert got == result, (got, result)"
    return "", {
        "tests": ["import random\nrng = random.Random(7)\nfor _ in range(20):\n" + textwrap.indent(body, "    ")]
    }


def _imported(problem: Problem) -> tuple[str, dict[str, Any]]:
    body = textwrap.indent(problem.reference.rstrip(), "    ")
    helper = f"def reference({problem.parameters}):\n{body}\n    return result\n"
    text = f"import copy\nfrom solution import {problem.name} as function\n{helper}cases = {problem.cases!r}\n"
    text += "got = [function(*copy.deepcopy(case)) for case in cases]\nwant = [reference(*case) for case in cases]\n"
    return "", {"tests": [text + "assert len(got) == len(want)\nfor a, b in zip(got, want):\n    assert a == b\n"]}


def _pytest(problem: Problem) -> tuple[str, dict[str, Any]]:
    text = f"{problem.imports()}CASES = list(zip({problem.cases!r}, {problem.expected!r}))\n\n\ndef test_known():\n"
    text += (
        f"    for args, expected in CASES:\n        result = {problem.name}(*args)\n        assert result == expected\n"
    )
    text += f"\n\ndef test_again():\n    args, expected = CASES[0]\n    first = {problem.name}(*args)\n"
    text += f"    assert first == {problem.name}(*args)\n"
    return "", {"tests": [text]}


STYLES: dict[str, Callable[[Problem], tuple[str, dict[str, Any]]]] = {
    "MBPP": _mbpp,
    "HumanEval": _human_eval,
    "LiveCodeBench, calls": _calls,
    "LiveCodeBench, class": _solution,
    "APPS, stdio": _stdio,
    "BigCodeBench, unittest": _unittest,
    "expected in steps": _in_steps,
    "random inputs": _drawn,
    "imported module": _imported,
    "pytest": _pytest,
}


def generated(kind: str) -> Iterator[Pair]:
    """Every problem in every style, with its right or its wrong program."""
    for problem in problems():
        for style, write in STYLES.items():
            extra, tests = write(problem)
            yield Pair(problem.name, style, getattr(problem, kind) + extra, **tests)


def written(file: Path, style: str) -> Iterator[Pair]:
    """Programs with tests of their own, from a file: a name, the program, a set-up if there is one, and tests."""
    for text in file.read_text().split("=== ")[1:]:
        name, _, body = text.partition("\n")
        source, *tests = re.split(r"--- test\n", body)
        source, _, setup = source.partition("--- setup\n")
        packages = any(name in text for name in ("numpy", "pandas", "hypothesis"))
        yield Pair(name, style, source, tests, setup=setup, packages=packages)
