"""A rollout of an agent: what it asks is answered by the policy, within limits, whatever way it asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.text import one_line, redacted
from fastslow.gateway.rendering import rendering_of
from fastslow.gateway.session import LIMIT, Place, Refused, Session, Wanted
from fastslow.models.chat import ChatFormat, speaking
from fastslow.models.tool_text import loaded, read_calls
from fastslow.sandbox.process import queued, unwatched
from fastslow.tasks.base import SYSTEM, Answer, Ask, Asking, Example, Feedback, Options, Task

CRASHED, HUNG, LEAKED = "agent_crashed", "agent_hung", "agent_leaked"
"""Faults: it failed; it took longer than it may; it left processes behind."""
GRACE = 5.0
"""Seconds that an agent has to clean up when it is cancelled."""


Call = Callable[[str, Any], Awaitable[str]]
"""Calls a tool by its name with the arguments that the policy wrote, and returns what it is shown."""


async def use_tools(
    session: Session,
    messages: list[dict[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    call: Call,
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Let the policy use tools until it answers without calling one, may have no more answers, or what they act on has
    ended. Its answers, and what the tools returned, are added to the messages."""
    while not ended():
        try:
            (said,) = await session.answers(Wanted(next(iter(session.texts)), messages, list(tools)))
        except Refused as error:
            if error.code in ("limit_exceeded", "context_length_exceeded"):
                return
            raise
        messages.append(said.message)
        if not said.calls:
            return
        for key, made in said.calls:
            result = await call(made.name, loaded(made.arguments))
            messages.append({"role": "tool", "tool_call_id": key, "name": made.name, "content": result})


class AgentLimits(Options):
    components: dict[str, str | None] = Field(default={SYSTEM: None}, min_length=1)
    """The texts that evolve, by the name of their component: the model `policy/NAME` reads the text of NAME. Where there is
    one, it is the text of every model. A text that is not given is taken from the system message that the agent sends."""
    place: Literal["before", "instead"] = "before"
    """Where a text goes that is given: before the agent's system message, or in its place. If {{fastslow}} stands in that
    message, the text goes there. A text that is taken from the agent stands in the place of what it was."""
    seconds: float = Field(default=600, gt=0)
    """Seconds that the agent may work, without the time in which it waits for the policy."""
    turns: int = Field(default=50, ge=1)
    """Answers that the policy gives in one rollout; grading.max_turns limits them too."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens after which the policy gives no more answers in a rollout."""
    mask: list[Literal["truncated", "format"]] = Field(default=[])
    """Answers that are not trained: those that are `truncated`, and those with a tool call that cannot be read (`format`).
    They are counted as `masked_truncated` and `masked_format`."""
    at_once: int = Field(default=64, ge=1)
    """Agents that work at the same time."""


