"""The words a reflection model reads: the instructions, how they did, and what kind of revision is wanted."""

from __future__ import annotations

import re

from fastslow.fast.reflection.base import Attempt, Request, Wish

_AIM = {
    "light": (
        "Make a small, incremental edit: add, sharpen or remove one or two rules and leave all other words exactly as "
        "it is. Do not rewrite the text from scratch; a revision that keeps less than half of its words is refused."
    ),
    "full": (
        "You may rewrite the instructions freely, in any structure you like, as long as everything that works in them "
        "is still there."
    ),
}


def write_prompt(request: Request, longest_part: int) -> str:
    """The first message of a reflection; each question, answer and feedback is cut to `longest_part` characters."""
    fence = fence_for(request.text)
    attempts = "\n\n".join(
        _write_attempt(number, attempt, longest_part) for number, attempt in enumerate(request.attempts, start=1)
    )
    return f"""\
A language model works under written instructions. Improve them so that it does better on new problems of the same kind.
The part you are revising is called "{request.component}".

Its instructions are now:
{fence}
{request.text}
{fence}

This is how it did with them. Scores run from 0 (failed) to 1 (solved).

{attempts}

First think about what went wrong, what the failures have in common, and which rule or method would have prevented them.
Then write the revised instructions.

- {_AIM[request.proposer]}
- Write general rules. The next problems will be different ones, so leave out answers and details of single ones.
- Facts about the kind of problem, the answer format that is expected and a method that works are all worth stating.
- The revised instructions may take at most {request.max_tokens} tokens.
- Give the whole revised text, not only the changes, inside one fenced block that opens and closes with {fence}. Nothing
  outside that block is used.
"""


def write_complaint(problem: str, request: Request) -> str:
    """The follow-up after an answer that cannot be used."""
    fence = fence_for(request.text)
    return (
        f"That revision cannot be used: {problem}. Answer again with the whole revised instructions inside one block "
        f"fenced by {fence}, at most {request.max_tokens} tokens long."
    )


def complain(problem: str, wish: Wish) -> str:
    """The same about any other text."""
    return (
        f"That answer cannot be used: {problem}. Answer again with the whole text inside one block fenced by "
        f"{wish.fence}, at most {wish.max_tokens} tokens long."
    )


def fence_for(text: str) -> str:
    """A fence longer than any in the text, so that instructions which show fenced blocks survive the way back."""
    return "`" * max(3, 1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))


def _write_attempt(number: int, attempt: Attempt, longest: int) -> str:
    parts = {"Problem": attempt.question, "Its answer": attempt.answer, "Feedback": attempt.feedback}
    written = "\n".join(f"{name}:\n{shorten(part.strip(), longest) or '(empty)'}" for name, part in parts.items())
    return f"## Attempt {number}, score {attempt.score:g}\n{written}"


def shorten(text: str, longest: int) -> str:
    """Cut the middle out of a long text: its beginning says what it is, its end how it came out."""
    if len(text) <= longest:
        return text
    head = longest // 2
    return f"{text[:head]}\n[… {len(text) - longest} characters left out …]\n{text[len(text) - (longest - head) :]}"
