"""Runs rollouts: each is a coroutine that awaits its completions, tools and grader, independently of the others.

A task that raises, returns something other than feedback, or runs out of time or turns costs its rollout: the rollout scores
0, is counted as faulty and is shown to no reflector. Its error is for people. Too many of them stop the run, because its
rewards would mean nothing.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeGuard

from fastslow.base.errors import FastSlowError, RecipeError, RunError, TaskError
from fastslow.base.text import one_line, quoted
from fastslow.base.world import wait_for
from fastslow.engine.base import Engine
from fastslow.models.chat import ChatFormat, speaking
from fastslow.recipe import GradingRecipe
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Sampling, Turn
from fastslow.rollouts.rounds import InFlight, Pending, Rounds, Settled
from fastslow.sandbox.process import Watch
from fastslow.tasks.base import Answer, Ask, PromptTooLong, Task, is_number, within
from fastslow.tasks.scripted import follow_script
from fastslow.tasks.skills import Library, Skills

Prompts = list[tuple[int, ...]]
KEEP_IT_SHORT = "Keep the answer short: it is cut off after {} tokens, and only what stands before that counts."
"""Added to the feedback on a wrong, truncated answer: graders see only its text."""
FAULT = "grader"
"""The name under which a rollout and the ledger count a faulty grade."""
TOO_LONG = "prompt_too_long"
LEAST = 20
"""Rollouts of a step before its share of faulty grades is judged; at the end of a step any number is."""
_OWN = str(Path(__file__).parent.parent)


@dataclass
class Timing:
    """Seconds spent by a batch of rollouts."""

    sampling: float = 0.0
    grading: float = 0.0
    """Extra time for grading; grading while other completions are sampled is not counted."""

    @property
    def total(self) -> float:
        return self.sampling + self.grading


class Player:
    """Runs rollouts of a task for (example, context) pairs with an engine's policy."""

    def __init__(
        self,
        task: Task,
        engine: Engine,
        chat: ChatFormat,
        limits: GradingRecipe | None = None,
        library: Library | None = None,
    ) -> None:
        self.task, self.engine, self.chat, self.world = task, engine, chat, engine.world
        self.library = library
        """How texts are loaded, where questions are not shown all of them."""
        self.limits = limits or GradingRecipe()
        self.faulty = FaultyGrades(self.limits.faulty)

    def play(
        self,
        pairs: Sequence[tuple[Example, Context]],
        sampling: Sampling,
        *,
        policy_step: int,
        seed: int,
        strict: bool = True,
    ) -> tuple[list[Rollout], Timing]:
        """One rollout per pair, in order, the same on every process; each process runs its share. Without `strict`, faulty
        grades are not counted."""
        pending = [Pending(example, context, policy_step) for example, context in pairs]
        timing = self.advance(pending, sampling, seed=seed)
        rollouts = [each.rollout for each in pending if each.rollout]
        if strict:
            self.faulty.count(rollouts)
        return rollouts, timing

    def advance(
        self, pending: Sequence[Pending], sampling: Sampling, *, seed: int, step: int = 0, until: Settled | None = None
    ) -> Timing:
        """Play rollouts to their end or, under the policy of a step, until so many have ended that it may stop; `until` is
        given positions in `pending`. Each process plays its share, and then all know all rollouts."""
        assert until is None or self.engine.pausable, "assembling refuses sampling.ahead with other engines"
        rank, size = self.world.rank, self.world.size
        mine = pending[rank::size]
        timing = wait_for(self._play(mine, sampling, seed, step, until))
        shares = self.world.gather([each.rollout for each in mine])
        for index, each in enumerate(pending):
            each.rollout = shares[index % size][index // size]
        self.world.stop_together()
        return timing

    async def _play(
        self, pending: Sequence[Pending], sampling: Sampling, seed: int, step: int, until: Settled | None
    ) -> Timing:
        started = time.perf_counter()
        speaking.set(self.chat)
        seats: Rounds | InFlight
        if self.engine.in_flight:
            seats = InFlight(self.engine, sampling, seed)
        else:
            filler = self.chat.prompt([{"role": "user", "content": "-"}], "")
            early = self.task.grades_apart
            seats = Rounds(self.engine, pending, sampling, seed, filler, early=early, step=step, until=until)
        broken: list[FastSlowError] = []
        try:
            async with asyncio.TaskGroup() as group:
                playing = [
                    group.create_task(self._rollout(each, sampling, seats, seat, broken))
                    for seat, each in enumerate(pending)
                ]
                await group.create_task(seats.serve())
                for seat in seats.left:
                    playing[seat].cancel()
        except BaseExceptionGroup as errors:  # the first is the cause; the others were cancelled because of it
            raise errors.exceptions[0] from None
        for seat, (each, rollout) in enumerate(zip(pending, playing, strict=True)):
            each.drawn = seats.drawn[seat] if seat in seats.left else []
            each.rollout = None if seat in seats.left else rollout.result()
        total = time.perf_counter() - started
        return Timing(seats.seconds, total - seats.seconds)

    async def _rollout(
        self, pending: Pending, sampling: Sampling, seats: Rounds | InFlight, seat: int, broken: list[FastSlowError]
    ) -> Rollout:
        """One rollout. An error in the task affects only this rollout; a `RecipeError`, or a `RunError` of the engine, stops
        all of them (`broken`)."""
        example, context, policy_step = pending.example, pending.context, pending.begun
        texts = self.library.over(context.texts) if self.library else context.texts
        turns: list[Turn] = []
        faults: dict[str, int] = {}
        truncated: set[str] = set()
        too_long: list[PromptTooLong] = []
        watch, most = Watch(self.limits.timeout, partial(seats.queue, seat)), self.limits.max_turns

        async def ask(asked: Ask) -> Answer:
            if len(turns) >= most:
                raise TaskError(f"it asks for more than {most} answers, the limit that grading.max_turns sets")
            try:
                prompt = self.prompt(asked, sampling.max_tokens, texts)
            except PromptTooLong as error:
                if asked.ids is None:  # else whoever rendered it may shorten it
                    too_long.append(error)  # a task may catch or wrap it
                raise
            with watch.paused():
                try:
                    completion = await seats.sample(seat, prompt)
                except RunError as error:
                    broken.append(error)  # a task may catch or wrap it
                    raise
            if broken:
                raise broken[0]
            completion = self._cut(completion, asked)
            answer = self.chat.answer(completion.ids)
            shown = texts.given.get(asked.component) if isinstance(texts, Skills) else None
            turns.append(Turn(asked.component, asked.question, tuple(prompt), completion, answer, shown))
            if len(completion.ids) >= sampling.max_tokens and not self.chat.has_ended(completion.ids):
                truncated.add(asked.component)
                faults["truncated"] = 1  # the rollout, however many of its answers
            return Answer(answer, completion.ids, completion.logprobs)

        try:
            returned = await watch.run(self.task.rollout(example, texts, ask))
            feedback = _with_advice(returned, truncated, sampling.max_tokens)
        except RecipeError as error:  # the settings are wrong, so every score would be
            broken.append(error)
            raise
        except BaseException as error:  # of somebody else's code, which can raise anything
            feedback = Feedback(0.0, faults={FAULT: 1}, error=_described(error))
        finally:
            seats.leave(seat)
        if broken:
            raise broken[0]
        if too_long:
            faults[TOO_LONG] = 1
            return Rollout(example, context, policy_step, tuple(turns), Feedback(0.0, str(too_long[0])), faults)
        faults |= feedback.faults
        graded = replace(feedback, faults={}, error="")
        return Rollout(example, context, policy_step, tuple(turns), graded, faults, feedback.error)

    def prompt(self, asked: Ask, max_tokens: int, texts: Mapping[str, str]) -> list[int]:
        """The prompt tokens of a question under a context; raises `PromptTooLong` if the answer would not fit."""
        rendered = asked.ids is not None
        prompt = list(asked.ids or ()) if rendered else self.chat.prompt(asked.messages, asked.context(texts))
        longest = self.engine.max_length
        if longest is not None and len(prompt) + max_tokens > longest:
            raise PromptTooLong(
                f"The prompt has {len(prompt)} tokens; with {max_tokens} for the answer it does not fit the model's "
                f"{longest}. The instructions must be shorter."
            )
        return prompt

    def _cut(self, completion: Completion, asked: Ask) -> Completion:
        """What an ask wants of a completion."""
        kept = self.chat.kept(completion.ids, asked.limit, asked.stop)
        if kept == len(completion.ids):
            return completion
        ids, logprobs = completion.ids[:kept], completion.logprobs[:kept]
        return replace(completion, ids=ids, logprobs=logprobs, steps=completion.steps[:kept])

    def replay(self, rollouts: Sequence[Rollout], contexts: Sequence[Context | None]) -> list[Prompts | None]:
        """The prompts of each rollout's turns under another context; each process replays its share.

        The task runs again on the recorded answers, all but the last, so nothing is sampled or graded. None without a context
        and if this fails: the task makes fewer calls, or a prompt is too long for the model.
        """
        rank, size = self.world.rank, self.world.size
        pairs = list(zip(rollouts, contexts, strict=True))

        async def mine() -> list[Prompts | None]:
            speaking.set(self.chat)
            return [
                await self._replayed(rollout, context.texts) if context else None
                for rollout, context in pairs[rank::size]
            ]

        shares = self.world.gather(wait_for(mine()))
        return [shares[index % size][index // size] for index in range(len(pairs))]

    async def _replayed(self, rollout: Rollout, texts: Mapping[str, str]) -> Prompts | None:
        if not rollout.turns:
            return []
        texts = self.library.over(texts) if self.library else texts
        try:
            answers = [Answer(turn.answer, turn.completion.ids) for turn in rollout.turns[:-1]]
            asks = (await follow_script(self.task, rollout.example, answers, texts)).asks
            lengths = [len(turn.completion.ids) for turn in rollout.turns]
            return [tuple(self.prompt(*asked, texts)) for asked in zip(asks, lengths, strict=True)]
        except Exception:  # a task can raise anything; only this rollout is lost
            return None


def _described(error: BaseException) -> str:
    """What a task raised; what is meant for the run itself is raised on."""
    task = asyncio.current_task()
    cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
    if cancelled or isinstance(error, KeyboardInterrupt):
        raise error
    return describe(error)


def _is_feedback(returned: object) -> TypeGuard[Feedback]:
    return (
        isinstance(returned, Feedback)
        and all(is_number(n) and within(n) is not None for n in (returned.score, returned.progress))
        and isinstance(returned.text, str)
        and isinstance(returned.by_component, Mapping)
        and all(isinstance(words, str) for words in returned.by_component.values())
        and isinstance(returned.faults, Mapping)
        and all(isinstance(count, int) for count in returned.faults.values())
        and isinstance(returned.error, str)
    )


def _with_advice(returned: object, truncated: Collection[str], limit: int) -> Feedback:
    """What a task returned as feedback in plain numbers, with advice for the components whose answers were truncated."""
    if not _is_feedback(returned):
        raise TaskError(f"it returned {quoted(returned, 200)}, expected Feedback with numbers in [0, 1]")
    feedback = replace(returned, score=within(returned.score) or 0.0, progress=within(returned.progress) or 0.0)
    if not truncated or feedback.score >= 1:
        return feedback
    advice = KEEP_IT_SHORT.format(limit)
    own = {
        name: f"{words}\n{advice}".strip() if name in truncated else words
        for name, words in feedback.by_component.items()
    }
    return replace(feedback, text=f"{feedback.text}\n{advice}".strip(), by_component=own)


class GradingError(TaskError):
    """Too many grades are faulty."""


class FaultyGrades:
    """Counts the grades of a step and refuses more faulty ones than `limit`, a share."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._graded = 0
        self._faulty: list[Rollout] = []

    def count(self, rollouts: Sequence[Rollout]) -> None:
        self._graded += len(rollouts)
        self._faulty += [rollout for rollout in rollouts if is_faulty(rollout)]
        if self._graded >= LEAST:
            self._check()

    def end_step(self) -> None:
        """Judge the step, and begin the next."""
        self._check()
        self._graded, self._faulty = 0, []

    def _check(self) -> None:
        if len(self._faulty) > self.limit * self._graded:
            raise GradingError(
                f"{len(self._faulty)} of {self._graded} grades are faulty, and grading.faulty={self.limit:g} allows a share "
                f"of {self.limit:.0%} in a step; {first_error(self._faulty)}; correct the grader, or raise grading.faulty"
            )


def is_faulty(rollout: Rollout) -> bool:
    return FAULT in rollout.faults


def first_error(faulty: Sequence[Rollout]) -> str:
    """The first of some faulty grades, for people."""
    return f"the first is problem '{one_line(faulty[0].example.id, 60)}': {faulty[0].error}"


def describe(error: BaseException) -> str:
    """An error of a task on one line, with the line of the code outside this package that it came from."""
    words = one_line(error) if isinstance(error, TaskError) else f"{type(error).__name__}: {one_line(error)}"
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames if not frame.filename.startswith(_OWN)]
    return f"{words.rstrip('.')} ({places[-1]})" if places else words.rstrip(".")
