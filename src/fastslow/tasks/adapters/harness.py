"""A harness for rows of your own: a recipe names the rows, the grader, the code that it starts from, and tools."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from fastslow.base.errors import TaskError
from fastslow.base.registry import load_named
from fastslow.base.text import one_line
from fastslow.base.world import in_thread
from fastslow.tasks.adapters.dataset import DatasetOptions, DatasetTask
from fastslow.tasks.base import SYSTEM, Example, Feedback
from fastslow.tasks.data import Row
from fastslow.tasks.harness import SEED_CODE, HarnessTask, Limits, Tool

_USUAL = Limits()


class HarnessOptions(DatasetOptions):
    code: str | None = None
    """A file with the code that the harness starts from; by default one that asks the question once."""
    signature: str = HarnessTask.signature
    """The function that the code defines, with those of the parameters problem, ask and tools that it takes."""
    tools: tuple[str, ...] = ()
    """`module:function` in the current folder, plain or async, for each function that the code may call. They run outside of
    the sandbox, with plain data as arguments."""
    shows: tuple[str, ...] = ()
    """Columns that the code may read beside the question. It never sees the others."""
    prompts: dict[str, str] = Field(default={}, max_length=16)
    """Further prompts that the code can ask under, by name, with the texts that they start from."""
    asks: int = Field(default=_USUAL.asks, ge=1)
    """Answers of the policy for one problem; grading.max_turns limits them too."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of these answers together."""
    calls: int = Field(default=_USUAL.calls, ge=0)
    """Calls of tools for one problem."""
    seconds: float = Field(default=_USUAL.seconds, gt=0)
    """Seconds that the code may work, without those in which it waits for answers and tools."""
    megabytes: int = Field(default=_USUAL.megabytes, ge=64)
    """Memory that the code may use."""
    at_once: int = Field(default=_USUAL.at_once, ge=1)
    """Harnesses in play at the same time."""

    @model_validator(mode="after")
    def _fits(self) -> HarnessOptions:
        if self.system is not None:
            raise ValueError("system belongs to the task dataset; the code writes its own messages under seed_text")
        if self.answer in self.shows:
            raise ValueError(
                f"shows={list(self.shows)} would give the code the answer column '{self.answer}'; remove it"
            )
        return self


class HarnessRows(HarnessTask, DatasetTask):
    """Rows and a grader of your own, answered by a program that evolves together with its prompts and the weights."""

    Options = HarnessOptions
    options: HarnessOptions

    def __init__(self, options: HarnessOptions) -> None:
        DatasetTask.__init__(self, options)
        self.grades_apart = True
        self.signature, self.seed_code = options.signature, _code(options.code)
        assert self.called
        self.prompts = {SYSTEM: options.seed_text, **options.prompts}
        self.limits = Limits(
            options.asks, options.tokens, options.calls, options.seconds, options.megabytes, options.at_once
        )
        self._tools = dict(map(_tool, options.tools))

    def problem(self, example: Example) -> dict[str, Any]:
        shown = {name: example.data[name] for name in self.options.shows}
        return {**shown, "question": self.messages(example)[-1]["content"]}

    def tools(self, example: Example) -> Mapping[str, Tool]:
        return self._tools

    def grade(self, example: Example, answer: str) -> Feedback | Awaitable[Feedback]:
        if not self.options.grader_threads:
            return DatasetTask.grade(self, example, answer)

        async def graded() -> Feedback:
            feedback: Any = await in_thread(DatasetTask.grade, self, example, answer)
            return feedback if isinstance(feedback, Feedback) else await feedback

        return graded()

    def _checked(self, source: str, rows: list[Row]) -> list[Row]:
        for name in self.options.shows:
            if missing := next((number for number, row in enumerate(rows, 1) if name not in row), None):
                raise TaskError(f"'{source}' row {missing} has no column '{name}', which shows names; correct shows")
        return super()._checked(source, rows)


def _code(file: str | None) -> str:
    if file is None:
        return SEED_CODE
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"code='{file}' cannot be read: {one_line(error)}; give the path of a Python file") from None


def _tool(name: str) -> tuple[str, Tool]:
    tool = load_named("tool", name)
    known = name.rpartition(":")[2]
    if not inspect.isroutine(tool) or not known.isidentifier():
        raise TaskError(f"tool '{name}' is of type {type(tool).__name__}; expected a function")
    return known, tool
