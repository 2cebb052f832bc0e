"""From answers to candidates, and when two candidates are the same."""

from dataclasses import replace
from pathlib import Path

import pytest
from discover_helpers import SUM, write

from fastslow.discover.candidates import Form, Unreadable, identify, read_answer
from fastslow.discover.problem import Problem, load_problem

PARENT = "def solve():\n    a = 1\n    b = 1\n    return a + b\n"
EDIT = "Change b.\n<<<<<<< SEARCH\n    b = 1\n=======\n    b = 2\n>>>>>>> REPLACE\n"


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return load_problem(write(tmp_path_factory.mktemp("problem"), SUM))


@pytest.mark.parametrize(
    ("answer", "form", "candidate"),
    [
        (EDIT, "either", PARENT.replace("b = 1", "b = 2")),
        (EDIT, "edits", PARENT.replace("b = 1", "b = 2")),
        (
            f"{EDIT}{EDIT.replace('b = 1', 'a = 1')}",
            "edits",
            PARENT.replace("b = 1", "b = 2").replace("a = 1", "b = 2"),
        ),
        ("Here:\n```python\ndef solve():\n    return 3\n```\nDone.", "whole", "def solve():\n    return 3\n"),
        ("```\nx = 1\n```\nNo, rather:\n````python\ns = '''\n```\n'''\n````\n", "either", "s = '''\n```\n'''\n"),
        ("def solve():\n    return 3", "either", "def solve():\n    return 3\n"),
    ],
)
def test_an_answer_holds_edits_or_a_whole_candidate(problem: Problem, answer: str, form: Form, candidate: str) -> None:
    assert read_answer(answer, PARENT, problem, form) == candidate


@pytest.mark.parametrize(
    ("answer", "form", "words"),
    [
        ("", "either", "empty"),
        ("I cannot.", "either", "not Python"),
        ("```python\ndef solve(:\n```", "whole", "not Python: invalid"),
        ("```python\ndef solve():\n    return", "whole", "does not end"),
        ("def solve(): pass", "edits", "no edit"),
        (EDIT.replace("b = 1", "c = 1"), "either", "does not occur"),
        (EDIT.replace("    b = 1\n", "= 1\n"), "either", "occurs 2 times"),
        (EDIT.replace("b = 2", "b = ("), "either", "not Python"),
        ("x = '\udc80'", "whole", "no file can have"),
        ("(" * 5000 + ")" * 5000, "whole", "not Python"),
    ],
)
def test_what_cannot_be_read_is_said(problem: Problem, answer: str, form: Form, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        read_answer(answer, PARENT, problem, form)


def test_programs_that_differ_in_comments_and_layout_are_the_same(problem: Problem) -> None:
    assert identify("x = 1", problem) == identify("x=1  # one\n\n", problem) != identify("x = 2", problem)
    text = replace(problem, suffix=".txt")
    assert identify("a b \n", text) == identify("a b", text) != identify("a  b", text)
    assert Path(problem.file).name == "problem.py"
