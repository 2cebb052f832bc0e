"""How rollouts get their completions: batched over all waiting rollouts, or one request at a time.

A rollout has a seat. It calls `sample` any number of times, also concurrently, and `leave` when it is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from fastslow.base.seeds import derive_seed
from fastslow.engine.base import Engine
from fastslow.records import Completion, Sampling

Prompt = Sequence[int]


class Seats(Protocol):
    """Where rollouts wait for their completions."""

    seconds: float
    """Seconds during which completions were being sampled."""

    async def sample(self, seat: int, prompt: Prompt) -> Completion: ...

    def leave(self, seat: int) -> None:
        """Parts of the rollout may still be running; what they ask for is not sampled."""
        ...

    async def serve(self) -> None:
        """Runs concurrently with the rollouts until all have left."""
        ...


class Rounds:
    """One engine call whenever every rollout waits or has left, with the prompts in the order of their seats.

    All processes make every round together; those with fewer prompts pad with `filler`. With `early` a rollout gets its
    completion as soon as it is finished, otherwise all rollouts of a round get theirs together, in order.
    """

    def __init__(
        self, engine: Engine, seats: int, sampling: Sampling, seed: int, filler: Prompt, *, early: bool = False
    ) -> None:
        self.engine, self.sampling, self.seed, self.filler, self.early = engine, sampling, seed, filler, early
        self.seconds = 0.0
        self._present = set(range(seats))
        self._waiting: list[tuple[int, Prompt, asyncio.Future[Completion]]] = []
        self._changed = asyncio.Event()

    async def sample(self, seat: int, prompt: Prompt) -> Completion:
        if seat not in self._present:  # what outlives its rollout, or goes on although it is cancelled
            raise asyncio.CancelledError
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((seat, prompt, answer))
        self._changed.set()
        return await answer

    def leave(self, seat: int) -> None:
        self._present.discard(seat)
        self._changed.set()

    async def serve(self) -> None:
        world, turn = self.engine.world, 0
        try:
            while True:
                while {seat for seat, _, _ in self._pending()} != self._present:
                    self._changed.clear()
                    await self._changed.wait()
                longest = world.largest(len(self._pending()))
                if not longest:
                    return
                await self._round(longest, derive_seed(self.seed, turn, world.rank))
                turn += 1
        finally:
            self._present = set()
            for _, _, answer in self._waiting:
                answer.cancel()

    def _pending(self) -> list[tuple[int, Prompt, asyncio.Future[Completion]]]:
        """The open requests; a rollout may have cancelled some of its own, or have ended without them."""
        return [item for item in self._waiting if item[0] in self._present and not item[2].cancelled()]

    async def _round(self, longest: int, seed: int) -> None:
        pending = sorted(self._pending(), key=lambda item: item[0])
        self._waiting = []
        answers = [answer for _, _, answer in pending]
        prompts = [*(prompt for _, prompt, _ in pending), *[self.filler] * (longest - len(pending))]
        loop = asyncio.get_running_loop()

        def ready(number: int, completion: Completion) -> None:
            loop.call_soon_threadsafe(deliver, number, completion)

        def deliver(number: int, completion: Completion) -> None:
            if number < len(answers) and not answers[number].done():
                answers[number].set_result(completion)

        started = time.perf_counter()
        completions = await self.engine.sample(prompts, self.sampling, seed, ready if self.early else None)
        self.seconds += time.perf_counter() - started
        for number, completion in enumerate(completions):
            deliver(number, completion)


class InFlight:
    """Sends every prompt to the engine immediately, as a separate request seeded by its seat and turn."""

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

    def leave(self, seat: int) -> None:
        self._turns.pop(seat, None)

    async def serve(self) -> None:
        return
