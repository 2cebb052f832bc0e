"""The harness of examples/invoices: its grader, its tool, and that code which calls the tool is right."""

from runpy import run_path
from typing import Any

import pytest
from helpers import ROOT

from fastslow import load_recipe
from fastslow.launch.harness import Harness
from fastslow.tasks.harness import HARNESS
from fastslow.tasks.registry import build_task

FOLDER = ROOT / "examples" / "invoices"
ROW = {"crates": 53, "each": 266, "cents": 63, "broken": 3, "express": True}
BETTER = 'def solve(problem, ask, tools):\n    return tools.calculate(ask(problem["question"]))\n'


def test_only_the_exact_price_is_right_and_each_part_is_told_its_rules() -> None:
    grade = run_path(str(FOLDER / "grading.py"))["grade"]
    assert grade(str((53 - 3) * 266 * 63 + 950), ROW).score == 1
    wrong = grade("888174", ROW)
    assert wrong.score == 0
    assert "Broken crates are not charged" in wrong.by_component["system"]
    assert "950 cents" in wrong.by_component["system"]
    assert "tools.calculate" in wrong.by_component[HARNESS]
    assert "tools.calculate" not in wrong.by_component["system"]
    plain = grade("1", {**ROW, "broken": 0, "express": False}).by_component["system"]
    assert "Broken" not in plain
    assert "express" not in plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(53 - 3) * 266 * 63 + 950", 838850),
        ("To find: 53 × 266 × 63 cents.", 888174),
        ("7", ValueError),
        ("", ValueError),
    ],
)
def test_the_tool_computes_the_longest_expression_of_a_text(text: str, value: Any) -> None:
    calculate = run_path(str(FOLDER / "tools.py"))["calculate"]
    if value is ValueError:
        with pytest.raises(ValueError, match="no expression"):
            calculate(text)
    else:
        assert calculate(text) == value


def test_code_that_calculates_solves_what_the_seed_code_does_not() -> None:
    task: Any = build_task(load_recipe(FOLDER / "recipe.yaml"))
    tools = {"calculate": run_path(str(FOLDER / "tools.py"))["calculate"]}
    expression = run_path(str(FOLDER / "grading.py"))["expression"]
    for code, score in ((task.seed_code, 0), (BETTER, 1)):
        for example in task.examples("validation")[:3]:
            harness = Harness(code, task.signature, {"system": task.seed_text})
            answer = harness.solve(task.problem(example), lambda messages, row=example.data: expression(row), tools)
            assert task.grade(example, str(answer)).score == score
