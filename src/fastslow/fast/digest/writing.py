"""Texts made of lines, and the request for lines that a reflection model writes.

A text has the first line of the base text, which states the task, and below it the lines that are worth their room, those of
the base text before the others. A reflection model reads the counted statements with examples; each line that it writes says
which of the statements it stands for, and is judged like a statement, on the problems that those were made of. Without a
model the statements are lines as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fastslow.fast.digest.journal import component_of, key_of
from fastslow.fast.reflection import Attempt, TextRequest
from fastslow.fast.reflection.prompt import closing, fence_of, fenced, show_attempts
from fastslow.tasks.skills import MARK, Sections, listed, sections

MOST_STATEMENTS = 40
"""Statements that the model is shown, those that were made of most problems."""
MOST_EXAMPLES = 6
"""Attempts that it is shown beside them."""
LONGEST_ANSWER = 2048
"""Tokens of its answer."""


_LINE = re.compile(r"^\W*\[([\d,\s]*)\]\s*(\S.*)$")
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")


@dataclass(frozen=True)
class Line:
    """A line that may stand in a text."""

    key: str
    text: str
    tokens: int
    entry: bool = False
    """It is an entry of a list, which a question is shown only where it matches."""


class Writer:
    """Writes contexts; holds what they begin with and how long they may be."""

    def __init__(
        self,
        base: Mapping[str, str],
        max_tokens: int,
        count_tokens: Callable[[str], int],
        lists: Collection[str] = (),
    ) -> None:
        """`lists` are the components whose texts have a list of entries (tasks/skills.py)."""
        self.base, self.max_tokens, self.count, self.lists = dict(base), max_tokens, count_tokens, lists
        self._tokens: dict[str, int] = {}
        self.heads: dict[str, str] = {}
        self.loose: dict[str, str] = {}
        """The further lines of the base text, by key; they may go, if they do harm."""
        for name, text in base.items():
            first, *others = [line for line in text.splitlines() if line.strip()] or [text]
            self.heads[name] = first
            self.loose |= {key_of(name, line): line for line in others if key_of(name, line) != key_of(name, first)}

    def tokens(self, text: str) -> int:
        """The tokens of a line in a text, its line break included."""
        if text not in self._tokens:
            self._tokens[text] = self.count(text) + 1
        return self._tokens[text]

    def room(self) -> dict[str, int]:
        """The tokens that each component has left beside its first line."""
        return {name: self.max_tokens - self.tokens(text) for name, text in self.heads.items()}

    def write(self, lines: Sequence[Line], taken: frozenset[str]) -> dict[str, str]:
        """The texts with these lines, in the order in which they are given."""
        texts = {}
        for name, head in self.heads.items():
            chosen = [line for line in lines if line.key in taken and component_of(line.key) == name]
            loose = {key for key in self.loose if component_of(key) == name}
            whole = loose <= taken  # then the base text is kept as it is, blank lines and all
            added = [line for line in chosen if not whole or line.key not in loose]
            start = self.base[name] if whole else head
            texts[name] = _with_entries(start, added) if name in self.lists else _joined(start, added)
        return texts

    def is_entry(self, key: str, has_topic: bool) -> bool:
        """Whether a line stands in a list: one of the base text that does, and another that shares telling words with the
        questions that it is about, without which it would not be found."""
        if component_of(key) not in self.lists:
            return False
        return self.loose[key].startswith(MARK) if key in self.loose else has_topic


def _joined(start: str, lines: Sequence[Line]) -> str:
    return "\n".join([start, *(line.text for line in lines)])


def _with_entries(start: str, lines: Sequence[Line]) -> str:
    """Lines added to a text with a list: entries at its end, the others above it."""
    found = sections(start)
    above = [line.text for line in lines if not line.entry]
    entries = [listed(line.text.removeprefix(MARK)) for line in lines if line.entry]
    return Sections((*found.before, *above), (*found.entries, *entries), found.after).text


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

A grader read its answers. These are its statements about wrong answers, each with the number of problems it was made of:
{fenced(listed or "(nothing in words)", fence)}

Some of the attempts. Scores run from 0 (failed) to 1 (solved).

{show_attempts(attempts)}

Write rules that can stand below the instructions, one per line. Begin each with the numbers of the statements that it stands
for, in square brackets, as in
[2, 5] The rule in one sentence.
Merge statements that say the same thing. Keep every name, number and condition exactly. A rule must hold for new problems of
the same kind: leave out what concerns a single problem, and where statements only show errors and expected values, write the
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
        numbers = {int(digits) for digits in _NUMBER.findall(match[1])}
        covered = frozenset(each.key for number, each in enumerate(heard, start=1) if number in numbers)
        if covered:
            found.append((match[2].strip(), covered))
    return found


def _times(problems: int) -> str:
    return "of 1 problem" if problems == 1 else f"of {problems} problems"
