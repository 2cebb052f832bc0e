"""Code: write Python that passes tests. The tests are run, in a sandbox (docs/sandbox.md).

The rows may be MBPP's (a list of assertions), HumanEval's (a function `check` and the name of the one to check), calls with
the values they must return, or whole programs with what they read and must print.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.sandbox import Stdio, protections, run_tests
from fastslow.sandbox.grading import STANDARD_LIBRARY, Test, as_assertion, check_tests
from fastslow.tasks.base import Example, Feedback, Message, QuestionTask
from fastslow.tasks.data import Row, RowTask, SourceOptions, content_id, require_columns
from fastslow.tasks.reading import Reading, has_fence, last_fenced

# Advice that holds for every problem, each a whole sentence; what is true of one problem goes on lines of its own.
WRITE_A_BLOCK = "End the answer with the whole code in one block that opens with ```python and closes with ```."
CLOSE_THE_BLOCK = "Close the code block with ``` on a line of its own, right after the code."

READING = Reading(
    last_fenced,
    has_fence,
    missing=("The answer to %s has no code block.", WRITE_A_BLOCK),
    unclosed=("The last block of the answer to %s is never closed, so there is no code to run.", CLOSE_THE_BLOCK),
    empty=("The last block of the answer to %s is empty.", WRITE_A_BLOCK),
)
QUESTIONS = ("question", "prompt", "text")
TESTS = ("tests", "test_list", "test")
SETUPS = ("test_setup_code", "test_imports")
ENTRY = "entry_point"


class CodeOptions(SourceOptions):
    hub: ClassVar[Mapping[str, str]] = {
        "path": "google-research-datasets/mbpp",
        "subset": "full",
        "validation_split": "validation",
        "test_split": "test",
    }

    path: str = hub["path"]
    """A `.jsonl`, `.json`, `.csv` or `.parquet` file, or the id of a dataset on the Hugging Face hub; MBPP by default."""
    question: str | None = None
    """The column that holds the question; by default `question`, `prompt` or `text`, whichever there is."""
    tests: str | None = None
    """The column that holds the tests; by default `tests`, `test_list` or `test`. A text of Python with assertions, as in
    HumanEval; a list of assertions, as in MBPP; a list of `{call: "f(2)", expected: 4}`; or a list of `{input: …, output: …}`
    for programs that read and print."""
    shown: int = Field(default=1, ge=0)
    """How many of a list's tests the question shows, so that names and types are clear; the others stay secret."""
    feedback: Literal["advice", "assertion"] = "advice"
    """`assertion` quotes the failing test with what it expects, and it can then appear in contexts; `advice` quotes only
    those that the question shows."""
    seconds: float = Field(default=5, gt=0, le=600)
    """Time that all tests of an answer may take together; each on its own for programs that read and print."""
    megabytes: int = Field(default=512, ge=64)
    """Memory that the code may use."""
    packages: bool = False
    """Let the code import the installed packages, such as numpy; without, only Python's standard library."""


class Code(RowTask, QuestionTask):
    """Write Python code that passes tests: MBPP, or any data of that kind."""

    Options = CodeOptions
    options: CodeOptions
    seed_text = "Write Python code that solves the problem."
    grades_apart = True

    def __init__(self, options: CodeOptions) -> None:
        super().__init__(options)
        protections()  # a machine that cannot run the code says so before a model is loaded

    def messages(self, example: Example) -> list[Message]:
        parts = [
            example.data["question"],
            _shown(example.data["tests"][: self._shown(example)]),
            "" if self.options.packages else STANDARD_LIBRARY,
            "End your answer with the whole code in one block that opens with ```python and closes with ```.",
        ]
        return [{"role": "user", "content": "\n\n".join(part for part in parts if part)}]

    def grade(self, example: Example, answer: str) -> Feedback:
        about = f"'{one_line(example.data['question'], 60)}'"
        source, faults = READING.read(answer, about)
        if faults:
            return Feedback(0.0, "\n".join(faults))
        score, text = run_tests(
            source,
            example.data["tests"],
            entry=example.data["entry"],
            setup=example.data["setup"],
            shown=None if self.options.feedback == "assertion" else self._shown(example),
            seconds=self.options.seconds,
            megabytes=self.options.megabytes,
            packages=self.options.packages,
        )
        return Feedback(score, f"{about}: {text}")

    def _shown(self, example: Example) -> int:
        """How many tests the question shows; one text of Python with all of them in it is never shown."""
        return 0 if example.data["whole"] else self.options.shown

    def prepared(self, source: str, rows: list[Row]) -> list[Row]:
        question = _column(self.options.question, QUESTIONS, rows)
        tests = _column(self.options.tests, TESTS, rows)
        require_columns(source, rows, {question: "question", tests: "tests"})
        return [_problem(source, number, row, question, tests) for number, row in enumerate(rows, 1)]


