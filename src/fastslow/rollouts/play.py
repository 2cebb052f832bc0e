"""Playing tasks: all rollouts advance in lockstep, and every pending ask of every rollout goes to the model in one batch."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Protocol

from fastslow.errors import RecipeError
from fastslow.records import Completion, Context, Finished, Rollout, Sampling, Turn
from fastslow.rollouts.chat import ChatFormat
from fastslow.seeds import derive_seed
from fastslow.tasks.base import Answer, Ask, Example, Feedback, Task
from fastslow.world import World

KEEP_IT_SHORT = "Keep the answer short: it is cut off after {} tokens, and only what stands before that counts."
"""Said of an answer that was cut off, where it is not right all the same: graders see its text and not its end."""


class Sampler(Protocol):
    """Draws from the policy as it is now. Called by all processes together, each with its own prompts, equally many."""

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, finished: Finished | None = None
    ) -> list[Completion]:
        """One completion per prompt, in order; `finished` may be told of them before, once of each."""
        ...


@dataclass
class Timing:
    """Seconds spent by a batch of rollouts."""

    sampling: float = 0.0
    grading: float = 0.0
    """What grading adds: where answers are graded while others are still being written, that part is not counted."""

    @property
    def total(self) -> float:
        return self.sampling + self.grading


@dataclass
class _Attempt:
    example: Example
    context: Context
    game: Generator[Ask, str, Feedback] | None = None
    turns: list[Turn] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    ask: Ask | None = None
    question: str = ""
    prompt: list[int] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    """The components that were cut off while they answered."""
    feedback: Feedback | None = None


class Player:
    """Plays (example, context) pairs of a task with the current policy."""

    def __init__(self, task: Task, sampler: Sampler, chat: ChatFormat, max_length: int | None, world: World) -> None:
        self.task, self.sampler, self.chat, self.max_length, self.world = task, sampler, chat, max_length, world
        self.graders = ThreadPoolExecutor(os.cpu_count(), "grading") if task.grades_apart else None

    def play(
        self, pairs: Sequence[tuple[Example, Context]], sampling: Sampling, *, policy_step: int, seed: int
    ) -> tuple[list[Rollout], Timing]:
        """One rollout per pair, in order, the same on every process; each process plays its share."""
        timing = Timing()
        rank, size = self.world.rank, self.world.size
        attempts = [_Attempt(example, context) for example, context in pairs[rank::size]]
        started = time.perf_counter()
        for attempt in attempts:
            self._advance(attempt, None, sampling)
        timing.grading += time.perf_counter() - started
        turn = 0
        while longest := self.world.largest(sum(attempt.ask is not None for attempt in attempts)):
            pending = [attempt for attempt in attempts if attempt.ask is not None]
            prompts = [attempt.prompt for attempt in pending]
            # Sampling may be collective: a process with less to ask joins in with fillers.
            filled = prompts + [self._filler()] * (longest - len(prompts))
            started = time.perf_counter()
            graded: dict[int, Future[None]] = {}
            if self.graders is None:
                completions = self.sampler.sample(filled, sampling, derive_seed(seed, turn, rank))
            else:
                grade = self._in_thread(pending, graded, sampling)
                completions = self.sampler.sample(filled, sampling, derive_seed(seed, turn, rank), grade)
            timing.sampling += time.perf_counter() - started
            started = time.perf_counter()
            for number, (attempt, completion) in enumerate(zip(pending, completions[: len(pending)], strict=True)):
                if self.graders is None:
                    self._take(attempt, completion, sampling)
                elif number not in graded:
                    grade(number, completion)
            for future in graded.values():
                future.result()
            timing.grading += time.perf_counter() - started
            turn += 1
        mine = [self._finish(attempt, policy_step) for attempt in attempts]
        shares = self.world.gather(mine)
        return [shares[index % size][index // size] for index in range(len(pairs))], timing

    def _in_thread(self, pending: Sequence[_Attempt], graded: dict[int, Future[None]], sampling: Sampling) -> Finished:
        """Hands answers to the graders' threads; fillers have no attempt."""

        def grade(number: int, completion: Completion) -> None:
            if number < len(pending) and self.graders is not None:
                graded[number] = self.graders.submit(self._take, pending[number], completion, sampling)

        return grade

    def _take(self, attempt: _Attempt, completion: Completion, sampling: Sampling) -> None:
        """Note an answer and go on with it."""
        answer = self.chat.answer(completion.ids)
        assert attempt.ask is not None
        turn = Turn(attempt.ask.component, attempt.question, tuple(attempt.prompt), completion, answer)
        attempt.turns.append(turn)
        if len(completion.ids) >= sampling.max_tokens and not self.chat.has_ended(completion.ids):
            attempt.cut.add(turn.component)
            attempt.faults["cut_off"] = attempt.faults.get("cut_off", 0) + 1
        self._advance(attempt, Answer(answer, completion.ids), sampling)

    def _advance(self, attempt: _Attempt, answer: str | None, sampling: Sampling) -> None:
        """Send the answer to the task; it asks again or grades. What goes wrong inside a task costs that rollout only."""
        attempt.ask = None
        try:
            if answer is None or attempt.game is None:
                attempt.game = self.task.play_under(attempt.example, attempt.context.texts)
                ask = next(attempt.game)
            else:
                ask = attempt.game.send(answer)
            attempt.question = ask.question
            prompt = self.chat.prompt(ask.messages, ask.context(attempt.context.texts))
        except StopIteration as stop:
            attempt.feedback = _told_of_cuts(self._checked(stop.value, attempt), attempt.cut, sampling.max_tokens)
            return
        except RecipeError:  # what is wrong is the run's settings, and every score would be
            raise
        except Exception as error:
            attempt.faults["grader"] = attempt.faults.get("grader", 0) + 1
            attempt.feedback = Feedback(0.0, f"The grader failed: {type(error).__name__}: {error}")
            return
        if self.max_length is not None and len(prompt) + sampling.max_tokens > self.max_length:
            attempt.faults["prompt_too_long"] = attempt.faults.get("prompt_too_long", 0) + 1
            attempt.feedback = Feedback(
                0.0,
                f"The prompt has {len(prompt)} tokens; with {sampling.max_tokens} for the answer it does not fit the "
                f"model's {self.max_length}. The instructions must be shorter.",
            )
            return
        attempt.ask, attempt.prompt = ask, prompt

    def _checked(self, feedback: object, attempt: _Attempt) -> Feedback:
        if isinstance(feedback, Feedback) and _is_share(feedback.score) and _is_share(feedback.progress):
            return replace(feedback, score=float(feedback.score), progress=float(feedback.progress))
        attempt.faults["grader"] = attempt.faults.get("grader", 0) + 1
        return Feedback(
            0.0, f"The grader failed: it returned {feedback!r}, expected Feedback with a score and progress in [0, 1]."
        )

    def _finish(self, attempt: _Attempt, policy_step: int) -> Rollout:
        assert attempt.feedback is not None
        return Rollout(
            attempt.example, attempt.context, policy_step, tuple(attempt.turns), attempt.feedback, attempt.faults
        )

    def _filler(self) -> list[int]:
        return self.chat.prompt([{"role": "user", "content": "-"}], "")


def _is_share(number: object) -> bool:
    return isinstance(number, Real) and 0 <= float(number) <= 1


def _told_of_cuts(feedback: Feedback, cut: Collection[str], limit: int) -> Feedback:
    if not cut or feedback.score >= 1:
        return feedback
    advice = KEEP_IT_SHORT.format(limit)
    own = {
        name: f"{words}\n{advice}".strip() if name in cut else words for name, words in feedback.by_component.items()
    }
    return replace(feedback, text=f"{feedback.text}\n{advice}".strip(), by_component=own)
