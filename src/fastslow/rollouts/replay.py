"""The prompts of a rollout under another context."""

from __future__ import annotations

from collections.abc import Sequence

from fastslow.base.world import wait_for
from fastslow.records import Context, Rollout
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Answer
from fastslow.tasks.scripted import follow_script

Prompts = list[tuple[int, ...]]


def replay(player: Player, rollouts: Sequence[Rollout], contexts: Sequence[Context]) -> list[Prompts | None]:
    """The prompts of each rollout's turns under another context; each process replays its share.

    The task runs again on the recorded answers, all but the last, so nothing is sampled or graded. None if this fails: the
    task makes fewer calls, or a prompt is too long for the model.
    """
    rank, size = player.world.rank, player.world.size
    pairs = list(zip(rollouts, contexts, strict=True))

    async def mine() -> list[Prompts | None]:
        return [await _replayed(player, *pair) for pair in pairs[rank::size]]

    shares = player.world.gather(wait_for(mine()))
    return [shares[index % size][index // size] for index in range(len(pairs))]


async def _replayed(player: Player, rollout: Rollout, context: Context) -> Prompts | None:
    turns, texts = rollout.turns, context.texts
    if not turns:
        return []
    try:
        answers = [Answer(turn.answer, turn.completion.ids) for turn in turns[:-1]]
        asks = (await follow_script(player.task, rollout.example, answers, texts)).asks
        lengths = [len(turn.completion.ids) for turn in turns]
        prompts = [tuple(player.prompt(*asked, texts)) for asked in zip(asks, lengths, strict=True)]
    except Exception:  # a task can raise anything; only this rollout is lost
        return None
    return prompts
