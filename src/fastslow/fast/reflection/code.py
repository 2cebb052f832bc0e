"""Components of kind `code`: the program around the model, which is checked before any rollout is spent on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastslow.base.text import edits_in, hidden_characters, one_line
from fastslow.fast.reflection.base import KINDS, Kind, Refusal
from fastslow.records import Component
from fastslow.sandbox.signature import fault_of

BROKEN = "proposal_broken"
"""The fault of code that cannot be played; the reason is shown with the next request."""
_MARKS = re.compile(r"^(?:(<{5,9} SEARCH)|(={5,9})|(>{5,9} REPLACE))[ \t]*$", re.M)
_MARK = re.compile(r"^(?:<{5,9} SEARCH|>{5,9} REPLACE)", re.M)


_ANY = Component("code", "code", signature="solve(problem, ask, tools)")


@dataclass(frozen=True)
class Code(Kind):
    """A Python function that calls the model."""

    component: Component = _ANY

    def of(self, component: Component) -> Kind:
        return Code(component)

    def check(self, text: str, count_tokens: Callable[[str], int], max_tokens: int) -> Refusal | None:
        tokens = count_tokens(text)
        if tokens > max_tokens:
            return Refusal(BROKEN, f"too long: {tokens} tokens, at most {max_tokens} are allowed")
        problem = self.unusable(text)
        if problem is None and self.component.check is not None:
            problem = self.component.check(text)
        return None if problem is None else Refusal(BROKEN, problem)

    def unusable(self, text: str) -> str | None:
        if not text.split():
            return "the code was empty"
        if hidden := hidden_characters(text):
            return f"the code has characters that a reader does not see: {hidden[:10]!a}"
        return fault_of(text, self.component.signature)

    def revised(self, block: str, parent: str) -> str:
        """The parent with its edits made, or the whole code as it is given."""
        edits = [(old.removesuffix("\n"), new.removesuffix("\n")) for old, new in edits_in(block, _MARKS)]
        if len(_MARK.findall(block)) != 2 * len(edits):
            raise ValueError(
                "an edit lacked a part of: <<<<<<< SEARCH, the old lines, =======, the new lines, >>>>>>> REPLACE"
            )
        text = parent
        for old, new in edits:
            if text.count(old) != 1 or not old.strip():
                raise ValueError(
                    f"the lines to replace occur {text.count(old)} times, expected once: {one_line(old, 200)!r}"
                )
            text = text.replace(old, new)
        return text if edits else block

    def show(self, component: str, text: str, fence: str) -> str:
        about = f"\n\n{self.component.about}" if self.component.about else ""
        return f"""\
A Python program calls a language model to solve problems. Improve the program so that it solves more new problems of the
same kind. The part you are revising is called "{component}" and defines {self.component.signature}.{about}

Its code is now:
{fence}python
{text.strip()}
{fence}"""

    def ask(self, proposer: Literal["light", "full"], max_tokens: int, fence: str) -> str:
        return f"""\
First think about what went wrong: whether the code failed, and in which line; whether the model was asked for the right
thing, in steps that it can do; whether its answers were parsed and checked; whether a tool would have known better.
Then revise the code.

- {AIMS[proposer]}
- It must define {self.component.signature} at its top level and use nothing but Python's standard library.
- The model may answer anything, also nothing: code that fails on an odd answer fails the problem.
- Write code for the kind of problem. The next problems will be different, so leave out answers to single problems.
- The whole code may take at most {max_tokens} tokens.
- Answer with one block that opens and closes with {fence}; nothing outside of it is used. It holds the whole code, or one or
  several edits in this form, each with lines that occur exactly once in the code:
<<<<<<< SEARCH
the old lines
=======
the new lines
>>>>>>> REPLACE"""


AIMS = {
    "light": "Change one thing, the one that would have helped most.",
    "full": "You may write the code anew, as long as everything that works in it still does.",
}
KINDS["code"] = Code()
