"""Reflection by a language model: it is shown how the attempts went and answers with revised instructions."""

from __future__ import annotations

import time

from fastslow.fast.reflection.answer import Unusable, read_edit
from fastslow.fast.reflection.base import ReflectionFailed, Request, Usage
from fastslow.fast.reflection.chat import Chat, ChatFailed, Reply
from fastslow.fast.reflection.prompt import write_complaint, write_prompt


class LanguageModelReflector:
    """Asks a model for an edit. What it may not do is checked, told to it once, and then given up on."""

    def __init__(self, chat: Chat, longest_part: int = 4000) -> None:
        self.chat = chat
        self.longest_part = longest_part
        self.usage = Usage()

    def __call__(self, request: Request) -> str:
        started = time.perf_counter()
        try:
            return self._edit(request)
        except ReflectionFailed:
            self.usage.failures += 1
            raise
        finally:
            self.usage.seconds += time.perf_counter() - started

    def _edit(self, request: Request) -> str:
        # One user message and no system message: some chat templates refuse a system role.
        messages = [{"role": "user", "content": write_prompt(request, self.longest_part)}]
        reply = self._ask(messages, request.seed)
        try:
            return read_edit(reply.text, reply.cut, request)
        except Unusable as problem:
            messages.append({"role": "assistant", "content": reply.text.strip() or "(empty answer)"})
            messages.append({"role": "user", "content": write_complaint(str(problem), request)})
        reply = self._ask(messages, request.seed + 1)
        try:
            return read_edit(reply.text, reply.cut, request)
        except Unusable as problem:
            raise ReflectionFailed(f"the reflection model was asked twice and {problem}") from None

    def _ask(self, messages: list[dict[str, str]], seed: int) -> Reply:
        try:
            reply = self.chat(list(messages), seed)
        except ChatFailed as error:
            self.usage.calls += error.asked
            self.usage.retries += error.retries
            raise ReflectionFailed(str(error), permanent=error.permanent) from error
        self.usage.calls += 1
        self.usage.retries += reply.retries
        self.usage.prompt_tokens += reply.prompt_tokens
        self.usage.completion_tokens += reply.completion_tokens
        self.usage.cost += reply.cost
        return reply
