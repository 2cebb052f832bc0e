"""What a fault of a grader, of a task or of a prompt's length costs: its own rollout, and no other."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import sys
import time
from collections.abc import Callable, Generator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_helpers import SAMPLING, PlanAndDo, ScriptedEngine, contexts, play, player, problems, wait_in_time

from fastslow.base import world
from fastslow.base.errors import FastSlowError, RecipeError
from fastslow.recipe import GradingRecipe
from fastslow.records import Completion, Context, Rollout
from fastslow.rollouts import play as playing
from fastslow.rollouts.play import FaultyGrades, GradingError, Player
from fastslow.tasks.adapters.dataset import RowsTask
from fastslow.tasks.base import SYSTEM, Answer, Ask, Example, Feedback, Message, QuestionTask


class Quiz(QuestionTask):
    """Grades by a function, for one problem only; all others are right."""

    def __init__(self, grade: Callable[[], Any]) -> None:
        self._grade = grade

    def examples(self, split: str) -> list[Example]:
        return []

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "system", "content": "word"}, {"role": "user", "content": "say red"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return self._grade() if example.id == "odd" else Feedback(1.0, "Right.")


def raises(error: Exception) -> Callable[[], Any]:
    def grade() -> Any:
        raise error

    return grade


ODD: list[tuple[Example, Context]] = [
    (Example(name, {}), Context({SYSTEM: "go"})) for name in ("first", "odd", "third")
]


@pytest.mark.parametrize(
    ("grade", "said"),
    [
        (raises(ValueError("no such page")), "ValueError: no such page"),
        (raises(StopIteration("inside")), "RuntimeError"),  # Python's own rule inside generators
        (raises(RecursionError()), "RecursionError"),
        (lambda: Feedback(float("nan"), "x"), "nan"),
        (lambda: Feedback(float("inf"), "x"), "inf"),
        (lambda: Feedback(1.01, "x"), "1.01"),
        (lambda: Feedback(-0.01, "x"), "-0.01"),
        (lambda: Feedback(1.0000023, "x" * 1000), "score=1.0000023"),
        (lambda: Feedback(10**400, "x"), "score=1000"),
        (lambda: Feedback(0.5, "x", progress=1.0000023), "1.0000023"),
        (lambda: Feedback("good", "x"), "'good'"),  # type: ignore[arg-type]
        (lambda: Feedback(None, "x"), "None"),  # type: ignore[arg-type]
        (lambda: 1.0, "1.0"),
        (lambda: None, "None"),
        (lambda: (1.0, "text"), "(1.0, 'text')"),
    ],
)
def test_a_grader_that_fails_costs_its_own_rollout_only(grade: Callable[[], Any], said: str) -> None:
    first, odd, third = play(Quiz(grade), ScriptedEngine(), ODD)
    assert first.feedback == third.feedback == Feedback(1.0, "Right.")
    assert first.faults == third.faults == {}
    assert odd.score == 0.0
    assert odd.faults == {"grader": 1}
    assert odd.feedback == Feedback(0.0)  # a reflector reads the feedback, people read the error
    assert said in odd.error
    assert len(odd.turns) == 1  # what the model wrote is kept


def test_sys_exit_in_a_grader_costs_its_rollout() -> None:
    _, odd, third = play(Quiz(lambda: sys.exit(0)), ScriptedEngine(), ODD)
    assert (odd.faults, third.score) == ({"grader": 1}, 1.0)
    assert odd.error.startswith("SystemExit: 0 (")
    assert odd.error.endswith("test_play_faults.py:" + odd.error.rpartition(":")[2])


@pytest.mark.parametrize("apart", [False, True])
def test_a_grader_that_does_not_return_costs_its_rollout(apart: bool) -> None:
    class Slow(Quiz):
        grades_apart = apart

    limited = Player(Slow(lambda: time.sleep(300)), ScriptedEngine(), ScriptedEngine().chat, GradingRecipe(timeout=1))
    started = time.perf_counter()
    (_, odd, third), _ = limited.play(ODD, SAMPLING, policy_step=0, seed=0)
    assert time.perf_counter() - started < 60
    assert (odd.faults, odd.score, third.score) == ({"grader": 1}, 0.0, 1.0)
    assert "more than 1 seconds" in odd.error


def test_an_async_grader_that_does_not_return_is_cancelled_and_the_wait_for_answers_is_not_counted() -> None:
    class Waits(Quiz):
        async def rollout(self, example: Example, texts: Any, ask: Any) -> Feedback:
            for _ in range(4):
                await ask(Ask(SYSTEM, self.messages(example)))
            if example.id == "odd":
                await asyncio.sleep(300)
            return Feedback(1.0)

    class Leisurely(ScriptedEngine):
        async def sample(self, *given: Any, **named: Any) -> list[Completion]:
            await asyncio.sleep(0.3)
            return await super().sample(*given, **named)

    engine = Leisurely()
    limited = Player(Waits(raises(ValueError())), engine, engine.chat, GradingRecipe(timeout=1))
    (first, odd, third), _ = limited.play(ODD, SAMPLING, policy_step=0, seed=0)
    assert (first.score, odd.score, third.score) == (1.0, 0.0, 1.0)
    assert "more than 1 seconds" in odd.error


def test_a_rollout_that_never_stops_asking_is_faulty() -> None:
    class Endless(Quiz):
        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            while True:
                yield Ask(SYSTEM, self.messages(example))

    engine = ScriptedEngine()
    limited = Player(Endless(raises(ValueError())), engine, engine.chat, GradingRecipe(max_turns=3, faulty=1))
    (odd, *_), _ = limited.play(ODD, SAMPLING, policy_step=0, seed=0)
    assert len(odd.turns) == 3
    assert "more than 3 answers" in odd.error


@given(st.lists(st.booleans(), max_size=60), st.floats(0, 1))
def test_more_faulty_grades_than_the_limit_stop_the_step(failing: list[bool], limit: float) -> None:
    counted = FaultyGrades(limit)
    rollouts = [
        Rollout(Example(str(number), {}), Context({}), 0, (), Feedback(0.0), {"grader": 1} if bad else {}, "why")
        for number, bad in enumerate(failing)
    ]

    def step() -> None:
        counted.count(rollouts)
        counted.end_step()

    if sum(failing) > limit * len(failing):
        first = failing.index(True)
        with pytest.raises(GradingError, match=rf"^{sum(failing)} of {len(failing)} .*problem '{first}': why"):
            step()
    else:
        step()
        step()


def test_wrong_settings_that_show_in_grading_end_the_play() -> None:
    with pytest.raises(RecipeError, match="low and high"):
        play(Quiz(raises(RecipeError("low and high"))), ScriptedEngine(), ODD)


def closes(descriptor: Callable[[], int]) -> Callable[[], Feedback]:
    def grade() -> Feedback:
        os.close(descriptor())
        return Feedback(0.0)

    return grade


def of_the_loop() -> int:
    return world._loop()._selector.fileno()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("descriptor", "said"),
    [
        (lambda: 0, "the task closed standard input; a grader, tool or environment may close only what it opened"),
        (of_the_loop, "a file descriptor of this process was closed"),
    ],
)
def test_a_grader_that_closes_a_descriptor_of_the_process_stops_the_run(descriptor: Any, said: str) -> None:
    with pytest.raises(FastSlowError, match=said):
        play(Quiz(closes(descriptor)), ScriptedEngine(), ODD)
    os.fstat(0)
    assert [each.score for each in play(Quiz(lambda: Feedback(0.5)), ScriptedEngine(), ODD)] == [1.0, 0.5, 1.0]


def test_an_answer_is_text_that_knows_its_tokens() -> None:
    heard: list[str] = []

    class Listens(Quiz):
        def grade(self, example: Example, answer: str) -> Feedback:
            heard.append(answer)
            return Feedback(1.0)

    rollouts = play(Listens(raises(ValueError())), ScriptedEngine(), ODD)
    for answer, rollout in zip(heard, rollouts, strict=True):
        assert isinstance(answer, Answer)
        assert answer == rollout.turns[0].answer
        assert type(rollout.turns[0].answer) is str  # it goes into tables and between processes
        assert answer.ids == rollout.turns[0].completion.ids
        assert len(answer.ids) > 0
        assert copy.deepcopy(answer).ids == answer.ids


@pytest.mark.parametrize("score", [0, 1, True, np.float32(0.25), np.float64(0.5), Fraction(1, 3)])
def test_every_real_number_from_0_to_1_is_a_score(score: Any) -> None:
    _, odd, _ = play(Quiz(lambda: Feedback(score, "fine")), ScriptedEngine(), ODD)
    assert odd.feedback == Feedback(float(score), "fine")
    assert type(odd.score) is float  # it goes into JSON and tables
    assert odd.faults == {}


@pytest.mark.parametrize(
    ("score", "counts"),
    [
        (1.0000000000000002, 1.0),
        (np.float32(1.0000001), 1.0),
        (-1e-17, 0.0),
        (-0.0, 0.0),
        (0.1 + 0.2 - 0.3, 0.1 + 0.2 - 0.3),
    ],
)
def test_rounding_beyond_the_bounds_is_forgiven(score: Any, counts: float) -> None:
    rows = RowsTask([{"question": "say red", "answer": "red"}], lambda answer, row: score, holdout=0)
    from_rows = rows.grade(rows.examples("train")[0], "blue")
    _, odd, _ = play(Quiz(lambda: Feedback(score, "fine", progress=score)), ScriptedEngine(), ODD)
    assert (odd.score, odd.feedback.progress, odd.faults) == (counts, counts, {})
    assert from_rows.score == counts  # type: ignore[union-attr]


class Careless(Quiz):
    """Goes wrong before the first answer, in a way of its choice."""

    def __init__(self, way: str) -> None:
        super().__init__(lambda: Feedback(0.5))
        self.way = way

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        if example.id == "odd" and self.way == "raises when called":
            raise ValueError("unreadable")
        return self._play(example)

    def _play(self, example: Example) -> Generator[Ask, str, Feedback]:
        if example.id == "odd":
            if self.way == "raises before asking":
                raise ValueError("unreadable")
            if self.way == "unknown component":
                yield Ask("nobody", self.messages(example))
            if self.way == "no ask":
                yield "say red"  # type: ignore[misc]
            if self.way == "no text":
                yield Ask(SYSTEM, [{"role": "user", "content": 5}])  # type: ignore[dict-item]
            if self.way == "raises after an answer":
                yield Ask(SYSTEM, self.messages(example))
                raise ValueError("unreadable")
        return (yield from super().play(example))


@pytest.mark.parametrize(
    "way",
    [
        "raises when called",
        "raises before asking",
        "unknown component",
        "no ask",
        "no text",
        "raises after an answer",
    ],
)
def test_a_task_that_fails_on_one_problem_costs_that_rollout_only(way: str) -> None:
    sampler = ScriptedEngine()
    first, odd, third = play(Careless(way), sampler, ODD)
    assert (first.score, third.score) == (1.0, 1.0)
    assert (odd.score, odd.faults) == (0.0, {"grader": 1})
    assert len(odd.turns) == (way == "raises after an answer")
    assert len(sampler.calls) == 1


@pytest.mark.parametrize("spare", [0, -1])
def test_prompts_too_long_for_the_model_are_not_sampled(spare: int) -> None:
    """With room for the longest answer a prompt is sampled, with one token less it is not."""
    sampler = ScriptedEngine()
    short, long = Context({SYSTEM: "go"}), Context({SYSTEM: "go " * 30})
    task = Quiz(lambda: Feedback(1.0))
    needed = len(sampler.chat.prompt(task.messages(ODD[0][0]), long.texts[SYSTEM])) + SAMPLING.max_tokens
    pairs = [(ODD[0][0], short), (ODD[0][0], long), (ODD[0][0], short)]
    rollouts, _ = player(task, sampler, needed + spare).play(pairs, SAMPLING, policy_step=0, seed=0)
    if spare == 0:
        assert [rollout.score for rollout in rollouts] == [1.0, 1.0, 1.0]
        assert len(sampler.calls[0][0]) == 3
        return
    assert [rollout.score for rollout in rollouts] == [1.0, 0.0, 1.0]
    assert len(sampler.calls[0][0]) == 2
    refused = rollouts[1]
    assert refused.faults == {"prompt_too_long": 1}
    assert refused.turns == ()
    assert f"{needed - SAMPLING.max_tokens} tokens" in refused.feedback.text
    assert f"{needed - 1}" in refused.feedback.text


def test_a_conversation_that_grows_too_long_keeps_its_turns() -> None:
    sampler = ScriptedEngine()
    pairs = [(example, contexts(1)[0]) for example in problems([6, 1])]
    free = play(PlanAndDo(), sampler, pairs)[0]
    third = len(free.turns[2].prompt_ids) + SAMPLING.max_tokens
    rollouts, _ = player(PlanAndDo(), ScriptedEngine(), third).play(pairs, SAMPLING, policy_step=0, seed=0)
    assert len(rollouts[0].turns) == 3
    assert rollouts[0].turns == free.turns[:3]
    assert (rollouts[0].score, rollouts[0].faults) == (0.0, {"prompt_too_long": 1})
    assert rollouts[1].score == 1.0


def test_parts_of_a_rollout_that_outlive_it_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """One asks again after its rollout has ended; another rollout catches that it is cancelled, and asks again."""

    class Parts(PlanAndDo):
        async def rollout(self, example: Example, texts: Any, ask: Any) -> Feedback:
            async def part(fails: bool) -> None:
                for _ in range(2):
                    try:
                        await ask(Ask("plan", [{"role": "user", "content": "red"}]))
                    except:  # noqa: E722
                        continue
                    if fails:
                        raise ValueError
                    await asyncio.sleep(0.01)

            if example.data["index"] == 2:
                await asyncio.sleep(0.01)
                raise RecipeError("wrong settings")
            with contextlib.suppress(ValueError):
                await asyncio.gather(part(example.data["index"] == 0), part(False))
            return Feedback(0.5)

    monkeypatch.setattr(playing, "wait_for", wait_in_time)
    texts = contexts(1)[0]
    pairs = [(example, texts) for example in problems([1, 1, 1])]
    first, second = play(Parts(), ScriptedEngine(), pairs[:2])
    assert (first.score, second.score) == (0.5, 0.5)
    assert len(second.turns) == 4
    with pytest.raises(RecipeError, match="wrong settings"):
        play(Parts(), ScriptedEngine(), pairs)
