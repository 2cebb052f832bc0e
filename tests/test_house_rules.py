"""The task of examples/house-rules: what its grader says, and that `lessons` finds the house rules in it."""

import pytest
from helpers import ROOT

from fastslow import load_recipe
from fastslow.fast.reflection import Attempt, Request
from fastslow.fast.reflection.lessons import new_lessons
from fastslow.tasks.base import QuestionTask
from fastslow.tasks.registry import build_task

RULES = {
    "box": r"Write the numbers inside a box, with commas between them, like this: \boxed{9, 5, 2}.",
    "order": "Begin with the largest one and end with the smallest.",
    "numbers": "Use every number that is given exactly once and no other.",
}


@pytest.fixture(scope="module")
def task() -> QuestionTask:
    found = build_task(load_recipe(ROOT / "examples" / "house-rules" / "recipe.yaml"))
    assert isinstance(found, QuestionTask)
    return found


def test_every_problem_is_answered_by_its_reference(task: QuestionTask) -> None:
    for split in ("train", "validation", "test"):
        for example in task.examples(split):
            assert task.grade(example, rf"So it is \boxed{{{example.data['answer']}}}.").score == 1
    assert [len(task.examples(split)) for split in ("train", "validation", "test")] == [700, 150, 150]


@pytest.mark.parametrize(
    ("answer", "rule", "progress"),
    [
        ("{}", "box", 0),
        (r"\boxed{{ten}}", "box", 0.2),
        (r"\boxed{{}}", "box", 0.2),
        (r"\boxed{{{}, 3}}", "numbers", 0.4),
        (r"\boxed{{{}}} or \boxed{{1, 2, 3}}", "numbers", 0.4),
        (r"\boxed{{{backwards}}}", "order", 0.7),
        (r"\boxed{{{swapped}}}", "order", 0.7),
    ],
)
def test_a_broken_rule_is_named_and_lessons_can_tell_it_from_the_fact(
    task: QuestionTask, answer: str, rule: str, progress: float
) -> None:
    example = task.examples("train")[0]
    numbers = example.data["answer"].split(", ")
    swapped = [*numbers[:3], numbers[4], numbers[3]]
    given = answer.format(example.data["answer"], backwards=", ".join(numbers[::-1]), swapped=", ".join(swapped))
    feedback = task.grade(example, given)
    fact, advice = feedback.text.split("\n")
    assert (feedback.score, feedback.progress, advice) == (0, progress, RULES[rule])
    attempt = Attempt(task.messages(example)[0]["content"], given, feedback.text, 0.0)
    weights = new_lessons(Request("system", "", [attempt], "full", 200, len, 0))
    assert weights[fact] < weights[advice] == 1


def test_the_question_gives_none_of_the_rules_away(task: QuestionTask) -> None:
    question = task.messages(task.examples("train")[0])[0]["content"]
    assert not any(word in question for word in ("box", "largest", "comma", "once"))