def _column(named: str | None, usual: Sequence[str], rows: list[Row]) -> str:
    return named or next((name for name in usual if rows[0].get(name) is not None), usual[0])


def _problem(source: str, number: int, row: Row, question_column: str, tests_column: str) -> Row:
    question = str(row[question_column]).strip()
    entry = row.get(ENTRY)
    try:
        tests = _read_tests(row[tests_column])
        check_tests(tests)
    except TaskError as error:
        raise TaskError(
            f"'{source}' row {number}, column '{tests_column}': {error}; correct or remove the row"
        ) from None
    setup = next((row[name] for name in SETUPS if row.get(name)), "")
    setup = setup if isinstance(setup, str) else "\n".join(map(str, setup))
    if not _is_python(setup):
        raise TaskError(f"'{source}' row {number}: the code before the tests, '{one_line(setup, 60)}', is not Python")
    return {
        "id": content_id(question),
        "question": question,
        "tests": tests,
        "whole": isinstance(row[tests_column], str) and len(tests) == 1,
        "entry": str(entry) if entry else None,
        "setup": f"{_helpers(question, str(entry))}\n{setup}" if entry else setup,
    }


def _helpers(question: str, entry: str) -> str:
    """HumanEval's questions are Python: what they define beside the function to write need not be repeated in an answer."""
    if not _is_python(question):
        return ""
    helpers = [each for each in ast.parse(question).body if getattr(each, "name", None) != entry]
    return "\n".join(map(ast.unparse, helpers))


def _read_tests(value: Any) -> list[Test]:
    """The tests of a row, in any of the forms that datasets have them in."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return [value]
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping) and {"inputs", "outputs"} <= value.keys() and not value.get("fn_name"):
        pairs = zip(value["inputs"], value["outputs"], strict=True)
        return [Stdio(str(stdin), str(stdout)) for stdin, stdout in pairs]
    if isinstance(value, Sequence):
        return [_read_test(test) for test in value]
    raise TaskError(f"{one_line(value, 80)} are no tests; expected Python with assertions, or a list of tests")


def _read_test(test: Any) -> Test:
    match test:
        case str():
            return test
        case {"call": str(call), "expected": expected}:
            return call, expected
        case {"input": stdin, "output": stdout}:
            return Stdio(str(stdin), str(stdout))
        case [str(call), expected]:
            return call, expected
    raise TaskError(
        f"{one_line(test, 80)} is no test; expected an assertion, {{call: …, expected: …}} or {{input: …, output: …}}"
    )


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _shown(tests: Sequence[Test]) -> str:
    programs = [test for test in tests if isinstance(test, Stdio)]
    if programs:
        cases = [
            f"Input:\n```\n{case.stdin.rstrip()}\n```\nOutput:\n```\n{case.stdout.rstrip()}\n```" for case in programs
        ]
        return "\n\n".join(["The code is a program that reads its input and prints its output, as here:", *cases])
    if tests:
        assertions = "\n".join(map(as_assertion, tests))
        return f"The code must pass tests like this:\n\n```python\n{assertions}\n```"
    return ""
