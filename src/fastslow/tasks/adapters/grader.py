"""Grading a user's own data: a function found by name and called with care, or else an exact match."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.registry import load_named
from fastslow.base.text import one_line
from fastslow.tasks.base import Feedback

JUDGES = 32
"""Answers graded at a time with `grader_threads`: such graders wait for a server and hardly use the processor."""

Grader = Callable[[str, dict[str, Any]], Any]

ANSWER_SOMETHING = "Always give an answer."
ONLY_THE_ANSWER = "Write only the final answer, with no words, label or punctuation around it."
EXACT_WRITING = "Write the answer exactly as asked for, down to capital letters and punctuation."
CHECK_FIRST = "Work the answer out and check it against the question before writing it."


class GraderError(TaskError):
    """A user's grader failed or returned something that is not a score."""


def load_grader(name: str) -> Grader:
    """The function `module:function`."""
    function = load_named("grader", name)
    if not callable(function):
        raise TaskError(
            f"grader '{name}' is of type {type(function).__name__}; expected a function of (answer, example)"
        )
    return function


def call_grader(
    name: str, grader: Grader, answer: str, example: dict[str, Any]
) -> Feedback | Coroutine[Any, Any, Feedback]:
    """Grade with a user's function and turn what it returns into feedback, or say what is wrong with it. The feedback of
    an async function is awaited by the caller."""
    with blaming(f"grader '{name}'"):
        returned = grader(answer, example)
    return _awaited(name, returned) if inspect.isawaitable(returned) else _checked(name, returned)


async def _awaited(name: str, returned: Awaitable[Any]) -> Feedback:
    with blaming(f"grader '{name}'"):
        score = await returned
    return _checked(name, score)


@contextmanager
def blaming(what: str, kind: type[TaskError] = GraderError) -> Iterator[None]:
    """A user's code can fail in any way, which costs one answer; what a recipe must change would fail every time."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{what}: {error}") from None
    except Exception as error:
        raise kind(f"{what} raised {type(error).__name__}: {one_line(error)}") from error


def _checked(name: str, returned: Any) -> Feedback:
    feedback = _as_feedback(returned)
    if feedback is None:
        raise GraderError(
            f"grader '{name}' returned {one_line(repr(returned), 200)}; "
            "expected a score, a (score, text) tuple or a Feedback"
        )
    if not 0 <= feedback.score <= 1:  # false for NaN too
        what = "not a number" if math.isnan(feedback.score) else f"{feedback.score:g}"
        raise GraderError(f"grader '{name}' returned the score {what}; expected a number from 0 to 1")
    return feedback


def _as_feedback(returned: Any) -> Feedback | None:
    if isinstance(returned, Feedback):
        feedback = returned
    elif isinstance(returned, tuple) and len(returned) == 2:
        feedback = Feedback(*returned)
    else:
        feedback = Feedback(returned)
    if not isinstance(feedback.score, Real) or not isinstance(feedback.text, str):
        return None
    return Feedback(float(feedback.score), feedback.text, progress=feedback.progress)


def exact_match(answer: str, expected: str, question: str, reveal: bool = False) -> Feedback:
    """1 when the answer is the expected one but for white space around it; otherwise says in what way it is not.

    The expected answer itself is only said when asked to `reveal` it.
    """
    given, expected, asked = answer.strip(), expected.strip(), f"'{one_line(question, 60)}'"
    shown = f"'{one_line(given, 200)}'"
    if given == expected:
        return Feedback(1.0, f"Correct: {shown} answers {asked}.")
    if not given:
        lines = [f"The answer to {asked} is empty.", ANSWER_SOMETHING]
    elif _bare(given) == _bare(expected):
        lines = [f"{shown} is the answer to {asked}, but not as it is to be written.", EXACT_WRITING]
    elif _mentions(given, expected):
        lines = [f"{shown} has more in it than the answer to {asked}.", ONLY_THE_ANSWER]
    else:
        lines = [f"{shown} is not the answer to {asked}.", CHECK_FIRST, ONLY_THE_ANSWER]
    if reveal:
        lines.append(f"The expected answer is '{one_line(expected, 200)}'.")
    return Feedback(0.0, "\n".join(lines))


def _bare(text: str) -> str:
    return text.casefold().strip(" .!\"'`*")


def _mentions(text: str, expected: str) -> bool:
    """Whether the expected answer stands somewhere in the text as a word of its own: 5 is not in 15, -5 or 5.2."""
    whole = rf"(?<![\w.-]){re.escape(expected)}(?!\w|\.\d)"
    return bool(expected) and re.search(whole, text, re.IGNORECASE) is not None
