"""Code: rows of every form are read, the last block is tested, and secret tests stay secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastslow.base.errors import FastSlowError, TaskError
from fastslow.recipe import build_recipe
from fastslow.sandbox import Stdio
from fastslow.tasks.base import Feedback
from fastslow.tasks.families import code
from fastslow.tasks.families.code import Code, CodeOptions
from fastslow.tasks.registry import build_task

MBPP = {
    "text": "Write a function double(x) that doubles a number.",
    "test_list": ["assert double(2) == 4", "assert double(71) == 142", "assert double(-1) == -2"],
    "test_setup_code": "",
}
HUMAN_EVAL = {
    "prompt": 'def helper(x):\n    return x + x\n\n\ndef double(x):\n    """Double a number with helper."""\n',
    "entry_point": "double",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(2) == 4\n    assert candidate(71) == helper(71)\n",
}
CALLS = {
    "question": "Pair two values.",
    "tests": [{"call": "pair(1, 2)", "expected": [1, 2]}, ["pair('a', 7)", ["a", 7]]],
}
PROGRAM = {
    "question": "Double the number.",
    "tests": [{"input": "2\n", "output": "4\n"}, {"input": "71", "output": "142"}],
}
APPS = {"question": "Double the number.", "tests": json.dumps({"inputs": ["2\n", "71"], "outputs": ["4\n", "142"]})}


def build(folder: Path, *rows: dict[str, Any], **options: Any) -> Code:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return Code(CodeOptions(path=str(path), **{"holdout": 0, **options}))


def grade(folder: Path, row: dict[str, Any], answer: str, **options: Any) -> Feedback:
    task = build(folder, row, **options)
    return task.grade(task.examples("train")[0], answer)


def block(source: str) -> str:
    return f"Here it is.\n```python\n{source}\n```\n"


DOUBLE = "def double(x):\n    return 2 * x"
READS = "print(2 * int(input()))"


@pytest.mark.parametrize(
    ("row", "source", "score"),
    [
        (MBPP, DOUBLE, 1),
        (MBPP, "def double(x):\n    return x ** 2", 0),
        (MBPP, "def twice(x):\n    return x * 2", 0),
        (HUMAN_EVAL, DOUBLE, 1),
        (HUMAN_EVAL, "def double(x):\n    return helper(x)", 1),
        (HUMAN_EVAL, "def double(x):\n    return x ** 2", 0),
        (HUMAN_EVAL, "def other(x):\n    return 2 * x", 0),
        (HUMAN_EVAL, "def helper(x):\n    return 0\ndef double(x):\n    return 2 * x", 1),
        (HUMAN_EVAL, "def helper(x):\n    return 4\ndef double(x):\n    return 4", 0),
        (CALLS, "def pair(a, b):\n    return (a, b)", 1),
        (CALLS, "def pair(a, b):\n    return [b, a]", 0),
        (PROGRAM, READS, 1),
        (PROGRAM, DOUBLE, 0),
        (APPS, READS, 1),
        (APPS, "print(4)", 0),
        ({**MBPP, "test_list": json.dumps(MBPP["test_list"])}, DOUBLE, 1),
        ({"question": "?", "tests": "assert double(2) == 4"}, DOUBLE, 1),
        ({**MBPP, "test_setup_code": "import math", "test_list": ["assert double(2) == math.prod([4])"]}, DOUBLE, 1),
        (
            {"prompt": "?", "test_imports": ["import math"], "test_list": ["assert math.isclose(double(2), 4)"]},
            DOUBLE,
            1,
        ),
    ],
)
def test_rows_of_every_form_are_tested(tmp_path: Path, row: dict[str, Any], source: str, score: float) -> None:
    assert grade(tmp_path, row, block(source)).score == score


@pytest.mark.parametrize(
    ("answer", "score", "words"),
    [
        (block(DOUBLE), 1, "Correct: all tests pass."),
        (f"```\n{DOUBLE}\n```", 1, "Correct"),
        (f"```py\n{DOUBLE}\n```", 1, "Correct"),
        (block("def double(x):\n    return 0") + block(DOUBLE), 1, "Correct"),
        (block(DOUBLE) + block("def double(x):\n    return 0"), 0, "gives a wrong result"),
        (DOUBLE, 0, code.WRITE_A_BLOCK),
        ("", 0, code.WRITE_A_BLOCK),
        (f"```python\n{DOUBLE}", 0, code.CLOSE_THE_BLOCK),
        (block(DOUBLE) + f"```python\n{DOUBLE}", 0, code.CLOSE_THE_BLOCK),
        ("```python\n\n```", 0, code.WRITE_A_BLOCK),
        (block("\ud800"), 0, "Before the first test"),
        (block("x = '\0'"), 0, "Before the first test"),
        (block("(" * 500), 0, "Before the first test"),
    ],
)
def test_the_last_block_is_what_is_tested(tmp_path: Path, answer: str, score: float, words: str) -> None:
    feedback = grade(tmp_path, MBPP, answer)
    assert feedback.score == score
    assert words in feedback.text
    assert "'Write a function double(x) that" in feedback.text.split("\n")[0]


def test_the_question_shows_some_tests_and_feedback_quotes_no_others(tmp_path: Path) -> None:
    wrong = block("def double(x):\n    return x ** 2")
    hidden = grade(tmp_path, MBPP, wrong)
    assert "142" not in hidden.text
    assert "In test 2 of 3, the code gives a wrong result.\n" in hidden.text
    shown = grade(tmp_path, MBPP, wrong, feedback="assertion")
    assert "`assert double(71) == 142`, the code gives a wrong result: `double(71)` is 5041." in shown.text
    assert "`assert double(2) == 4`" in grade(tmp_path, MBPP, block("def double(x):\n    return 0")).text
    for number in range(4):
        task = build(tmp_path, MBPP, shown=number)
        (message,) = task.messages(task.examples("train")[0])
        quoted = [test for test in MBPP["test_list"] if test in message["content"]]
        assert quoted == MBPP["test_list"][:number]
        assert message["content"].startswith(MBPP["text"])
        assert "standard library" in message["content"]


@pytest.mark.parametrize(
    ("row", "part"),
    [
        (CALLS, "```python\nassert pair(1, 2) == [1, 2]\n```"),
        (PROGRAM, "Input:\n```\n2\n```\nOutput:\n```\n4\n```"),
    ],
)
def test_calls_and_programs_are_shown_too(tmp_path: Path, row: dict[str, Any], part: str) -> None:
    task = build(tmp_path, row)
    (message,) = task.messages(task.examples("train")[0])
    assert part in message["content"]
    assert "71" not in message["content"]


def test_a_whole_text_of_tests_is_never_shown(tmp_path: Path) -> None:
    task = build(tmp_path, HUMAN_EVAL, shown=3)
    (message,) = task.messages(task.examples("train")[0])
    assert "71" not in message["content"]
    assert "71" not in task.grade(task.examples("train")[0], block("def double(x):\n    return x ** 2")).text


def test_time_and_packages_are_options(tmp_path: Path) -> None:
    slow = block("import time\ndef double(x):\n    time.sleep(9)")
    assert "within 0.2 seconds" in grade(tmp_path, MBPP, slow, seconds=0.2).text
    array = block("import numpy\ndef double(x):\n    return numpy.int64(2 * x)")
    assert grade(tmp_path, MBPP, array).score == 0
    assert grade(tmp_path, MBPP, array, packages=True).score == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "?"}, "row 1 has no column 'tests', which the task's tests names"),
        ({"tests": ["assert 1"]}, "row 1 has no column 'question', which the task's question names"),
        ({"question": "?", "tests": []}, "row 1, column 'tests': there are no tests"),
        ({"question": "?", "tests": ["f(2)"]}, "row 1, column 'tests': test 1 .* has no assert"),
        ({"question": "?", "tests": ["assert ="]}, "row 1, column 'tests': test 1 is not Python"),
        ({"question": "?", "tests": 7}, "7 are no tests; expected Python with assertions"),
        ({"question": "?", "tests": [7]}, "7 is no test; expected an assertion"),
        ({"question": "?", "tests": {"fn_name": "f", "inputs": [], "outputs": []}}, "are no tests"),
        ({**MBPP, "test_setup_code": "import"}, "the code before the tests, 'import', is not Python"),
    ],
)
def test_rows_that_cannot_be_tested_are_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        build(tmp_path, row)


def test_columns_can_be_named_and_rows_are_split(tmp_path: Path) -> None:
    rows = [{"problem": f"Return {n}.", "asserts": [f"assert f() == {n}"]} for n in range(40)]
    task = build(tmp_path, *rows, question="problem", tests="asserts", holdout=0.2)
    sizes = [len(task.examples(split)) for split in ("train", "validation", "test")]
    assert sum(sizes) == 40
    assert min(sizes) > 0
    again = build(tmp_path, *rows[::-1], question="problem", tests="asserts", holdout=0.2)
    assert {example.id for example in again.examples("test")} == {example.id for example in task.examples("test")}


def test_mbpp_is_the_default_and_the_registry_knows_it(tmp_path: Path) -> None:
    options = CodeOptions()
    assert (options.path, options.subset, options.test_split) == ("google-research-datasets/mbpp", "full", "test")
    assert CodeOptions(path="mine.jsonl").subset is None
    (tmp_path / "rows.jsonl").write_text(json.dumps(MBPP) + "\n")
    recipe = {"model": "none", "task": {"name": "code", "path": str(tmp_path / "rows.jsonl"), "holdout": 0}}
    task = build_task(build_recipe(recipe))
    assert isinstance(task, Code)
    assert task.grade(task.examples("train")[0], block(DOUBLE)).score == 1
    with pytest.raises(FastSlowError, match="feedback='all'"):
        build_task(build_recipe({**recipe, "task": {**recipe["task"], "feedback": "all"}}))  # type: ignore[dict-item]


def test_the_tests_of_a_row_are_kept_as_they_are(tmp_path: Path) -> None:
    (example,) = build(tmp_path, APPS).examples("train")
    assert example.data["tests"] == [Stdio("2\n", "4\n"), Stdio("71", "142")]
