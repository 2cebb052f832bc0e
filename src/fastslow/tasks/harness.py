"""Tasks whose program around the model evolves with its prompts and its weights.

The program, the harness, is a Python function that runs isolated (docs/sandbox.md). It is given a problem as plain data, asks
the policy, calls the task's tools and returns an answer, which the task grades out of its sight. Every ask is a turn that the
weights are trained on.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from fastslow.base.errors import FastSlowError, RecipeError, TaskError
from fastslow.base.text import one_line, quoted
from fastslow.base.world import wait_for
from fastslow.sandbox.harness import Ended, Job, Refused, described, plain, run_harness
from fastslow.sandbox.process import queued, unwatched
from fastslow.sandbox.signature import Signature, read_signature
from fastslow.tasks.base import SYSTEM, Answer, Ask, Asking, Component, Example, Feedback, Message, Options, Task

HARNESS = "harness"
"""The component that holds the code."""
GIVEN = ("problem", "ask", "tools")
"""What an entry point may have parameters for."""
SEED_CODE = """\
def solve(problem, ask, tools):
    return ask(problem["question"])
"""
CRASHED, LIMITED = "harness_crashed", "harness_limited"
FAULTS = {
    "error": CRASHED,
    "crash": CRASHED,
    "time": "harness_hung",
    "memory": "harness_memory",
    "output": "harness_output",
}
"""How a failure of the code is counted, by the reason for its end."""
SHOWN, LONGEST = 24, 300
"""Calls that a trace shows, the first half and the last, and characters of each of their parts."""
Tool = Callable[..., Any]
_PLACES: WeakKeyDictionary[HarnessTask, asyncio.Semaphore] = WeakKeyDictionary()
"""What limits the harnesses in play; not kept by the task, whose identity is a hash of all that it holds."""


@dataclass(frozen=True)
class Limits:
    """What one run of a harness may use."""

    asks: int = 8
    """Answers of the policy; grading.max_turns limits them too."""
    tokens: int | None = None
    """Tokens of these answers together."""
    calls: int = 32
    """Calls of tools."""
    seconds: float = 5
    """Of work, without the time in which it waits for answers and tools."""
    megabytes: int = 256
    at_once: int = 256
    """Harnesses that are in play at the same time."""


class HarnessTask(Task):
    """A task with a harness. Subclasses have `examples`, `problem`, `grade` and, if the code may use any, `tools`."""

    grades_apart = True  # a harness that has its answer works on while others are sampled
    seed_text = "Answer the question."
    prompts: Mapping[str, str] = {}
    """The prompts that the code can ask under, by name, with the texts they start from; without any, there is `system`."""
    seed_code: str = SEED_CODE
    """The code that the harness starts from."""
    signature: str = "solve(problem, ask, tools)"
    """The function that is called: a name, and those of `problem`, `ask` and `tools` that it takes."""
    limits: Limits = Limits()
    smoke_answers: ClassVar[Sequence[str]] = ("1", "")
    """Answers with which proposed code is tried once each, in place of the policy's."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options or Options())

    @abstractmethod
    def problem(self, example: Example) -> Any:
        """What the code may know of a problem: plain data without the answer."""

    @abstractmethod
    def grade(self, example: Example, answer: str) -> Feedback | Awaitable[Feedback]:
        """Score what the code returned (as JSON, if it is no text) and say what is wrong with it. May be `async def`."""

    def tools(self, example: Example) -> Mapping[str, Tool]:
        """What the code may call, by name: functions, plain or async, of plain data, which run in this process. What one
        raises is raised in the code as a ValueError with the same words."""
        return {}

    @property
    def components(self) -> Sequence[Component]:
        prompts = self.prompts or {SYSTEM: self.seed_text}
        about, check = self._about(list(prompts)), self.smoke
        code = Component(HARNESS, "code", self.seed_code, signature=self.signature, about=about, check=check)
        return [*(Component(name, seed=text) for name, text in prompts.items()), code]

    @property
    def called(self) -> Signature:
        """The signature, if code can be called by it."""
        signature = read_signature(self.signature)
        if unknown := sorted(set(signature.parameters) - set(GIVEN)):
            raise TaskError(f"the signature {self.signature} has {unknown}; code can be given {', '.join(GIVEN)}")
        return signature

    def shown(self, example: Example) -> object:
        return self.problem(example)

    def smoke(self, code: str) -> str | None:
        """Try code on the first training problem with made-up answers; what is wrong with it, None if nothing is. Using up
        its asks is no fault: the answers are not worth more."""
        example = self.examples("train")[0]
        for made_up in self.smoke_answers:

            async def ask(asked: Ask, made_up: str = made_up) -> str:
                return made_up

            run = _Run(self, example, {HARNESS: code}, ask)
            ended = wait_for(run.play())
            if ended.reason and run.fault(ended) != LIMITED:
                return (
                    f"the code failed when it was tried on a problem, with the answer {made_up!r} to whatever it "
                    f"asked: {ended.words}"
                )
        return None

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        run = _Run(self, example, texts, ask)
        with queued():
            await self._free.acquire()
        try:
            with unwatched():  # it has a clock of its own
                ended = await run.play()
        finally:
            self._free.release()
        prompts = dict.fromkeys(set(texts) - {HARNESS}, "")
        if ended.reason:
            words = f"The code failed: {ended.words}"
            own = {**prompts, HARNESS: f"{words}\n{run.trace(ended)}"}
            return Feedback(0.0, words, own, faults={run.fault(ended): 1})
        graded = self.grade(example, ended.returned)
        feedback = graded if isinstance(graded, Feedback) else await graded
        if not isinstance(feedback, Feedback):
            return feedback  # whoever plays says what is wrong with it
        said = feedback.by_component.get(HARNESS, feedback.text)
        return replace(feedback, by_component={**feedback.by_component, HARNESS: f"{said}\n{run.trace(ended)}"})

    @property
    def _free(self) -> asyncio.Semaphore:
        return _PLACES.setdefault(self, asyncio.Semaphore(self.limits.at_once))

    def _about(self, prompts: Sequence[str]) -> str:
        examples = self.examples("train")
        tools = self.tools(examples[0]) if len(examples) else {}
        purposes = {name: one_line(inspect.getdoc(tool) or "no description") for name, tool in tools.items()}
        listed = "".join(f"\n- tools.{name}{_signature(tool)}: {purposes[name]}" for name, tool in tools.items())
        limits = self.limits
        tokens = f", {limits.tokens} tokens of them in all" if limits.tokens else ""
        called = "\nTools, which raise a ValueError where they fail:" if tools else "\nThere are no tools."
        problem = quoted(self.problem(examples[0]), 400) if len(examples) else ""
        return f"""\
`problem` is plain data, such as {problem}.
`ask(text_or_messages, component={prompts[0]!r}, max_tokens=None, stop=())` returns the model's answer as text. The component,
one of {", ".join(prompts)}, names the instructions that go in front of the messages by themselves. One problem may take at
most {limits.asks} answers{tokens}; what asks for more gets a RuntimeError.{called}{listed}
The function returns the final answer. It has {limits.seconds:g} seconds and {limits.megabytes} MB, Python's standard library,
and no files, network, threads or other processes."""


