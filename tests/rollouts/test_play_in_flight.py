"""Playing rollouts on an engine that takes requests one by one: all of them are in flight."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any

import pytest
from rollout_helpers import PlanAndDo, ScriptedEngine, contexts, play, problems

from fastslow.records import Completion, Ready, Sampling
from fastslow.rollouts import rounds
from fastslow.rollouts.rounds import InFlight
from fastslow.tasks.base import Ask, Example, Feedback


class Server(ScriptedEngine):
    """Answers every request by itself, after a while, and knows how many it had at once."""

    in_flight: bool = True
    flying: int = 0
    most: int = 0

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, *, ready: Ready | None = None, **_: Any
    ) -> list[Completion]:
        assert len(prompts) == 1
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0.001)
        self.flying -= 1
        return await super().sample(prompts, sampling, seed)


def test_an_engine_with_a_server_behind_it_has_all_rollouts_in_flight() -> None:
    engine = Server(in_flight=True)
    pairs = [(example, contexts(1)[0]) for example in problems([1, 3, 2] * 100)]
    gathered = play(PlanAndDo(), ScriptedEngine(), pairs)
    assert play(PlanAndDo(), engine, pairs) == gathered  # who waits for whom changes nothing
    assert engine.most == 300
    seeds = [seed for _, _, seed in engine.calls]
    assert len(set(seeds)) == len(seeds) == 600


def test_sampling_takes_the_seconds_in_which_something_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests that overlap, then one: the time between counts for nobody."""
    clock = iter([10.0, 14.0, 20.0, 21.0])
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: next(clock))
    flying = InFlight(Server(in_flight=True), Sampling(max_tokens=4), 0)

    async def sample() -> None:
        await asyncio.gather(*(flying.sample(seat, (1, 2)) for seat in range(2)))
        assert flying.seconds == 4.0
        await flying.sample(0, (1, 2))

    asyncio.run(sample())
    assert flying.seconds == 5.0


@pytest.mark.parametrize("how", ["thread", "await"])
def test_a_grader_that_blocks_does_not_hold_the_others(how: str) -> None:
    """The first rollout's grader waits until all the others have been graded, which need a second turn for it."""
    left = threading.Semaphore(0)

    class Blocking(PlanAndDo):
        grades_apart = how == "thread"

        def play(self, example: Example) -> Generator[Ask, str, Any]:
            yield Ask("plan", [{"role": "user", "content": "red"}])
            if example.data["index"] == 0:
                if how == "thread":
                    assert all(left.acquire(timeout=60) for _ in range(5))
                    return Feedback(1.0)
                return self.patient()
            yield Ask("do", [{"role": "user", "content": "red"}])
            left.release()
            return Feedback(0.5)

        async def patient(self) -> Feedback:
            deadline = time.monotonic() + 60
            while not all(left.acquire(blocking=False) for _ in range(5)) and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
            return Feedback(1.0)

    rollouts = play(Blocking(), Server(in_flight=True), [(example, contexts(1)[0]) for example in problems([2] * 6)])
    assert [rollout.score for rollout in rollouts] == [1.0, *[0.5] * 5]
