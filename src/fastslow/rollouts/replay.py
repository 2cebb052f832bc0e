"""The same conversation under another context: what each answer would have been an answer to."""

from __future__ import annotations

from collections.abc import Sequence

from fastslow.records import Context, Rollout
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Answer

Prompts = list[tuple[int, ...]]


def replay(player: Player, rollouts: Sequence[Rollout], contexts: Sequence[Context]) -> list[Prompts | None]:
    """The prompts of every rollout's turns, had it been played under another context; each process replays its share.

    The task is played again with the answers that were given, all but the last, so nothing is sampled and nothing graded.
    None where that fails: the task asks fewer questions, or the model cannot take that long a prompt.
    """
    rank, size = player.world.rank, player.world.size
    pairs = list(zip(rollouts, contexts, strict=True))
    shares = player.world.gather([_replayed(player, *pair) for pair in pairs[rank::size]])
    return [shares[index % size][index // size] for index in range(len(pairs))]


def _replayed(player: Player, rollout: Rollout, context: Context) -> Prompts | None:
    prompts: Prompts = []
    try:
        game = player.task.play_under(rollout.example, context.texts)
        answer: str | None = None
        for turn in rollout.turns:
            ask = next(game) if answer is None else game.send(answer)
            prompt = tuple(player.chat.prompt(ask.messages, ask.context(context.texts)))
            if player.max_length is not None and len(prompt) + len(turn.completion.ids) > player.max_length:
                return None
            prompts.append(prompt)
            answer = Answer(turn.answer, turn.completion.ids)
        game.close()
    except Exception:  # a task can fail in any way, or be over (StopIteration); it costs this rollout only
        return None
    return prompts
