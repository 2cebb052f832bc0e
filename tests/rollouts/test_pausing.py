"""Rollouts that are set aside and played on, of tasks of several kinds, against rollouts that are played at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rollout_helpers import PlanAndDo, ScriptedEngine, contexts, player, problems

from fastslow.engine.base import Ready
from fastslow.errors import RecipeError
from fastslow.records import Completion, Enough, Example, Feedback, Part, Rollout, Sampling
from fastslow.rollouts.pausing import Attempt, play_until
from fastslow.tasks.adapters.in_thread import run_in_thread
from fastslow.tasks.base import Ask, Asking

SAMPLING = Sampling(1.0, 1.0, 9)
WORDS = ["red", "green", "blue", "go", "wait", "stop"]


def wordy(prompt: str) -> str:
    """An answer whose length and words depend on the whole prompt."""
    number = sum(map(ord, prompt))
    return " ".join(WORDS[(number + place) % len(WORDS)] for place in range(number % 11))


@dataclass
class Spelling(ScriptedEngine):
    """Writes its answers word by word, and continues those that a prompt ends with."""

    rule: Callable[[str], str] = wordy
    drawn: int = 0
    stops: int = 0

    async def sample_until(
        self,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        sampling: Sampling,
        seed: int,
        enough: Enough,
        ready: Ready | None = None,
    ) -> list[Part]:
        rests = [self._rest(prompt)[:limit] for prompt, limit in zip(prompts, limits, strict=True)]
        left, steps = list(range(len(prompts))), 0
        while left:
            steps, before = steps + 1, left
            left = [row for row in left if len(rests[row]) > steps]
            for row in set(before) - set(left):
                if ready:
                    ready(row, _completion(rests[row]))
                    await asyncio.sleep(0)
            if len(left) < len(before) and enough(left):
                self.stops += bool(left)
                break
        parts = [Part(_completion(rest[:steps]), row not in left) for row, rest in enumerate(rests)]
        self.drawn += sum(len(part.completion.ids) for part in parts)
        return parts

    def _rest(self, prompt: Sequence[int]) -> list[int]:
        """The tokens of the answer that the prompt does not have yet."""
        text = str(self.tokenizer.decode(list(prompt)))
        asked, _, said = text.rpartition("<assistant>")
        return list(self.completion(self.rule(asked)).ids)[len(said.split()) :]

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, ready: Ready | None = None
    ) -> list[Completion]:
        limits = [sampling.max_tokens] * len(prompts)
        return [part.completion for part in await self.sample_until(prompts, limits, sampling, seed, lambda _: False)]


def _completion(ids: Sequence[int]) -> Completion:
    return Completion(tuple(ids), tuple(-float(place) for place in range(len(ids))))


class Together(PlanAndDo):
    """Asks for two answers at the same time, and for a third that depends on both."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        asks = [
            Ask("plan", [{"role": "user", "content": word + " red" * example.data["index"]}]) for word in ("a", "b")
        ]
        said = await asyncio.gather(*map(ask, asks))
        last = await ask(Ask("do", [{"role": "user", "content": " ".join(map(str, said))}]))
        return Feedback(len(set(last.split())) / 10)


