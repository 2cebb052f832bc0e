"""What a reflection model is asked: it reads the counted statements with examples, and writes the lines of a text.

Each line that it writes says which of the statements it stands for. It is then judged like a statement, on the problems that
those were made of. Without a model nothing is written: the statements are lines as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastslow.fast.reflection import Attempt, TextRequest
from fastslow.fast.reflection.prompt import closing, fence_of, fenced, show_attempts

MOST_STATEMENTS = 40
"""Statements that the model is shown, those that were made of most problems."""
MOST_EXAMPLES = 6
"""Attempts that it is shown beside them."""
LONGEST_ANSWER = 2048
"""Tokens of its answer."""

_LINE = re.compile(r"^\W*\[([\d,\s]*)\]\s*(\S.*)$")


@dataclass(frozen=True)
class Heard:
    """A statement as the model is told of it."""

    key: str
    text: str
    problems: int
    held: bool
    """The text says so already."""


def wish(
    component: str,
    text: str,
    heard: Sequence[Heard],
    attempts: Sequence[Attempt],
    max_tokens: int,
    count_tokens: Callable[[str], int],
) -> TextRequest:
    """The request for lines. By hand each statement stands for itself."""
    fence = fence_of([text, *(each.text for each in heard)])
    listed = "\n".join(
        f"[{number}] ({_times(each.problems)}{', and the instructions say so already' if each.held else ''}) {each.text}"
        for number, each in enumerate(heard, start=1)
    )
    prompt = f"""\
A language model works under written instructions. The part you are helping with is called "{component}":
{fenced(text, fence)}

A grader looked at its answers. This is what the grader said of wrong ones, with the number of different problems:
{fenced(listed or "(nothing in words)", fence)}

Some of the attempts. Scores run from 0 (failed) to 1 (solved).

{show_attempts(attempts)}

Write rules that can stand below the instructions, one a line. Put before each, in square brackets, the numbers of the
statements that it stands for, as in
[2, 5] The rule in one sentence.
Merge statements that say the same. Keep every name, number and condition exactly. A rule must hold for new problems of the
same kind: leave out what concerns one problem alone, and where statements only show errors and expected values, write the
rule that explains them.
{closing("the rules", fence, min(LONGEST_ANSWER, max_tokens))}
"""

    def by_hand(chance: random.Random) -> str:
        return "\n".join(f"[{number}] {each.text}" for number, each in enumerate(heard, start=1)) or "[]"

    return TextRequest(prompt, by_hand, min(LONGEST_ANSWER, max_tokens), count_tokens, fence)


def read_lines(answer: str, heard: Sequence[Heard]) -> list[tuple[str, frozenset[str]]]:
    """The lines of an answer with the statements that each stands for; what has no number in brackets is passed over, and so
    are numbers that were not given."""
    found = []
    for line in answer.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        numbers = {int(digits) for digits in re.findall(r"\d+", match[1])}
        covered = frozenset(each.key for number, each in enumerate(heard, start=1) if number in numbers)
        if covered:
            found.append((match[2].strip(), covered))
    return found


def _times(problems: int) -> str:
    return "of 1 problem" if problems == 1 else f"of {problems} problems"
