"""What the tests of both kinds of verifiers environments share."""

from typing import Any

from fastslow.recipe import build_recipe
from fastslow.tasks.adapters.verifiers_env.task import Verifiers
from fastslow.tasks.base import Ask, Example, Feedback, Split
from fastslow.tasks.registry import build_task
from fastslow.tasks.scripted import scripted_rollout

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def load(name: str, **options: Any) -> Verifiers:
    task = build_task(build_recipe({"model": "none", "task": {"name": f"verifiers/{name}", **options}}))
    assert isinstance(task, Verifiers)
    return task


def find(task: Verifiers, question: str) -> Example:
    return next(each for split in SPLITS for each in task.examples(split) if each.data["problem"].question == question)


def play(task: Verifiers, example: Example, *answers: str) -> tuple[list[Ask], Feedback]:
    """What was asked, and the feedback after the last answer."""
    played = scripted_rollout(task, example, answers)
    assert played.feedback is not None
    assert len(played.asks) == len(answers)
    return list(played.asks), played.feedback