class Program(PlanAndDo):
    """Calls the model like a function, in a thread."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        def program(say: Callable[[Ask], str]) -> Feedback:
            first = say(Ask("plan", [{"role": "user", "content": "a" + " red" * example.data["index"]}]))
            return Feedback(len(say(Ask("do", [{"role": "user", "content": first}])).split()) / 10)

        return await run_in_thread(program, ask)


class Apart(PlanAndDo):
    grades_apart = True


TASKS = {"turns": PlanAndDo, "together": Together, "thread": Program, "apart": Apart}


def pairs() -> list[Any]:
    turns, texts = [1, 3, 2, 0, 5, 1, 4, 2, 3, 1], contexts(2)
    return [(example, texts[place % 2]) for place, example in enumerate(problems(turns))]


def untimed(rollout: Rollout) -> Rollout:
    """Without who drew which token."""
    turns = tuple(replace(turn, completion=Completion(turn.completion.ids, ())) for turn in rollout.turns)
    return replace(rollout, policy_step=0, turns=turns)


@pytest.mark.parametrize("at_once", [1, 3, 10])
@pytest.mark.parametrize("task", TASKS)
def test_rollouts_that_were_set_aside_end_like_the_others(task: str, at_once: int) -> None:
    engine, waiting = Spelling(), Spelling()
    expected, _ = player(TASKS[task](), waiting).play(pairs(), SAMPLING, policy_step=0, seed=0)
    attempts = [Attempt(*pair, begun=0) for pair in pairs()]
    steps = 0
    while left := [attempt for attempt in attempts if attempt.rollout is None]:
        needed = min(at_once, len(left))

        def settled(rollouts: Collection[int], left: int = len(left), needed: int = needed) -> bool:
            return left - len(set(rollouts)) >= needed

        play_until(player(TASKS[task](), engine), left, SAMPLING, settled, step=steps, seed=steps)
        assert sum(attempt.rollout is not None for attempt in left) >= needed
        steps += 1
    rollouts = [attempt.rollout for attempt in attempts if attempt.rollout]
    assert list(map(untimed, rollouts)) == list(map(untimed, expected))
    assert any(turn.completion.ids for rollout in rollouts for turn in rollout.turns)
    # No token was drawn twice, and each knows its step.
    assert engine.drawn == sum(rollout.completion_tokens for rollout in rollouts)
    drawn = [turn.completion for rollout in rollouts for turn in rollout.turns]
    assert all(len(each.steps) == len(each.logprobs) == len(each.ids) for each in drawn)
    assert all(list(each.steps) == sorted(each.steps) for each in drawn)
    if at_once < 10:
        assert engine.stops
        assert any(len(set(each.steps)) > 1 for each in drawn)


def test_an_environment_that_changed_is_answered_anew() -> None:
    class Clock(PlanAndDo):
        """Its second question differs from one call to the next."""

        calls = 0

        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            first = yield Ask("plan", [{"role": "user", "content": "red"}])
            Clock.calls += 1
            second = yield Ask("do", [{"role": "user", "content": f"{first} {'wait ' * Clock.calls}"}])
            return Feedback(0.5, f"{first}|{second}")

    engine = Spelling(rule=lambda prompt: "go go" if "wait" not in prompt else "stop " * (3 + prompt.count("wait")))
    held = [Attempt(problems([2])[0], contexts(1)[0], begun=0) for _ in range(2)]
    play_until(player(Clock(), engine), held, SAMPLING, lambda rollouts: len(set(rollouts)) < 2, step=0, seed=0)
    left = [each for each in held if each.rollout is None]
    assert len(left) == 1
    play_until(player(Clock(), engine), left, SAMPLING, lambda rollouts: not rollouts, step=1, seed=1)
    (rollout,) = [each.rollout for each in left if each.rollout]
    first, second = rollout.turns
    assert set(first.completion.steps) == {0}
    assert set(second.completion.steps) == {1}  # another question than the one that was begun
    assert rollout.feedback.text == f"{first.answer}|{second.answer}"


def test_faults_stay_with_their_rollout_and_wrong_settings_stop_all() -> None:
    class Failing(PlanAndDo):
        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            yield Ask("plan", [{"role": "user", "content": "red"}])
            if example.data["index"] == 0:
                raise ValueError("out of order")
            if example.data["index"] == 1:
                raise RecipeError("wrong settings")
            return Feedback(1.0)

    def attempts(*chosen: int) -> list[Attempt]:
        return [Attempt(problems([1] * 3)[index], contexts(1)[0], begun=4) for index in chosen]

    made = attempts(0, 2)
    play_until(player(Failing(), Spelling()), made, SAMPLING, lambda rollouts: not rollouts, step=5, seed=0)
    faulty, right = (attempt.rollout for attempt in made)
    assert faulty is not None
    assert right is not None
    assert "out of order" in faulty.error
    assert (faulty.score, right.score, right.policy_step) == (0.0, 1.0, 4)
    assert set(right.turns[0].completion.steps) == {5}
    with pytest.raises(RecipeError, match="wrong settings"):
        play_until(player(Failing(), Spelling()), attempts(1, 2), SAMPLING, lambda _: False, step=0, seed=0)


def test_an_error_of_the_engine_is_raised_as_it_is() -> None:
    class Broken(Spelling):
        async def sample_until(self, *_: Any, **__: Any) -> list[Part]:
            raise MemoryError("no more")

    made = [Attempt(*pair, begun=0) for pair in pairs()]
    with pytest.raises(MemoryError, match="no more"):
        play_until(player(PlanAndDo(), Broken()), made, SAMPLING, lambda _: False, step=0, seed=0)
