"""From an answer to a candidate: a whole one, or edits of the parent; and when two candidates are the same."""

from __future__ import annotations

import ast
import hashlib
import re
from typing import Literal

from fastslow.base.text import one_line
from fastslow.discover.problem import CANDIDATE, Problem

Form = Literal["edits", "whole", "either"]
EDIT = re.compile(r"^<{5,} *SEARCH[^\n]*\n(.*?)^={5,}[^\n]*\n(.*?)^>{5,} *REPLACE[^\n]*$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<text>.*?)^ {0,3}(?P=fence)[`~]*[ \t]*$", re.M | re.S)


class Unreadable(ValueError):
    """An answer holds no candidate; the message says what to write instead."""


def read_answer(answer: str, parent: str, problem: Problem, form: Form) -> str:
    """The candidate that an answer proposes."""
    edits = EDIT.findall(answer) if form != "whole" else []
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
    blocks = [found["text"] for found in _FENCED.finditer(answer)]
    if blocks:
        return blocks[-1]
    if problem.is_program and "```" in answer:
        raise Unreadable("The block with the program does not end. Close it with ```, and write a shorter program.")
    return answer.strip() + "\n"


def _parse(candidate: str) -> ast.Module:
    try:
        return ast.parse(candidate)
    except SyntaxError as error:
        raise Unreadable(f"The candidate is not Python: {error.msg}, in line {error.lineno}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"The candidate is not Python: {one_line(error, 100)}.") from None
