"""Coroutines that wait for answers, driven as generators."""

import asyncio
import threading
from typing import Any

import pytest

from fastslow.tasks.adapters.verifiers_env.lockstep import Say, converse
from fastslow.tasks.base import Ask


def ask(text: str) -> Ask:
    return Ask("system", [{"role": "user", "content": text}])


async def echo(say: Say, name: str = "", turns: int = 2) -> list[str]:
    answers = []
    for turn in range(turns):
        await asyncio.sleep(0)
        answers.append(await say([{"role": "user", "content": f"{name}{turn}"}]))
    return answers


def finish(game: Any, answer: str) -> Any:
    with pytest.raises(StopIteration) as stop:
        game.send(answer)
    return stop.value.value


def test_every_wait_is_an_ask_and_the_end_returns() -> None:
    game = converse(echo)
    assert next(game) == ask("0")
    assert game.send("a") == ask("1")
    assert finish(game, "b") == ["a", "b"]


def test_many_games_advance_in_any_order() -> None:
    games = {name: converse(lambda say, name=name: echo(say, name)) for name in map(str, range(300))}
    assert [next(game) for game in games.values()] == [ask(f"{name}0") for name in games]
    for name in reversed(games):
        assert games[name].send(f"{name}-first") == ask(f"{name}1")
    for name, game in games.items():
        assert finish(game, "last") == [f"{name}-first", "last"]


def test_questions_asked_at_once_are_asked_one_by_one() -> None:
    async def both(say: Say) -> list[str]:
        return await asyncio.gather(*(say([{"role": "user", "content": name}]) for name in "ab"))

    game = converse(both)
    assert next(game) == ask("a")
    assert game.send("1") == ask("b")
    assert finish(game, "2") == ["1", "2"]


def test_what_goes_wrong_is_raised() -> None:
    async def fail(say: Say) -> None:
        await say([])
        raise ValueError("no")

    game = converse(fail)
    next(game)
    with pytest.raises(ValueError, match="no"):
        game.send("")


def test_a_game_that_is_dropped_may_clean_up() -> None:
    cleaned = threading.Event()

    async def careful(say: Say) -> None:
        try:
            await say([])
        finally:
            cleaned.set()

    next(converse(careful))
    assert cleaned.wait(10)


def test_a_loop_of_the_caller_is_no_hindrance() -> None:
    async def notebook() -> Any:
        game = converse(echo)
        next(game)
        return game.send("a")

    assert asyncio.run(notebook()) == ask("1")
