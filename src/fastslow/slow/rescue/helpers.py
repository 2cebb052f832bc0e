"""Who helps: the policy itself, which reads its answer and the grader's words, or another model, which reads what the policy
read. What comes back stands under the prompts without help.

A teacher's text becomes tokens of the policy's tokenizer, with the end token that the policy itself writes. Nobody knows with
which probability the policy would have been sampled there, so its log-probabilities are unknown (NaN): an engine then takes
the current policy's own, for an importance ratio of 1. That is imitation, weighted by the advantage.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import mode
from typing import Any

from fastslow.models.chat import Message, TextEncoder, merge_context
from fastslow.records import Completion, Context, Rollout, Sampling
from fastslow.rollouts.again import has_words, helped
from fastslow.rollouts.play import FAULT, Player
from fastslow.runs.ledger import RETRIES, Entry
from fastslow.tasks.base import Ask

TOGETHER = 16
"""Requests to one served model at a time."""
Chat = Callable[[list[dict[str, str]], int], Any]
"""Answers messages, given a seed, with a reply of `fast.reflection`, or raises; an error with `permanent` comes each time."""


class SecondTry:
    """The policy, with its own answer and the grader's words below the text; its log-probabilities are of those prompts."""

    name, helped, broken = "retry", True, ""

    def __init__(self, player: Player, sampling: Sampling, book: Callable[[Sequence[Rollout], Any], None]) -> None:
        self.player, self.sampling, self.book = player, sampling, book

    def can(self, rollout: Rollout) -> bool:
        return has_words(rollout)

    def attempt(self, failed: Sequence[Rollout], step: int, seed: int) -> list[Rollout | None]:
        """A try for each failed rollout, with the prompts that it had; None where the task does not make them again."""
        pairs = [(each.example, helped(each)) for each in failed]
        tries, timing = self.player.play(pairs, self.sampling, policy_step=step, seed=seed, strict=False)
        self.book(tries, timing)
        prompts = self.player.replay(tries, [each.context for each in failed])
        return [
            None if those is None else _without_help(tried, before.context, those)
            for tried, before, those in zip(tries, failed, prompts, strict=True)
        ]


def _without_help(tried: Rollout, context: Context, prompts: Sequence[Sequence[int]]) -> Rollout:
    turns = tuple(replace(turn, prompt_ids=ids) for turn, ids in zip(tried.turns, prompts, strict=True))
    return replace(tried, context=context, turns=turns)


class Teacher:
    """Another model, which reads the messages that the policy read; `broken` says why it cannot be asked any more."""

    helped, broken = False, ""

    def __init__(
        self, name: str, chat: Chat, student: Player, sampling: Sampling, book: Callable[[Entry], None]
    ) -> None:
        self.name, self.chat, self.student, self.sampling, self.book = name, chat, student, sampling, book

    def can(self, rollout: Rollout) -> bool:
        return bool(rollout.turns)

    def attempt(self, failed: Sequence[Rollout], step: int, seed: int) -> list[Rollout | None]:
        asked = _Asked(self.student, self.chat, self._end_token(failed))
        player = _TeacherPlayer(self.student, asked)
        pairs = [(each.example, each.context) for each in failed]
        try:
            tries, timing = player.play(pairs, self.sampling, policy_step=step, seed=seed, strict=False)
        finally:  # a run that is stopped waits for no answer
            asked.pool.shutdown(wait=False)
        found = self.student.world.gather((asked.spent, asked.broken))
        spent, unanswered = sum((each for each, _ in found), Entry()), sum(f.faults.get("teacher", 0) for f, _ in found)
        faults = sum((Counter(each.faults) for each in tries), Counter[str]()) - Counter({FAULT: unanswered})
        self.book(spent + Entry(len(tries), seconds=timing.total, faults=faults))
        self.broken = next((reason for _, reason in found if reason), "")
        return list(tries)

    def _end_token(self, failed: Sequence[Rollout]) -> int | None:
        """The end token that the policy itself writes; models can have several."""
        chat, written = self.student.chat, [turn.completion.ids for each in failed for turn in each.turns]
        ends = [ids[-1] for ids in written if chat.has_ended(ids)]
        return mode(ends) if ends else getattr(chat.tokenizer, "eos_token_id", None)


class _TeacherPlayer(Player):
    """Plays the task with a teacher's answers, under the policy's prompts."""

    def __init__(self, student: Player, asked: _Asked) -> None:
        super().__init__(student.task, asked, student.chat, student.limits, student.library)  # type: ignore[arg-type]
        self.asked = asked

    def prompt(self, asked: Ask, max_tokens: int, texts: Mapping[str, str]) -> list[int]:
        prompt = super().prompt(asked, max_tokens, texts)
        self.asked.messages[tuple(prompt)] = merge_context(asked.messages, asked.context(texts))
        return prompt


class _Asked:
    """A teacher in an engine's place, as far as playing needs one: it is sent the messages that a prompt was made of."""

    in_flight = True

    def __init__(self, student: Player, chat: Chat, end: int | None) -> None:
        self.world, self.max_length = student.engine.world, student.engine.max_length
        self.chat, self.end, self.encoder = chat, end, TextEncoder(student.chat.tokenizer)
        self.messages: dict[tuple[int, ...], Sequence[Message]] = {}
        served = getattr(chat, "concurrent", False)
        self.pool = ThreadPoolExecutor(TOGETHER if served else 1, "teacher")
        self.spent = Entry()
        self.broken = ""

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, **_: Any
    ) -> list[Completion]:
        (prompt,) = prompts
        messages = [dict(message) for message in self.messages[tuple(prompt)]]
        try:
            reply = await asyncio.get_running_loop().run_in_executor(self.pool, self.chat, messages, seed)
        except Exception as error:  # of a service: this try is lost, and the run goes on
            self.spent += Entry(faults={"teacher": 1})
            if getattr(error, "permanent", False):
                self.broken = str(error)
            raise
        faults = {RETRIES: reply.retries} if reply.retries else {}
        self.spent += Entry(0, 1, reply.prompt_tokens, reply.completion_tokens, cost=reply.cost, faults=faults)
        ids = self.encoder.encode(reply.text)
        if not reply.truncated and self.end is not None:
            ids.append(self.end)
        ids = ids[: sampling.max_tokens]
        return [Completion(tuple(ids), (math.nan,) * len(ids))]
