"""What the prompts of the optimizers share: showing texts, problems and attempts, and how an answer is to be given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastslow.fast.reflection import Attempt
from fastslow.fast.reflection.prompt import fence_for, shorten

LONGEST_PART = 4000
"""Characters shown of a question, an answer or a feedback."""


def fence_of(texts: Iterable[str]) -> str:
    """One fence that none of the texts contains."""
    return fence_for("\n".join(texts))


def fenced(text: str, fence: str) -> str:
    return f"{fence}\n{text}\n{fence}"


def show_demonstrations(solved: Sequence[Attempt], questions: Sequence[str]) -> str:
    """Solved problems with their answers; where there are none, problems alone."""
    if solved:
        return "\n\n".join(
            f"Problem:\n{shorten(each.question.strip(), LONGEST_PART)}\nRight answer:\n"
            f"{shorten(each.answer.strip(), LONGEST_PART)}"
            for each in solved
        )
    shown = "\n\n".join(f"Problem:\n{shorten(question.strip(), LONGEST_PART)}" for question in questions)
    return f"{shown}\n\n(No right answer to any of them is known yet.)"


def show_attempts(attempts: Sequence[Attempt]) -> str:
    """Attempts with what the grader said of them."""
    return "\n\n".join(
        f"## Attempt {number}, score {attempt.score:g}\n"
        f"Problem:\n{shorten(attempt.question.strip(), LONGEST_PART)}\n"
        f"Its answer:\n{shorten(attempt.answer.strip(), LONGEST_PART) or '(empty)'}\n"
        f"Feedback:\n{shorten(attempt.feedback.strip(), LONGEST_PART) or '(none)'}"
        for number, attempt in enumerate(attempts, start=1)
    )


def closing(what: str, fence: str, max_tokens: int) -> str:
    """How the answer is to be given."""
    return (
        f"Give {what} inside one fenced block that opens and closes with {fence}; nothing outside of it is used. At most "
        f"{max_tokens} tokens."
    )
