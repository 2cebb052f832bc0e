"""What is found before step 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_engine import FakeEngine, Numbered

from fastslow.base.errors import ModelError
from fastslow.fast.reflection import ChatFailed, LanguageModelReflector, Reply
from fastslow.launch.assembly import Parts
from fastslow.launch.start import MORE, preflight
from fastslow.models.chat import ChatFormat
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Example, Feedback
from fastslow.rollouts.play import GradingError, Player
from fastslow.tasks import Task
from fastslow.tasks.stages import Mixture, Part

RECIPE = build_recipe({"model": "nano", "task": "given"})
ASKING = build_recipe({"model": "nano", "task": "given", "fast": {"reflection": "openai/some"}})


def parts_of(task: Task) -> Parts:
    engine = FakeEngine()
    return Parts(task, engine, Player(task, engine, ChatFormat(engine.tokenizer)), task.seed_texts)  # type: ignore[arg-type]


class Graded(Numbered):
    def __init__(self, grade: Callable[[int], Any]) -> None:
        super().__init__()
        self.graded = 0
        self._grade = grade

    def grade(self, example: Example, answer: str) -> Feedback:
        self.graded += 1
        return self._grade(self.graded)


def fails(number: int) -> Feedback:
    raise KeyError("anser")


def test_a_grader_that_works_is_asked_once() -> None:
    task = Graded(lambda _: Feedback(0.0, "no"))
    spent = preflight(RECIPE, parts_of(task), None)
    assert task.graded == spent["preflight"].rollouts == 1
    assert spent.training_rollouts == 0


@pytest.mark.parametrize("returned", [None, "good", 0.5, Feedback(2.0), Feedback(float("nan"))])
def test_a_grader_that_always_fails_ends_it_before_step_1(returned: Any) -> None:
    with pytest.raises(GradingError, match=rf"all of the {1 + MORE} answers .* problem 'train-0': it returned"):
        preflight(RECIPE, parts_of(Graded(lambda _: returned)), None)
    with pytest.raises(GradingError, match=r"KeyError: 'anser' \(.*test_preflight\.py:\d+\)"):
        preflight(RECIPE, parts_of(Graded(fails)), None)


def test_a_grader_that_fails_now_and_then_passes() -> None:
    task = Graded(lambda number: Feedback(1.0) if number == 5 else fails(number))
    spent = preflight(RECIPE, parts_of(task), None)
    assert task.graded == 1 + MORE
    assert spent["preflight"].faults == {"grader": MORE}


def test_every_task_of_a_mixture_is_tried() -> None:
    good, bad = Graded(lambda _: Feedback(1.0)), Graded(fails)
    with pytest.raises(GradingError, match="problem 'bad/"):
        preflight(RECIPE, parts_of(Mixture([Part("good", 9.0, good), Part("bad", 1.0, bad)])), None)
    assert (good.graded, bad.graded) == (1, 1 + MORE)


@pytest.mark.parametrize("permanent", [True, False])
def test_a_reflection_model_that_can_never_answer_ends_it(permanent: bool) -> None:
    asked = []

    def chat(messages: Any, seed: int) -> Reply:
        asked.append(messages)
        raise ChatFailed("the key is refused", permanent=permanent)

    def check(recipe: Recipe) -> None:
        preflight(recipe, parts_of(Numbered()), LanguageModelReflector(chat))

    if permanent:
        with pytest.raises(ModelError, match="the key is refused"):
            check(ASKING)
    else:
        check(ASKING)
    assert len(asked) == 1


def test_what_the_reflection_model_was_asked_is_booked_apart() -> None:
    reflector = LanguageModelReflector(lambda messages, seed: Reply("ready", 7, 2, cost=0.5))
    spent = preflight(ASKING, parts_of(Numbered()), reflector)
    assert (spent["preflight"].calls, spent["preflight"].cost) == (2, 0.5)  # one rollout's and the reflector's
    assert reflector.usage.calls == spent["reflection"].calls == 0
