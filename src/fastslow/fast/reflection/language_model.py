"""Reflection by a language model, which reads how the attempts went and answers with revised instructions."""

from __future__ import annotations

from collections.abc import Callable

from fastslow.fast.reflection.answer import Unusable, read_edit, read_text
from fastslow.fast.reflection.base import Chat, ChatFailed, ReflectionFailed, Reply, Request, TextRequest, Usage
from fastslow.fast.reflection.prompt import complain, write_complaint, write_prompt


class LanguageModelReflector:
    """Asks a model for an edit. After an unusable answer it asks once more and says what was wrong; then it fails."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.usage = Usage()

    def __call__(self, request: Request) -> str:
        return self._written(
            write_prompt(request),
            lambda reply: read_edit(reply.text, reply.truncated, request),
            lambda problem: write_complaint(problem, request),
            request.seed,
        )

    def write(self, request: TextRequest, seed: int) -> str:
        return self._written(
            request.prompt,
            lambda reply: read_text(reply.text, reply.truncated, request),
            lambda problem: complain(problem, request),
            seed,
        )

    def _written(self, prompt: str, read: Callable[[Reply], str], protest: Callable[[str], str], seed: int) -> str:
        with self.usage.counting():
            return self._ask_twice(prompt, read, protest, seed)

    def _ask_twice(self, prompt: str, read: Callable[[Reply], str], protest: Callable[[str], str], seed: int) -> str:
        # One user message and no system message: some chat templates refuse a system role.
        messages = [{"role": "user", "content": prompt}]
        reply = self.ask(messages, seed)
        try:
            return read(reply)
        except Unusable as problem:
            messages.append({"role": "assistant", "content": reply.text.strip() or "(empty answer)"})
            messages.append({"role": "user", "content": protest(str(problem))})
        reply = self.ask(messages, seed + 1)
        try:
            return read(reply)
        except Unusable as problem:
            raise ReflectionFailed(f"the reflection model was asked twice and {problem}") from None

    def ask(self, messages: list[dict[str, str]], seed: int) -> Reply:
        """The model's answer to messages, which is counted."""
        try:
            reply = self.chat(list(messages), seed)
        except ChatFailed as error:
            self.usage.add(calls=int(error.asked), retries=error.retries)
            raise ReflectionFailed(str(error), permanent=error.permanent) from error
        self.usage.add(
            calls=1,
            retries=reply.retries,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost=reply.cost,
        )
        return reply
