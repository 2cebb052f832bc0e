"""Reading a reflection model's answer: find the revised text in it, or say why it cannot be used."""

from __future__ import annotations

import difflib
import re

from fastslow.base.text import hidden_characters
from fastslow.fast.reflection.base import Request, TextRequest

KEPT_SHARE = 0.5
"""Share of the parent's words that a `light` edit keeps, in order."""
SHORT_PARENT = 8
"""Below this many words any edit changes most of the text, so the share is not checked."""

_FENCE_LINE = re.compile(r"^\s*(`{3,})\s*([\w+.-]*)\s*$")
_INLINE_BLOCK = re.compile(r"(`{3,})(?:[\w+.-]*\n)?(.+?)\1", re.DOTALL)


class Unusable(Exception):
    """An answer without a usable edit; str(error) is the reason, which the model that wrote it reads."""


def read_edit(answer: str, truncated: bool, request: Request) -> str:
    """The revised text of an answer, after all checks of an edit."""
    text = _text(answer, truncated)
    _check(text, request)
    return text


def read_text(answer: str, truncated: bool, request: TextRequest) -> str:
    """The text of an answer, checked for readability and length."""
    text = _text(answer, truncated)
    _check_words(text)
    _check_length(text, request)
    return text


def _text(answer: str, truncated: bool) -> str:
    answer = _without_thoughts(answer)
    if not answer.strip():
        raise Unusable("the answer was empty")
    closed, unclosed = _blocks(answer)
    if truncated and not closed:
        raise Unusable("the answer was cut off by its length limit before the revised text was complete")
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
        closed = [match[2].strip() for match in _INLINE_BLOCK.finditer(answer)]
    return next(filter(None, reversed(closed)), ""), "\n".join(inside).strip() if depth else ""


def _check(text: str, request: Request) -> None:
    words, parent_words = text.split(), request.text.split()
    _check_words(text)
    if words == parent_words:
        raise Unusable("the revised text was the same as the current instructions")
    _check_length(text, request)
    if request.proposer == "light" and len(parent_words) >= SHORT_PARENT:
        matcher = difflib.SequenceMatcher(None, parent_words, words, autojunk=False)
        kept = sum(block.size for block in matcher.get_matching_blocks())
        if kept < KEPT_SHARE * len(parent_words):
            raise Unusable(
                f"only {kept} of the {len(parent_words)} words of the current instructions were left in place; "
                f"make a smaller edit that keeps at least half of them"
            )


def _check_words(text: str) -> None:
    if not text.split():
        raise Unusable("the revised text was empty")
    if hidden := hidden_characters(text):
        raise Unusable(f"the revised text has characters that a reader does not see: {hidden!a}")
    if _is_garbage(text):
        raise Unusable("the revised text was not readable instructions")


def _check_length(text: str, wanted: Request | TextRequest) -> None:
    tokens = wanted.count_tokens(text)
    if tokens > wanted.max_tokens:
        raise Unusable(f"the revised text took {tokens} tokens and only {wanted.max_tokens} are allowed")


def _is_garbage(text: str) -> bool:
    """Broken characters, mostly symbols, or the same few words over and over."""
    if "\ufffd" in text:
        return True
    solid = "".join(text.split())
    if sum(letter.isalnum() for letter in solid) < len(solid) / 2:
        return True
    words = text.casefold().split()
    return len(words) >= 40 and len(set(words)) < len(words) / 10
