"""Rollouts in play, and how they get their completions: batched over all waiting rollouts, or one request at a time.

A rollout has a seat. It calls `sample` any number of times, also concurrently, and `leave` when it is done.

When enough rollouts are finished, the others may be set aside with what was drawn for them, and played on later. Their tasks
then start again and are given the answers that they had, found by their prompts, until one asks for an unfinished one; of
equal prompts the first ask has the first answer. The policy of the moment draws the rest, and every token keeps the
log-probability under the policy that drew it. Tools run again; if they return something else, prompts are answered anew.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from fastslow.base.world import derive_seed
from fastslow.engine.base import Engine
from fastslow.records import Completion, Context, Example, Rollout, Sampling

Prompt = Sequence[int]
Settled = Callable[[Collection[int]], bool]
"""Whether playing may stop, given the seats of the rollouts that are not finished."""

NOTHING = Completion((), (), ended=False)


@dataclass
class Drawn:
    """What was drawn for a prompt so far."""

    prompt: tuple[int, ...]
    completion: Completion = NOTHING

    def __deepcopy__(self, memo: object) -> Drawn:
        return replace(self)  # its parts never change

    def add(self, new: Completion, step: int | None) -> None:
        """Add the tokens that were drawn after these, by the policy of a step if that is to be known."""
        before = self.completion
        steps = () if step is None else (*before.steps, *[step] * len(new.ids))
        self.completion = Completion((*before.ids, *new.ids), (*before.logprobs, *new.logprobs), steps, new.ended)


@dataclass(eq=False)
class Pending:
    """A rollout that is being played."""

    example: Example
    context: Context
    begun: int
    """The step in which it was begun."""
    drawn: list[Drawn] = field(default_factory=list)
    """Unless it is finished: what was drawn, in the order in which it was first asked for."""
    rollout: Rollout | None = None
    """The finished rollout."""
    reused: bool = False
    """It was sampled, and booked, for another purpose."""


@dataclass(eq=False)
class Group:
    """A problem's rollouts in a step."""

    example: Example
    members: list[Pending] = field(default_factory=list)

    @property
    def rollouts(self) -> list[Rollout]:
        """Those that are finished."""
        return [member.rollout for member in self.members if member.rollout]

    @property
    def unfinished(self) -> list[Pending]:
        return [member for member in self.members if member.rollout is None]


@dataclass
class _Request:
    seat: int
    drawn: Drawn
    number: int
    """Which of the seat's asks of this prompt it is."""
    answer: asyncio.Future[Completion]


