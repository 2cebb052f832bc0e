"""Reflection by a language model, which reads how the attempts went and answers with a revised text."""

from __future__ import annotations

import difflib
import re

from fastslow.fast.reflection.base import (
    SHORT_TEXT,
    Chat,
    ChatFailed,
    Prompt,
    ReflectionFailed,
    Reply,
    Request,
    TextRequest,
    Usage,
)
from fastslow.fast.reflection.prompt import complain, fence_of, write_prompt

KEPT_SHARE = 0.5
"""Share of the parent's words that a `light` edit keeps, in order, unless the parent is short."""

_FENCE_LINE = re.compile(r"^\s*+(`{3,}+)\s*+([\w+.-]*+)\s*+$")
_FENCE = re.compile(r"`{3,}")
_TAG = re.compile(r"\A[\w+.-]*+\n")


class LanguageModelReflector:
    """Asks a model for an edit. After an unusable answer it asks once more and says what was wrong; then it fails."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.usage = Usage()
        self.collective = getattr(chat, "collective", False)

    def __call__(self, request: Request) -> str:
        return self._written(write_prompt(request), fence_of([request.text]), request, request.seed)

    def write(self, request: TextRequest, seed: int) -> str:
        return self._written(request.prompt, request.fence, request, seed)

    def _written(self, prompt: str, fence: str, request: Request | TextRequest, seed: int) -> str:
        # One user message and no system message: some chat templates refuse a system role.
        messages = [{"role": "user", "content": prompt}]
        with self.usage.counting():
            for attempt in range(2):
                reply = self.ask(messages, seed + attempt)
                try:
                    return read_text(reply.text, reply.truncated, request)
                except Unusable as problem:
                    said = problem
                messages.append({"role": "assistant", "content": reply.text.strip() or "(empty answer)"})
                messages.append({"role": "user", "content": complain(str(said), fence, request.max_tokens)})
            raise ReflectionFailed(f"the reflection model was asked twice and {said}{said.advice}")

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


class Unusable(Exception):
    """An answer without a usable edit; str(error) is the reason, which the model that wrote it reads, and `advice` what
    people can do."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.advice = advice


def read_text(answer: str, truncated: bool, request: Request | TextRequest) -> str:
    """The text of an answer, checked for readability and length, and as an edit where one was asked for."""
    text = _text(answer, truncated)
    if isinstance(request, Request):
        try:
            text = request.kind.revised(text, request.text)
        except ValueError as error:
            raise Unusable(str(error)) from None
    if (problem := request.kind.unusable(text)) is not None:
        raise Unusable(problem)
    tokens = request.count_tokens(text)
    if tokens > request.max_tokens:
        raise Unusable(f"the revised text took {tokens} tokens and only {request.max_tokens} are allowed")
    if isinstance(request, Request):
        # A light edit keeps half of the words; a function may well be short and be written anew.
        words, before = [text.strip()], [request.text.strip()]
        if isinstance(request.kind, Prompt):
            words, before = text.split(), request.text.split()
        _check_edit(words, before, request.proposer)
    return text


def _check_edit(words: list[str], parent: list[str], proposer: str) -> None:
    if words == parent:
        raise Unusable("the revised text was the same as the current instructions")
    if proposer == "light" and len(parent) >= SHORT_TEXT:
        matcher = difflib.SequenceMatcher(None, parent, words, autojunk=False)
        kept = sum(block.size for block in matcher.get_matching_blocks())
        if kept < KEPT_SHARE * len(parent):
            raise Unusable(
                f"only {kept} of the {len(parent)} words of the current instructions were left in place; "
                f"make a smaller edit that keeps at least half of them",
                "; fast.optimizer.proposer=full allows rewrites",
            )


def _text(answer: str, truncated: bool) -> str:
    answer = _without_thoughts(answer)
    if not answer.strip():
        raise Unusable("the answer was empty")
    closed, unclosed = _blocks(answer)
    if truncated and not closed:
        raise Unusable("the answer was truncated by its length limit before the revised text was complete")
    return closed or unclosed or ("" if "```" in answer else answer.strip())


def _without_thoughts(answer: str) -> str:
    """Drop a reasoning model's leading thoughts; some templates put their opening tag into the prompt."""
    head, end, rest = answer.partition("</think>")
    opened = head.lstrip().startswith("<think>")
    # A pair of tags further on belongs to the instructions themselves.
    if end and (opened or "<think>" not in head):
        return rest
    return "" if opened else answer


def _blocks(answer: str) -> tuple[str, str]:
    """The last closed fenced block, and the text after an unclosed fence; empty where there is none."""
    closed: list[str] = []
    inside: list[str] = []
    outer = depth = 0
    for line in answer.splitlines():
        match = _FENCE_LINE.match(line)
        length, tag = (len(match[1]), match[2]) if match else (0, "")
        if depth == 0:
            if match:
                outer, depth, inside = length, 1, []
            continue
        # Instructions may show fenced blocks of their own: a language tag opens one more, only a bare fence closes.
        if match and length >= outer:
            depth += 1 if tag else -1
        if depth:
            inside.append(line)
        else:
            closed.append("\n".join(inside).strip())
    if not any(closed):
        closed = _inline(answer)
    return next(filter(None, reversed(closed)), ""), "\n".join(inside).strip() if depth else ""


def _inline(answer: str) -> list[str]:
    """Blocks whose fences stand beside other words: each is closed by the next fence that is as long."""
    closed: list[str] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(answer):
        if opening is None:
            opening = fence
        elif len(fence[0]) >= len(opening[0]):
            closed.append(_TAG.sub("", answer[opening.end() : fence.start()]).strip())
            opening = None
    return closed
