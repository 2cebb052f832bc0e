"""Plays rollouts until enough of them are finished; the others are set aside and played on later.

A rollout that is set aside keeps its answers, finished or not, until it ends. To play on, its task starts again and is given
the answers that it had, found by their prompts, until it asks for an unfinished one; of equal prompts the first ask has the
first answer, and so on. The policy of the moment reads the prompt and the tokens so far, and draws the rest. Every token
keeps the log-probability under the policy that drew it. So a task of several turns runs its tools again; if they return
something else, its prompts change and are answered anew.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from fastslow.base.concurrency import wait_for
from fastslow.base.errors import FastSlowError
from fastslow.base.seeds import derive_seed
from fastslow.engine.base import Pausable
from fastslow.records import Completion, Context, Example, Part, Rollout, Sampling
from fastslow.rollouts.play import Player, Timing
from fastslow.rollouts.rounds import Prompt

Settled = Callable[[Collection[int]], bool]
"""Whether playing may stop, given the rollouts that are not finished."""


@dataclass
class Answer:
    """What was drawn for a prompt so far."""

    prompt: tuple[int, ...]
    part: Part

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.part.completion.ids)

    def add(self, part: Part, step: int) -> None:
        """Add the tokens that the policy of a step drew after these."""
        before, new = self.part.completion, part.completion
        whole = Completion(
            (*before.ids, *new.ids), (*before.logprobs, *new.logprobs), (*before.steps, *[step] * len(new.ids))
        )
        self.part = Part(whole, part.ended)


@dataclass
class Attempt:
    """A rollout that is being played."""

    example: Example
    context: Context
    begun: int
    """The step in which its group was begun."""
    answers: list[Answer] = field(default_factory=list)
    """In the order in which they were first asked for."""
    rollout: Rollout | None = None
    """The finished rollout."""
    reused: bool = False
    """It was sampled, and booked, for another purpose."""


def play_until(
    player: Player, attempts: Sequence[Attempt], sampling: Sampling, settled: Settled, *, step: int, seed: int
) -> Timing:
    """Play rollouts on, under the policy of a step, until `settled`: its argument are positions in `attempts`."""
    return wait_for(_play(player, attempts, sampling, settled, step, seed))


async def _play(
    player: Player, attempts: Sequence[Attempt], sampling: Sampling, settled: Settled, step: int, seed: int
) -> Timing:
    started = time.perf_counter()
    assert isinstance(player.engine, Pausable), "the recipe check refuses other engines"
    seats = PausingRounds(
        player.engine, attempts, sampling, settled, step=step, seed=seed, early=player.task.grades_apart
    )
    broken: list[FastSlowError] = []
    try:
        async with asyncio.TaskGroup() as group:
            playing = [
                group.create_task(player.rollout(each.example, each.context, sampling, each.begun, seats, seat, broken))
                for seat, each in enumerate(attempts)
            ]
            await seats.serve()
            for rollout in playing:
                rollout.cancel()  # those that are set aside; the others have returned
    except BaseExceptionGroup as errors:  # the first is the cause; the others were cancelled because of it
        raise errors.exceptions[0] from None
    for seat, (attempt, rollout) in enumerate(zip(attempts, playing, strict=True)):
        attempt.answers = seats.answers[seat] if seat in seats.left else []
        attempt.rollout = None if seat in seats.left else rollout.result()
    total = time.perf_counter() - started
    return Timing(seats.seconds, total - seats.seconds)


@dataclass
class _Request:
    seat: int
    number: int
    """Which of the seat's asks of this prompt it is."""
    answer: Answer
    completed: asyncio.Future[Completion]


class PausingRounds:
    """Rounds of one engine call each, as in `Rounds`, which stop when enough rollouts are finished.

    While a round is sampled nobody knows which rollouts end with it, since a task may ask again. So a round stops when there
    would be enough if all answered rollouts ended; those that ask again, and those that were stopped, are in the next round.
    """

    def __init__(
        self,
        engine: Pausable,
        attempts: Sequence[Attempt],
        sampling: Sampling,
        settled: Settled,
        *,
        step: int,
        seed: int,
        early: bool,
    ) -> None:
        self.engine, self.sampling, self.settled = engine, sampling, settled
        self.step, self.seed, self.early = step, seed, early
        self.seconds = 0.0
        self.answers = [list(attempt.answers) for attempt in attempts]
        """The answers of every rollout, also those that it had."""
        self.left = set[int]()
        """The rollouts that are set aside."""
        self._asked = [Counter[tuple[int, ...]]() for _ in attempts]
        self._present = set(range(len(attempts)))
        self._waiting: list[_Request] = []
        self._changed = asyncio.Event()

    async def sample(self, seat: int, prompt: Prompt) -> Completion:
        if seat not in self._present:  # what outlives its rollout, or goes on although it is cancelled
            raise asyncio.CancelledError
        key = tuple(prompt)
        number = self._asked[seat][key]
        self._asked[seat][key] += 1
        same = [answer for answer in self.answers[seat] if answer.prompt == key]
        if number == len(same):
            same.append(Answer(key, Part(Completion((), ()), ended=False)))
            self.answers[seat].append(same[number])
        answer = same[number]
        if answer.part.ended:
            await asyncio.sleep(0)  # what is asked at the same time is numbered before what follows this answer
            return answer.part.completion
        request = _Request(seat, number, answer, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._changed.set()
        return await request.completed

    def leave(self, seat: int) -> None:
        self._present.discard(seat)
        self._changed.set()

    async def serve(self) -> None:
        turn = 0
        try:
            while True:
                while {request.seat for request in self._pending()} != self._present:
                    self._changed.clear()
                    await self._changed.wait()
                if not self._present or self.settled(self._present):
                    return
                await self._round(derive_seed(self.seed, turn, 0))
                turn += 1
        finally:
            self.left, self._present = self._present, set()
            for request in self._waiting:
                request.completed.cancel()

    def _pending(self) -> list[_Request]:
        """The open requests; a rollout may have cancelled some of its own, or have ended without them."""
        return [
            request for request in self._waiting if request.seat in self._present and not request.completed.cancelled()
        ]

    async def _round(self, seed: int) -> None:
        pending = sorted(self._pending(), key=lambda each: (each.seat, each.answer.prompt, each.number))
        self._waiting = []
        loop = asyncio.get_running_loop()

        def enough(rows: Sequence[int]) -> bool:
            return self.settled({pending[row].seat for row in rows})

        def ready(row: int, completion: Completion) -> None:
            loop.call_soon_threadsafe(deliver, row, Part(completion, ended=True))

        def deliver(row: int, part: Part) -> None:
            request = pending[row]
            if request.completed.done():
                return
            request.answer.add(part, self.step)
            if part.ended:
                request.completed.set_result(request.answer.part.completion)
            else:
                self._waiting.append(request)

        started = time.perf_counter()
        parts = await self.engine.sample_until(
            [(*request.answer.prompt, *request.answer.ids) for request in pending],
            [self.sampling.max_tokens - len(request.answer.ids) for request in pending],
            self.sampling,
            seed,
            enough,
            ready if self.early else None,
        )
        self.seconds += time.perf_counter() - started
        for row, part in enumerate(parts):
            deliver(row, part)
