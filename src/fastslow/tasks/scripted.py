"""Rollouts whose answers are given instead of sampled: for showing a task, checking its prompts and replaying a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastslow.base.world import wait_for
from fastslow.records import Example, Feedback
from fastslow.tasks.base import Ask, Task


@dataclass(frozen=True)
class Scripted:
    """What a rollout asked, and its feedback; no feedback where it asked for more answers than there were."""

    asks: Sequence[Ask]
    feedback: Feedback | None


async def follow_script(
    task: Task, example: Example, answers: Sequence[str], texts: Mapping[str, str] | None = None
) -> Scripted:
    """Play a rollout with these answers, one for each ask. At an ask that has none the rollout is cancelled.

    `texts` is the context, by default the task's seed texts. What the task raises is raised.
    """
    asks: list[Ask] = []
    left = list(answers)
    out_of_answers = asyncio.Event()

    async def ask(asked: Ask) -> str:
        asks.append(asked)
        if not left:
            out_of_answers.set()
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        return left.pop(0)

    playing = asyncio.ensure_future(task.rollout(example, task.seed_texts if texts is None else texts, ask))
    waiting = asyncio.ensure_future(out_of_answers.wait())
    try:
        await asyncio.wait({playing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return Scripted(asks, playing.result() if playing.done() else None)
    finally:
        waiting.cancel()
        playing.cancel()
        await asyncio.gather(playing, waiting, return_exceptions=True)


def scripted_rollout(
    task: Task, example: Example, answers: Sequence[str] = (), texts: Mapping[str, str] | None = None
) -> Scripted:
    """`follow_script`, for code that is not asynchronous."""
    return wait_for(follow_script(task, example, answers, texts))
