"""From an answer to a candidate: a whole one, or edits of the parent; and when two candidates are the same."""

from __future__ import annotations

import ast
import hashlib
import re
from typing import Literal

from fastslow.base.text import edits_in, one_line
from fastslow.discover.problem import CANDIDATE, Problem

Form = Literal["edits", "whole", "either"]
_MARKS = re.compile(r"^(?:(<{5,} *SEARCH)|(={5,})|(>{5,} *REPLACE))[^\n]*$", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<rest>[^\n]*)$", re.MULTILINE)


class Unreadable(ValueError):
    """An answer holds no candidate; the message says what to write instead."""


def read_answer(answer: str, parent: str, problem: Problem, form: Form) -> str:
    """The candidate that an answer proposes."""
    edits = edits_in(answer, _MARKS) if form != "whole" else []
    if edits:
        candidate = _edited(parent, edits)
    elif form == "edits":
        raise Unreadable("There is no edit in the answer. Write one or more SEARCH/REPLACE blocks.")
    else:
        candidate = _whole(answer, problem)
    if not candidate.strip():
        raise Unreadable("The candidate is empty. Write the whole candidate.")
    if not candidate.isascii() and candidate != candidate.encode("utf-8", "replace").decode():
        raise Unreadable("The candidate has characters that no file can have. Write plain text.")
    if len(candidate) > CANDIDATE:
        raise Unreadable(f"The candidate has {len(candidate)} characters; write a shorter one.")
    if problem.is_program:
        _parse(candidate)
    return candidate


def identify(candidate: str, problem: Problem) -> str:
    """A hash that candidates share which differ in nothing that counts: of programs, comments and layout; of texts, the white
    space at the ends of lines."""
    same = "\n".join(line.rstrip() for line in candidate.strip().splitlines())
    if problem.is_program:
        same = ast.dump(_parse(candidate))
    return hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _edited(parent: str, edits: list[tuple[str, str]]) -> str:
    text = parent if parent.endswith("\n") else parent + "\n"
    for number, (old, new) in enumerate(edits, 1):
        found = text.count(old) if old.strip() else 0
        if found != 1:
            quoted = one_line(old, 80)
            said = f"occurs {found} times" if found else "does not occur"
            raise Unreadable(
                f"The text to replace in edit {number} ('{quoted}') {said} in the candidate. Copy lines that occur exactly "
                "once, with their indentation."
            )
        text = text.replace(old, new)
    return text


def _whole(answer: str, problem: Problem) -> str:
    blocks = _fenced(answer)
    if blocks:
        return blocks[-1]
    if problem.is_program and "```" in answer:
        raise Unreadable("The block with the program does not end. Close it with ```, and write a shorter program.")
    return answer.strip() + "\n"


def _fenced(text: str) -> list[str]:
    """What fenced blocks hold. One that is never closed is text."""
    blocks, lines, opened = list[str](), list(_FENCE.finditer(text)), -1
    endless: dict[str, int] = {}
    """By its character, the shortest fence that is known not to be closed any more."""
    for place, opening in enumerate(lines):
        fence = opening["fence"]
        if place <= opened or "`" in opening["rest"] or len(fence) >= endless.get(fence[0], len(text)):
            continue
        opened = next((n for n in range(place + 1, len(lines)) if _closes(lines[n], fence)), -1)
        if opened < 0:
            endless[fence[0]] = len(fence)
        else:
            blocks.append(text[opening.end() + 1 : lines[opened].start()])
    return blocks


def _closes(line: re.Match[str], fence: str) -> bool:
    return line["fence"].startswith(fence) and not line["rest"].strip("`~ \t")


def _parse(candidate: str) -> ast.Module:
    try:
        return ast.parse(candidate)
    except SyntaxError as error:
        raise Unreadable(f"The candidate is not Python: {error.msg}, in line {error.lineno}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"The candidate is not Python: {one_line(error, 100)}.") from None
