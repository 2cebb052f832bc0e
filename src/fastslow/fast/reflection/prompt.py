"""What a reflection model reads: texts, problems and attempts, and what kind of text is wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fastslow.base.text import shorten
from fastslow.fast.reflection.base import Attempt, Request

LONGEST_PART = 4000
"""Characters shown of a question, an answer or a feedback."""


def write_prompt(request: Request) -> str:
    """The first message of a reflection."""
    fence = fence_of([request.text])
    return f"""\
{request.kind.show(request.component, request.text, fence)}

This is how it did with them. Scores run from 0 (failed) to 1 (solved).

{show_attempts(request.attempts)}

{_show_refused(request.refused)}{request.kind.ask(request.proposer, request.max_tokens, fence)}
"""


def _show_refused(refused: Sequence[tuple[str, str]]) -> str:
    if not refused:
        return ""
    shown = "\n\n".join(f"{_part(text)}\nRefused: {_part(reason)}" for text, reason in refused)
    return (
        f"These revisions were refused before they were tried; do not repeat what was wrong with them.\n\n{shown}\n\n"
    )


def complain(problem: str, fence: str, max_tokens: int) -> str:
    """The follow-up after an answer that cannot be used."""
    return (
        f"That answer cannot be used: {problem}. Answer again with the whole text inside one block fenced by {fence}, at "
        f"most {max_tokens} tokens long."
    )


def fence_of(texts: Iterable[str]) -> str:
    """A fence longer than any in the texts, so that instructions which show fenced blocks can be quoted and read back."""
    runs = [run for text in texts for run in re.findall(r"`{3,}", text)]
    return "`" * max(3, 1 + max(map(len, runs), default=0))


def fenced(text: str, fence: str) -> str:
    return f"{fence}\n{text}\n{fence}"


def show_demonstrations(solved: Sequence[Attempt], questions: Sequence[str]) -> str:
    """Solved problems with their answers; where there are none, problems alone."""
    if solved:
        return "\n\n".join(f"Problem:\n{_part(each.question)}\nRight answer:\n{_part(each.answer)}" for each in solved)
    shown = "\n\n".join(f"Problem:\n{_part(question)}" for question in questions)
    return f"{shown}\n\n(No right answer to any of them is known yet.)"


def show_attempts(attempts: Sequence[Attempt]) -> str:
    """Attempts with the grader's feedback."""
    return "\n\n".join(
        f"## Attempt {number}, score {attempt.score:g}\n"
        f"Problem:\n{_part(attempt.question)}\n"
        f"Its answer:\n{_part(attempt.answer)}\n"
        f"Feedback:\n{_part(attempt.feedback, '(none)')}"
        for number, attempt in enumerate(attempts, start=1)
    )


def closing(what: str, fence: str, max_tokens: int) -> str:
    """The format of the answer."""
    return (
        f"Give {what} inside one fenced block that opens and closes with {fence}; nothing outside of it is used. At most "
        f"{max_tokens} tokens."
    )


def _part(text: str, empty: str = "(empty)") -> str:
    """A text of somebody else's, fenced, so that nothing in it can pass for a part of the prompt."""
    shown = shorten(text.strip(), LONGEST_PART)
    return fenced(shown, fence_of([shown])) if shown else empty
