"""Plain functions played as coroutines: the same results, none holds another, and no thread is left behind."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.tasks.adapters.foreign import Abandoned, run_in_thread

Ask = Callable[[int], int]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


async def negated(number: int) -> int:
    await asyncio.sleep(0)
    return -number


def answered(program: Callable[[Ask], Any], answer: Callable[[int], Awaitable[int]] = negated) -> Any:
    """Play to the end, every question answered by a coroutine."""
    return asyncio.run(asyncio.wait_for(run_in_thread(program, answer), 60))


def given_up(program: Callable[[Ask], Any], questions: int = 1) -> None:
    """Play, and cancel when so many questions were asked, of which all but the last were answered."""

    async def play() -> None:
        asked = asyncio.Event()
        count = 0

        async def ask(number: int) -> int:
            nonlocal count
            count += 1
            if count >= questions:
                asked.set()
                await asyncio.Event().wait()
            return number

        playing = asyncio.ensure_future(run_in_thread(program, ask))
        await asked.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(playing, 60)

    asyncio.run(play())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers()))
def test_a_function_returns_what_it_would_with_the_answers_at_hand(numbers: list[int]) -> None:
    def walk(ask: Ask) -> list[int]:
        found = [ask(number) for number in numbers]
        return [*found, ask(sum(found))] if found else []

    assert answered(walk) == walk(lambda number: -number)


@pytest.mark.parametrize("questions", [0, 2])
@pytest.mark.parametrize("kind", [LookupError, SystemExit])
def test_what_the_function_raises_comes_out_as_it_is(questions: int, kind: type[BaseException]) -> None:
    def fail(ask: Ask) -> None:
        for number in range(questions):
            ask(number)
        raise kind("no such thing")

    with pytest.raises(kind, match="no such thing"):
        answered(fail)


def test_what_the_answer_raises_is_raised_in_the_function() -> None:
    async def refuse(number: int) -> int:
        raise ValueError("not that")

    def careful(ask: Ask) -> str:
        with pytest.raises(ValueError, match="not that"):
            ask(1)
        return "went on"

    assert answered(careful, refuse) == "went on"


def test_a_function_that_blocks_does_not_hold_the_others() -> None:
    released = threading.Event()

    async def both() -> list[Any]:
        blocking = run_in_thread(lambda ask: released.wait(60), negated)
        other = run_in_thread(lambda ask: (ask(1), released.set()), negated)
        return await asyncio.gather(blocking, other)

    assert asyncio.run(both())[0] is True


def test_hundreds_are_under_way_at_once() -> None:
    """Their questions can be answered in one batch, whatever the number of processors."""
    count = 300

    async def play() -> list[list[int]]:
        batch = asyncio.Barrier(count)

        async def ask(number: int) -> int:
            await batch.wait()
            return -number

        programs = [lambda ask, start=10 * n: [ask(start + turn) for turn in range(2)] for n in range(count)]
        return await asyncio.gather(*(run_in_thread(program, ask) for program in programs))

    assert asyncio.run(asyncio.wait_for(play(), 60)) == [[-10 * n, -10 * n - 1] for n in range(count)]


def test_cancelling_unwinds_the_function() -> None:
    ends: list[object] = []

    def careful(ask: Ask) -> None:
        try:
            ask(1)
        except BaseException as error:
            ends.append(type(error))
            raise
        finally:
            ends.append("cleaned up")

    given_up(careful)
    assert ends == [Abandoned, "cleaned up"]


def test_cancelling_ends_a_function_that_tries_again_after_every_fault() -> None:
    def stubborn(ask: Ask) -> int:
        while True:
            try:
                return ask(1)
            except Exception:
                continue

    given_up(stubborn)


def test_a_function_that_swallows_everything_is_refused_its_next_question() -> None:
    refused: list[type[BaseException]] = []

    def deaf(ask: Ask) -> None:
        for _ in range(3):
            try:
                ask(1)
            except BaseException as error:
                refused.append(type(error))

    given_up(deaf)
    assert refused == [Abandoned] * 3


def test_the_callers_context_variables_are_there_and_stay_the_callers() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("the caller's")

    def look(ask: Ask) -> list[str]:
        seen = [variable.get()]
        variable.set("the function's")
        ask(1)
        return [*seen, variable.get()]

    assert answered(look) == ["the caller's", "the function's"]
    assert variable.get() == "the caller's"


def in_parallel(ask: Ask) -> list[int]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(ask, range(20)))


def test_a_function_may_ask_from_threads_of_its_own() -> None:
    assert answered(in_parallel) == [-number for number in range(20)]


def test_cancelling_reaches_questions_of_the_functions_own_threads() -> None:
    given_up(in_parallel, questions=3)


def test_a_question_after_the_end_is_refused() -> None:
    kept: list[Ask] = []
    assert answered(kept.append) is None
    with pytest.raises(Abandoned):
        kept[0](1)
