"""The same conversation under another context: the prompts that its answers would have been answers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastslow.concurrency import wait_for
from fastslow.records import Context, Example, Rollout
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Answer, Ask, Task

Prompts = list[tuple[int, ...]]


class _Stop(BaseException):
    """Ends a replay. Not an `Exception`, which a task may catch."""


def replay(player: Player, rollouts: Sequence[Rollout], contexts: Sequence[Context]) -> list[Prompts | None]:
    """The prompts of every rollout's turns, had it been played under another context; each process replays its share.

    The task is played again with the answers that were given, all but the last, so nothing is sampled and nothing graded.
    None where that fails: the task asks fewer questions, or the model cannot take that long a prompt.
    """
    rank, size = player.world.rank, player.world.size
    pairs = list(zip(rollouts, contexts, strict=True))

    async def mine() -> list[Prompts | None]:
        return [await _replayed(player, *pair) for pair in pairs[rank::size]]

    shares = player.world.gather(wait_for(mine()))
    return [shares[index % size][index // size] for index in range(len(pairs))]


async def _replayed(player: Player, rollout: Rollout, context: Context) -> Prompts | None:
    prompts: Prompts = []

    async def ask(asked: Ask) -> Answer:
        turn = rollout.turns[len(prompts)]
        prompts.append(tuple(player.prompt(asked, context.texts, len(turn.completion.ids))))
        if len(prompts) == len(rollout.turns):
            raise _Stop
        return Answer(turn.answer, turn.completion.ids)

    try:
        if rollout.turns:
            await player.task.rollout(rollout.example, context.texts, ask)
    except _Stop:
        return prompts
    except Exception:  # a task can fail in any way; it costs this rollout only
        return None
    return None if rollout.turns else prompts


def first_ask(task: Task, example: Example, texts: Mapping[str, str]) -> Ask | None:
    """What a task asks first of a problem, if anything."""
    found: list[Ask] = []

    async def ask(asked: Ask) -> Answer:
        found.append(asked)
        raise _Stop

    async def play() -> None:
        try:
            await task.rollout(example, texts, ask)
        except _Stop:
            return

    wait_for(play())
    return found[0] if found else None
