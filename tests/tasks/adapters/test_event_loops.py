"""Coroutines on another loop: what they return and raise arrives here, and a cancellation reaches them there."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fastslow.tasks.adapters.foreign import lasting_loop, run_on

Say = Callable[[str], Coroutine[Any, Any, str]]


async def conversation(say: Say, name: str = "") -> list[str]:
    answers = []
    for turn in range(2):
        await asyncio.sleep(0)
        answers.append(await say(f"{name}{turn}"))
    return answers


async def play(conversation: Callable[[Say], Coroutine[Any, Any, Any]], ask: Callable[[str], Any]) -> Any:
    """There and back, as an environment's rollout goes."""
    here = asyncio.get_running_loop()

    async def asked(question: str) -> str:
        assert asyncio.get_running_loop() is here
        return await ask(question)

    async def there() -> Any:
        assert asyncio.get_running_loop() is lasting_loop()
        return await conversation(lambda question: run_on(here, asked(question)))

    return await run_on(lasting_loop(), there())


async def echo(question: str) -> str:
    await asyncio.sleep(0)
    return f"<{question}>"


def test_hundreds_of_conversations_each_get_their_own_answers() -> None:
    async def all_of_them() -> list[list[str]]:
        names = [f"{number}." for number in range(300)]
        return await asyncio.gather(*(play(lambda say, n=name: conversation(say, n), echo) for name in names))

    assert asyncio.run(all_of_them()) == [[f"<{n}.0>", f"<{n}.1>"] for n in range(300)]


def test_questions_asked_at_once_wait_together() -> None:
    both_asked = asyncio.Barrier(2)

    async def both(say: Say) -> list[str]:
        return await asyncio.gather(say("a"), say("b"))

    async def ask(question: str) -> str:
        await both_asked.wait()
        return question

    assert asyncio.run(asyncio.wait_for(play(both, ask), 60)) == ["a", "b"]


def test_what_is_raised_on_one_loop_is_raised_on_the_other() -> None:
    async def fails(say: Say) -> None:
        with pytest.raises(LookupError, match="unheard"):
            await say("")
        raise ValueError("no")

    async def ask(question: str) -> str:
        raise LookupError("unheard")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(play(fails, ask))


def test_a_cancelled_conversation_has_cleaned_up_when_it_ends() -> None:
    log: list[str] = []

    async def careful(say: Say) -> None:
        try:
            await say("")
        finally:
            await asyncio.sleep(0.05)
            log.append("cleaned up")

    async def give_up() -> None:
        asked = asyncio.Event()

        async def ask(question: str) -> str:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                log.append("no answer")
            return ""

        playing = asyncio.ensure_future(play(careful, ask))
        await asked.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        log.append("over")

    asyncio.run(give_up())
    assert log == ["no answer", "cleaned up", "over"]


def test_one_that_is_cancelled_before_it_starts_ends_too() -> None:
    async def give_up() -> None:
        playing = asyncio.ensure_future(play(conversation, echo))
        await asyncio.sleep(0)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    asyncio.run(asyncio.wait_for(give_up(), 60))


def test_one_that_cancels_itself_is_cancelled_here() -> None:
    async def quits(say: Say) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(play(quits, echo), 60))
