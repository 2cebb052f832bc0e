"""Rollouts as coroutines: generators are driven, graders may be async or block, and a script stands in for the model."""

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Answer, Ask, Example, Feedback, Message, Options, QuestionTask, Split, Task
from fastslow.tasks.scripted import scripted_rollout

ONE = Example("one", {"n": 1})


class Quiz(QuestionTask):
    def __init__(self, grader: Callable[[str], Any], apart: bool = False) -> None:
        super().__init__(Options())
        self.grader, self.grades_apart = grader, apart

    def examples(self, split: Split) -> list[Example]:
        return [ONE]

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": "Who?"}]

    def grade(self, example: Example, answer: str) -> Any:
        return self.grader(answer)


class Guess(Quiz):
    """Asks until the answer is right."""

    def __init__(self, apart: bool = False) -> None:
        super().__init__(lambda answer: Feedback(1.0), apart)
        self.closed = 0

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        turn = 0
        try:
            while (yield Ask("system", [{"role": "user", "content": f"guess {turn}"}])) != "me":
                turn += 1
            return Feedback(1 / (turn + 1))
        finally:
            self.closed += 1


async def answer_me(asked: Ask) -> Answer:
    await asyncio.sleep(0)
    return Answer("me", (1, 2))


async def play(*tasks: Task) -> list[Feedback]:
    return await asyncio.gather(*(task.rollout(ONE, task.seed_texts, answer_me) for task in tasks))


@pytest.mark.parametrize("apart", [False, True])
def test_a_generator_is_driven_to_its_feedback(apart: bool) -> None:
    task = Guess(apart)
    played = scripted_rollout(task, ONE, ["you", "them", "me"])
    assert [ask.question for ask in played.asks] == ["guess 0", "guess 1", "guess 2"]
    assert played.feedback == Feedback(1 / 3)
    assert task.closed == 1


@pytest.mark.parametrize("apart", [False, True])
def test_a_script_that_ends_early_shows_what_is_asked_next(apart: bool) -> None:
    task = Guess(apart)
    played = scripted_rollout(task, ONE, ["you"])
    assert ([ask.question for ask in played.asks], played.feedback) == (["guess 0", "guess 1"], None)
    assert task.closed == 1


def test_a_script_can_be_played_inside_a_loop_and_raises_what_the_task_raises() -> None:
    def refuse(answer: str) -> Feedback:
        raise LookupError(answer)

    async def notebook() -> Any:
        return scripted_rollout(Guess(), ONE, ["me"]).feedback

    assert asyncio.run(notebook()) == Feedback(1.0)
    with pytest.raises(LookupError, match="why"):
        scripted_rollout(Quiz(refuse), ONE, ["why"])


def test_the_answers_of_a_script_are_text_as_they_were_given() -> None:
    seen: list[str] = []

    def keep(answer: str) -> Feedback:
        seen.append(answer)
        return Feedback(0.0)

    for answer in ("plain", Answer("sampled", (7,))):
        scripted_rollout(Quiz(keep), ONE, [answer])
    assert [getattr(answer, "ids", None) for answer in seen] == [None, (7,)]


def test_async_graders_wait_together() -> None:
    async def both() -> list[Feedback]:
        waiting = asyncio.Barrier(2)

        async def judge(answer: str) -> Feedback:
            await waiting.wait()
            return Feedback(0.5, answer)

        return await asyncio.wait_for(play(Quiz(judge), Quiz(judge)), 60)

    assert asyncio.run(both()) == [Feedback(0.5, "me")] * 2


def test_graders_that_block_in_threads_do_not_hold_the_others() -> None:
    released = threading.Event()

    def blocks(answer: str) -> Feedback:
        return Feedback(float(released.wait(60)))

    def releases(answer: str) -> Feedback:
        released.set()
        return Feedback(1.0)

    assert asyncio.run(play(Quiz(blocks, apart=True), Quiz(releases))) == [Feedback(1.0)] * 2


def test_only_grading_is_in_threads() -> None:
    """What is asked first is made by the player's own thread, so that rollouts ask in the order they start in."""
    threads: list[threading.Thread] = []

    class Where(Quiz):
        def messages(self, example: Example) -> list[Message]:
            threads.append(threading.current_thread())
            return super().messages(example)

    def grade(answer: str) -> Feedback:
        threads.append(threading.current_thread())
        return Feedback(1.0)

    asyncio.run(play(Where(grade, apart=True)))
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()


def test_a_rollout_can_be_cancelled_while_its_grader_blocks() -> None:
    grading, released = threading.Event(), threading.Event()

    def blocks(answer: str) -> Feedback:
        grading.set()
        released.wait(60)
        return Feedback(1.0)

    async def give_up() -> None:
        playing = asyncio.ensure_future(play(Quiz(blocks, apart=True)))
        while not grading.is_set():
            await asyncio.sleep(0.01)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        released.set()

    asyncio.run(give_up())


def test_a_task_that_says_nothing_of_how_it_is_played_is_refused() -> None:
    class Nothing(Task):
        seed_texts = {"system": ""}  # noqa: RUF012

        def examples(self, split: Split) -> list[Example]:
            return [ONE]

    with pytest.raises(TaskError, match="task Nothing implements neither play nor rollout"):
        scripted_rollout(Nothing(Options()), ONE)
