"""Plain functions played as generators: the same results, the two sides in turn, and no thread left behind."""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.tasks.adapters.stepwise import Abandoned, stepwise

Ask = Callable[[int], int]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def answered(game: Generator[int, int, Any], answer: Callable[[int], int]) -> Any:
    """Play to the end, every question answered by a function."""
    try:
        question = next(game)
        while True:
            question = game.send(answer(question))
    except StopIteration as stop:
        return stop.value


@given(st.lists(st.integers()), st.integers(1, 5))
def test_a_function_returns_what_it_would_with_the_answers_at_hand(numbers: list[int], factor: int) -> None:
    def walk(ask: Ask) -> list[int]:
        found = [ask(number) for number in numbers]
        return [*found, ask(sum(found))] if found else []

    assert answered(stepwise(walk), lambda number: number * factor) == walk(lambda number: number * factor)


def test_each_side_runs_only_while_the_other_waits() -> None:
    log: list[str] = []

    def talk(ask: Ask) -> None:
        log.append("begins")
        ask(1)
        log.append("goes on")
        ask(2)
        log.append("ends")

    game = stepwise(talk)
    log.append("made")
    next(game)
    log.append("first question")
    game.send(0)
    log.append("second question")
    with pytest.raises(StopIteration):
        game.send(0)
    assert log == ["made", "begins", "first question", "goes on", "second question", "ends"]


@pytest.mark.parametrize("questions", [0, 2])
def test_what_the_function_raises_comes_out_as_it_is(questions: int) -> None:
    def fail(ask: Ask) -> None:
        for number in range(questions):
            ask(number)
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        answered(stepwise(fail), lambda number: number)


def test_closing_unwinds_the_function() -> None:
    ends: list[object] = []

    def careful(ask: Ask) -> None:
        try:
            ask(1)
        except BaseException as error:
            ends.append(type(error))
            raise
        finally:
            ends.append("cleaned up")

    game = stepwise(careful)
    next(game)
    game.close()
    assert ends == [Abandoned, "cleaned up"]


def test_closing_ends_a_function_that_tries_again_after_every_fault() -> None:
    def stubborn(ask: Ask) -> int:
        while True:
            try:
                return ask(1)
            except Exception:
                continue

    game = stepwise(stubborn)
    next(game)
    game.close()


def test_a_function_that_swallows_everything_is_refused_its_next_question() -> None:
    refused: list[type[BaseException]] = []

    def deaf(ask: Ask) -> None:
        for _ in range(3):
            try:
                ask(1)
            except BaseException as error:
                refused.append(type(error))

    game = stepwise(deaf)
    next(game)
    game.close()
    assert refused == [Abandoned] * 3


def test_a_dropped_generator_takes_its_thread_along() -> None:
    game = stepwise(lambda ask: ask(1))
    next(game)
    assert any(thread.name == "stepwise" for thread in threading.enumerate())
    del game


def test_one_that_is_never_advanced_starts_nothing() -> None:
    before = threading.active_count()
    game = stepwise(lambda ask: ask(1))
    assert threading.active_count() == before
    game.close()


def test_the_callers_context_variables_are_there_and_stay_the_callers() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("the caller's")

    def look(ask: Ask) -> list[str]:
        seen = [variable.get()]
        variable.set("the function's")
        ask(1)
        return [*seen, variable.get()]

    assert answered(stepwise(look), lambda number: number) == ["the caller's", "the function's"]
    assert variable.get() == "the caller's"


def test_hundreds_advance_in_lockstep_in_any_order() -> None:
    def walk(start: int) -> Callable[[Ask], list[int]]:
        return lambda ask: [ask(start + turn) for turn in range(3)]

    games = [stepwise(walk(10 * index)) for index in range(300)]
    questions = [next(game) for game in games]
    chance = random.Random(0)
    results: dict[int, list[int]] = {}
    while len(results) < len(games):
        for index in chance.sample(range(len(games)), len(games)):
            if index not in results:
                try:
                    questions[index] = games[index].send(-questions[index])
                except StopIteration as stop:
                    results[index] = stop.value
    assert results == {index: [-10 * index, -10 * index - 1, -10 * index - 2] for index in range(300)}


def in_parallel(ask: Ask) -> list[int]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(ask, range(20)))


def test_a_function_may_ask_from_threads_of_its_own() -> None:
    assert answered(stepwise(in_parallel), lambda number: number**2) == [number**2 for number in range(20)]


def test_closing_reaches_questions_of_the_functions_own_threads() -> None:
    game = stepwise(in_parallel)
    for answer in (None, 1, 2):
        game.send(answer)  # type: ignore[arg-type]
    game.close()


def test_a_question_after_the_end_is_refused() -> None:
    kept: list[Ask] = []
    assert answered(stepwise(kept.append), lambda number: number) is None
    with pytest.raises(Abandoned):
        kept[0](1)