def _signature(tool: Tool) -> str:
    try:
        return str(inspect.signature(tool))
    except (TypeError, ValueError):
        return "(…)"


@dataclass
class _Run:
    """One run of a harness: what it asks for, and what it may."""

    task: HarnessTask
    example: Example
    texts: Mapping[str, str]
    sample: Asking
    asks: int = 0
    calls: int = 0
    tokens: int = 0
    limited: bool = False
    """It was refused an answer that it had no right to."""
    steps: list[str] = field(default_factory=list)

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        return self.task.tools(self.example)

    async def play(self) -> Ended:
        signature, limits = self.task.called, self.task.limits
        code = self.texts[HARNESS]
        job = Job(
            code,
            signature.entry,
            signature.parameters,
            self.task.problem(self.example),
            tools=list(self.tools),
            seed=f"{self.example.id}\n{code}",
            seconds=limits.seconds,
            megabytes=limits.megabytes,
        )
        return await run_harness(job, self._answer)

    def fault(self, ended: Ended) -> str:
        return LIMITED if self.limited and ended.reason == "error" else FAULTS[ended.reason]

    def trace(self, ended: Ended) -> str:
        """What the code did, for whoever revises it."""
        steps = self.steps
        if len(steps) > SHOWN:
            steps = [*steps[: SHOWN // 2], f"… {len(steps) - SHOWN} more …", *steps[-SHOWN // 2 :]]
        lines = [f"Problem: {quoted(self.task.problem(self.example), LONGEST)}", "What the code did:", *steps]
        if not steps:
            lines.append("it asked for nothing and called no tool")
        if ended.prints.strip():
            lines.append(f"It printed: {one_line(ended.prints, LONGEST)}")
        if not ended.reason:
            lines.append(f"It returned: {quoted(ended.returned, LONGEST)}")
        lines.append(f"In all: {self.asks} answers with {self.tokens} tokens, {self.calls} calls of tools.")
        return "\n".join(lines)

    async def _answer(self, request: dict[str, Any]) -> Any:
        named = f"{len(self.steps) + 1}. "
        try:
            if "ask" in request:
                said = f"ask: {_shown(request['ask']['messages'])}"
                value: Any = await self._ask(**request["ask"])
            else:
                said = f"tools.{request['tool']}({described(request['arguments'], request['named'])})"
                value = await self._call(request["tool"], request["arguments"], request["named"])
        except Refused as refusal:
            self.steps.append(f"{named}{one_line(said, LONGEST)} → refused: {one_line(refusal, LONGEST)}")
            raise
        self.steps.append(f"{named}{one_line(said, LONGEST)} → {quoted(value, LONGEST)}")
        return value

    async def _ask(self, messages: Any, component: Any, max_tokens: Any, stop: Any) -> str:
        limits, prompts = self.task.limits, [name for name in self.task.seed_texts if name != HARNESS]
        component = prompts[0] if component is None else component
        if component not in prompts:
            raise Refused(
                f"there is no component {one_line(component, 60)!r} to ask; expected one of {', '.join(prompts)}"
            )
        if max_tokens is not None and not (type(max_tokens) is int and max_tokens > 0):
            raise Refused(f"max_tokens={one_line(max_tokens, 60)}: expected a number of tokens from 1")
        if not (isinstance(stop, list) and len(stop) <= 16 and all(isinstance(each, str) and each for each in stop)):
            raise Refused("stop: expected at most 16 texts that end the answer")
        wanted = read_messages(messages)
        if self.asks >= limits.asks:
            self.limited = True
            raise Refused(f"no more than {limits.asks} answers are given for one problem")
        left = None if limits.tokens is None else limits.tokens - self.tokens
        if left is not None and left <= 0:
            self.limited = True
            raise Refused(f"no more than {limits.tokens} tokens are given for one problem")
        self.asks += 1
        limit = min((each for each in (max_tokens, left) if each is not None), default=None)
        try:
            answer = await self.sample(Ask(component, wanted, limit=limit, stop=tuple(stop)))
        except RecipeError:
            raise
        except TaskError as error:
            self.limited = True
            raise Refused(str(error)) from None
        self.tokens += len(answer.ids) if isinstance(answer, Answer) else 0
        return str(answer)

    async def _call(self, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        tool = self.tools.get(name)
        if tool is None:
            raise Refused(f"there is no tool {one_line(name, 60)!r}; expected one of {', '.join(self.tools) or 'none'}")
        if self.calls >= self.task.limits.calls:
            self.limited = True
            raise Refused(f"no more than {self.task.limits.calls} calls of tools are made for one problem")
        self.calls += 1
        call = partial(tool, *arguments, **named)
        try:
            value = call()
            return plain(await value if inspect.isawaitable(value) else value)
        except (FastSlowError, Refused):
            raise
        except Exception as error:  # of a tool, which can raise anything
            raise Refused(f"{type(error).__name__}: {one_line(error)}") from None


def read_messages(given: Any) -> list[Message]:
    """What chat templates accept: a system message first, if any, then user and assistant in turns, the user last."""
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list) or not messages:
        raise Refused("messages: expected a text, or a list of {'role': …, 'content': …}")
    for each in messages:
        if not isinstance(each, dict) or set(each) != {"role", "content"} or not isinstance(each["content"], str):
            raise Refused("messages: expected a text, or a list of {'role': …, 'content': …} with texts")
        if any(0xD800 <= ord(letter) <= 0xDFFF for letter in each["content"]):
            raise Refused("messages: a text holds half of a character (a lone surrogate)")
    roles = [each["role"] for each in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    if not turns or turns != ["user", "assistant"] * (len(turns) // 2) + ["user"]:
        raise Refused(
            "messages: expected one system message at most, first, then user and assistant in turns, user last"
        )
    return messages


def _shown(messages: Any) -> str:
    """The last message, which is what is asked."""
    last = messages[-1] if isinstance(messages, list) and messages else messages
    return repr(last.get("content") if isinstance(last, dict) else last)