class AgentRollouts(Task):
    """A task whose rollouts are those of an agent."""

    options: AgentLimits
    grades_apart = True  # an agent that has its answer works on while others are sampled

    @property
    def seed_texts(self) -> Mapping[str, str]:
        return {
            name: (self.own.get(name) or self.seed_text) if text is None else text
            for name, text in self.options.components.items()
        }

    @property
    def own(self) -> Mapping[str, str]:
        """The system messages that the agent sends by itself, by component, where those are the texts that evolve."""
        return {}

    async def attempt(self, example: Example, session: Session, clock: Clock) -> Any:
        """Run the agent, which asks the session: what it returned, or feedback."""
        raise NotImplementedError

    async def grade(self, example: Example, returned: Any) -> Feedback:
        raise NotImplementedError

    @property
    def places(self) -> dict[str, Place]:
        return dict.fromkeys(self.options.components, self.options.place)

    @cached_property
    def _free(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.options.at_once)

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        """One attempt of the agent. Without a policy there is nobody to ask, and it is not started."""
        chat = speaking.get()
        if chat is None:
            return Feedback(0.0)
        clock, masked = Clock(), list[str]()

        async def sample(asked: Ask, wanted: Wanted) -> Answer:
            with clock.stopped():
                answer = await ask(asked)
            answer = answer if isinstance(answer, Answer) else Answer(answer)
            session.answered += 1
            masked.append(self._mask(chat, asked, wanted, answer))
            return answer

        session = Session(
            rendering_of(chat),
            texts,
            sample,
            chat.has_ended,
            self.places,
            self.own,
            most_turns=self.options.turns,
            most_tokens=self.options.tokens,
        )
        with queued():
            await self._free.acquire()
        try:
            with unwatched():  # the agent has a clock of its own
                outcome = await self.attempt(example, session, clock)
        finally:
            self._free.release()
        feedback = outcome if isinstance(outcome, Feedback) else await self.grade(example, outcome)
        faults = {
            **+session.faults,
            **feedback.faults,
            **{f"masked_{why}": masked.count(why) for why in sorted({*masked} - {""})},
        }
        return replace(feedback, faults=faults, masked=masked if any(masked) else feedback.masked)

    def _mask(self, chat: ChatFormat, asked: Ask, wanted: Wanted, answer: Answer) -> str:
        """Why an answer is not to be trained; empty if it is."""
        stopped = any(stop in answer for stop in asked.stop)
        if "truncated" in self.options.mask and not stopped and not chat.has_ended(answer.ids):
            return "truncated"
        return "format" if "format" in self.options.mask and wanted.tools and read_calls(answer)[2] else ""

    async def timed(self, work: Coroutine[Any, Any, Any], session: Session, clock: Clock, seconds: float) -> Any:
        """What the agent returned; feedback where it failed, or worked for more seconds than it may."""

        async def whole() -> Any:
            try:
                return await work
            except SystemExit as error:  # a task that raised it would end the loop
                raise TaskError(f"SystemExit: {error}") from error

        running = asyncio.ensure_future(whole())
        try:
            while not running.done() and (left := seconds - clock.worked) > 0:
                await asyncio.wait({running}, timeout=max(left, 0.05))
            if not running.done():
                return self._failed(session, HUNG, f"the agent worked for more than {seconds:g} seconds")
            return running.result()
        except (RecipeError, asyncio.CancelledError):
            raise
        except BaseException as error:  # somebody else's code, which can raise anything
            return self._failed(session, CRASHED, described(error), error)
        finally:
            running.cancel()
            await asyncio.wait({running}, timeout=GRACE)
            if running.done() and not running.cancelled():
                running.exception()  # seen: it is not reported

    def _failed(self, session: Session, fault: str, error: str, cause: BaseException | None = None) -> Feedback:
        """The policy may have led the agent astray, which the attempt is scored for; not if it was never asked."""
        if not session.turns:
            raise TaskError(f"the agent failed before it asked the policy: {error}") from cause
        words = "The agent took too long." if fault == HUNG else "The agent failed before it had a result."
        if LIMIT in session.faults:
            words = "The agent had no result when it had used all the answers it may have."
        return Feedback(0.0, words, faults={fault: 1}, error=error)


def described(error: BaseException) -> str:
    """An error of somebody else's code, without credentials; redacted before it is cut, which could leave a part of one."""
    return f"{type(error).__name__}: {one_line(redacted(one_line(error, 10_000)))}"


class Clock:
    """The time in which an agent works: that in which no answer of the policy is outstanding."""

    def __init__(self) -> None:
        self._worked, self._since, self._waits = 0.0, time.monotonic(), 0

    @property
    def worked(self) -> float:
        return self._worked + (0.0 if self._waits else time.monotonic() - self._since)

    def stopped(self) -> Any:
        return self

    def __enter__(self) -> None:
        self._worked = self.worked
        self._waits += 1

    def __exit__(self, *_: object) -> None:
        self._waits -= 1
        self._since = time.monotonic()