class Rounds:
    """One engine call whenever every rollout waits or has left, with the prompts in the order of their seats.

    All processes make every round together; those with fewer prompts pad with `filler`. With `early` a rollout gets its
    completion as soon as it is finished, otherwise all rollouts of a round get theirs together, in order.

    With `until`, rounds stop when enough rollouts are finished; the others are set aside, and tokens keep the `step` of the
    policy that drew them. While a round is sampled nobody knows which rollouts end with it, since a task may ask again. So a
    round stops when there would be enough if all answered rollouts ended; those that ask again, and those that were stopped,
    are in the next round.
    """

    def __init__(
        self,
        engine: Engine,
        pending: Sequence[Pending],
        sampling: Sampling,
        seed: int,
        filler: Prompt,
        *,
        early: bool = False,
        step: int = 0,
        until: Settled | None = None,
    ) -> None:
        self.engine, self.sampling, self.seed, self.filler, self.early = engine, sampling, seed, filler, early
        self.step, self.until = step, until
        self.seconds = 0.0
        """Seconds during which completions were being sampled."""
        self.drawn = [list(each.drawn) for each in pending]
        """What was drawn for every rollout, also before."""
        self.left: Collection[int] = ()
        """The seats of the rollouts that are set aside."""
        self._asked = [Counter[tuple[int, ...]]() for _ in pending]
        self._present = set(range(len(pending)))
        self._queued: set[int] = set()
        self._waiting: list[_Request] = []
        self._changed = asyncio.Event()

    async def sample(self, seat: int, prompt: Prompt) -> Completion:
        if seat not in self._present:  # what outlives its rollout, or goes on although it is cancelled
            raise asyncio.CancelledError
        key = tuple(prompt)
        number = self._asked[seat][key]
        self._asked[seat][key] += 1
        same = [drawn for drawn in self.drawn[seat] if drawn.prompt == key]
        if number == len(same):
            same.append(Drawn(key))
            self.drawn[seat].append(same[number])
        drawn = same[number]
        if drawn.completion.ended:
            await asyncio.sleep(0)  # what is asked at the same time is numbered before what follows this answer
            return drawn.completion
        request = _Request(seat, drawn, number, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._changed.set()
        return await request.answer

    def queue(self, seat: int, waits: bool) -> None:
        """The rollout waits for a free place, or has it: rounds are made without those that wait."""
        (self._queued.add if waits else self._queued.discard)(seat)
        self._changed.set()

    def leave(self, seat: int) -> None:
        """The rollout ends. Parts of it may still be running; what they ask for is not sampled."""
        self._present.discard(seat)
        self._changed.set()

    async def serve(self) -> None:
        """Runs concurrently with the rollouts until all have left or are set aside."""
        world, turn = self.engine.world, 0
        try:
            while True:
                while not self._complete():
                    self._changed.clear()
                    await self._changed.wait()
                longest = world.largest(len(self._open()))
                if not longest or (self.until and self.until(self._present)):
                    return
                await self._round(longest, derive_seed(self.seed, turn, world.rank))
                turn += 1
        finally:
            self.left, self._present = self._present, set()
            for request in self._waiting:
                request.answer.cancel()

    def _complete(self) -> bool:
        """Whether all rollouts wait for completions, but for those that wait for their place."""
        asking, queued = {request.seat for request in self._open()}, self._queued & self._present
        return asking == self._present - queued and (bool(asking) or not queued)

    def _open(self) -> list[_Request]:
        """The open requests; a rollout may have cancelled some of its own, or have ended without them."""
        return [each for each in self._waiting if each.seat in self._present and not each.answer.cancelled()]

    async def _round(self, longest: int, seed: int) -> None:
        requests = sorted(self._open(), key=lambda each: each.seat)
        if self.until:  # a task that starts again may ask in another order
            requests.sort(key=lambda each: (each.seat, each.drawn.prompt, each.number))
        self._waiting = []
        loop = asyncio.get_running_loop()

        def enough(rows: Sequence[int]) -> bool:
            return self.until is not None and self.until({requests[row].seat for row in rows})

        def ready(row: int, completion: Completion) -> None:
            loop.call_soon_threadsafe(deliver, row, completion)

        def deliver(row: int, completion: Completion) -> None:
            if row >= len(requests) or requests[row].answer.done():
                return
            request = requests[row]
            request.drawn.add(completion, self.step if self.until else None)
            if completion.ended:
                request.answer.set_result(request.drawn.completion)
            else:
                self._waiting.append(request)

        prompts = [[*each.drawn.prompt, *each.drawn.completion.ids] for each in requests]
        limits = [self.sampling.max_tokens - len(each.drawn.completion.ids) for each in requests]
        started = time.perf_counter()
        completions = await self.engine.sample(
            [*prompts, *[self.filler] * (longest - len(requests))],
            self.sampling,
            seed,
            limits=limits if self.until else None,
            enough=enough if self.until else None,
            ready=ready if self.early else None,
        )
        self.seconds += time.perf_counter() - started
        for row, completion in enumerate(completions):
            deliver(row, completion)


class InFlight:
    """Sends every prompt to the engine immediately, as a separate request seeded by its seat and turn."""

    left: Collection[int] = ()
    drawn: Sequence[list[Drawn]] = ()

    def __init__(self, engine: Engine, sampling: Sampling, seed: int) -> None:
        self.engine, self.sampling, self.seed = engine, sampling, seed
        self.seconds = 0.0
        self._turns: dict[int, int] = {}
        self._in_flight, self._since = 0, 0.0

    async def sample(self, seat: int, prompt: Prompt) -> Completion:
        turn = self._turns[seat] = self._turns.get(seat, -1) + 1
        if not self._in_flight:
            self._since = time.perf_counter()
        self._in_flight += 1
        try:
            # The place among the seats of all processes: prompts of two processes may be equal.
            place = seat * self.engine.world.size + self.engine.world.rank
            (completion,) = await self.engine.sample([prompt], self.sampling, derive_seed(self.seed, turn, place))
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self.seconds += time.perf_counter() - self._since
        return completion

    def queue(self, seat: int, waits: bool) -> None:
        """Nobody waits for anybody."""

    def leave(self, seat: int) -> None:
        self._turns.pop(seat, None)

    async def serve(self) -> None:
        return
