"""Plays rollouts until enough of them are finished; the others are set aside and played on later.

A rollout that is set aside keeps its answers, the last of them unfinished. To play on, its task starts again and is given the
answers that it had, found by their prompts, until it asks for the unfinished one. The policy of the moment reads the prompt
and the tokens so far, and draws the rest. Every token keeps the log-probability under the policy that drew it. So a task of
several turns runs its tools again; if they return something else, its prompts change and are answered anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from fastslow.concurrency import wait_for
from fastslow.engine.base import Pausable
from fastslow.errors import FastSlowError
from fastslow.records import Completion, Context, Example, Part, Rollout, Sampling
from fastslow.rollouts.play import Player, Timing
from fastslow.rollouts.rounds import Prompt
from fastslow.seeds import derive_seed

Settled = Callable[[Collection[int]], bool]
"""Whether playing may stop, given the rollouts that are not finished."""


@dataclass(frozen=True)
class Answer:
    """What was drawn for a prompt so far."""

    prompt: tuple[int, ...]
    part: Part

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.part.completion.ids)

    def continued(self, part: Part, step: int) -> Answer:
        """With the tokens that the policy of a step drew after these."""
        before, new = self.part.completion, part.completion
        whole = Completion(
            (*before.ids, *new.ids), (*before.logprobs, *new.logprobs), (*before.steps, *[step] * len(new.ids))
        )
        return Answer(self.prompt, Part(whole, part.ended))


@dataclass
class Attempt:
    """A rollout that is being played."""

    example: Example
    context: Context
    begun: int
    """The step in which its group was begun."""
    answers: list[Answer] = field(default_factory=list)
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
        self.answers: list[list[Answer]] = [[] for _ in attempts]
        """The answers of every rollout, also those that it had."""
        self.left = set[int]()
        """The rollouts that are set aside."""
        self._had = [list(attempt.answers) for attempt in attempts]
        self._present = set(range(len(attempts)))
        self._waiting: list[_Request] = []
        self._changed = asyncio.Event()

    async def sample(self, seat: int, prompt: Prompt) -> Completion:
        key = tuple(prompt)
        known = next((answer for answer in self._had[seat] if answer.prompt == key), None)
        if known is not None:
            self._had[seat].remove(known)
            if known.part.ended:
                self.answers[seat].append(known)
                return known.part.completion
        answer = known or Answer(key, Part(Completion((), ()), ended=False))
        request = _Request(seat, answer, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._changed.set()
        return await request.completed

    def leave(self, seat: int) -> None:
        self._present.discard(seat)
        self._changed.set()

    async def serve(self) -> None:
        turn = 0
        while True:
            while {request.seat for request in self._pending()} != self._present:
                self._changed.clear()
                await self._changed.wait()
            if not self._present or self.settled(self._present):
                break
            await self._round(derive_seed(self.seed, turn, 0))
            turn += 1
        for request in self._pending():
            self.answers[request.seat].append(request.answer)
        self.left = set(self._present)

    def _pending(self) -> list[_Request]:
        """The open requests; a rollout may have cancelled some of its own."""
        return [request for request in self._waiting if not request.completed.cancelled()]

    async def _round(self, seed: int) -> None:
        pending = sorted(self._pending(), key=lambda request: (request.seat, request.answer.prompt))
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
            request.answer = request.answer.continued(part, self.step)
            if part.ended:
                self.answers[request.seat].append(request.answer)
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
