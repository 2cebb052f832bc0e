"""The kinds of components: how a text of each is checked, shown to a reflector and asked for.

A `Component` names its kind. The loop, the evaluator and the optimizers handle texts alike; what is particular to a kind is
here. Another kind is another class in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Protocol

from fastslow.base.text import hidden_characters


class Refusal(NamedTuple):
    """Why a proposed text is not played."""

    fault: str
    """What the journal counts it as."""
    reason: str


class Kind(Protocol):
    """A kind of component."""

    def check(self, text: str, count_tokens: Callable[[str], int], max_tokens: int) -> Refusal | None:
        """Why a proposed text must not be played, if so."""
        ...

    def unusable(self, text: str) -> str | None:
        """What is wrong with a text, in words for the model that wrote it; None if nothing is."""
        ...

    def show(self, component: str, text: str, fence: str) -> str:
        """A component's text in a request for a better one."""
        ...

    def ask(self, proposer: Literal["light", "full"], max_tokens: int, fence: str) -> str:
        """What to answer the request with."""
        ...


class Prompt:
    """Instructions that the model reads in front of the messages."""

    aims: ClassVar = {
        "light": (
            "Make a small, incremental edit: add, sharpen or remove one or two rules and leave the rest of the text "
            "unchanged. Do not rewrite the text from scratch; a revision that keeps less than half of its words is rejected."
        ),
        "full": (
            "You may rewrite the instructions freely, in any structure you like, as long as everything that works in them "
            "is still there."
        ),
    }

    def check(self, text: str, count_tokens: Callable[[str], int], max_tokens: int) -> Refusal | None:
        if hidden := hidden_characters(text):  # people could not tell what the model reads
            return Refusal("proposal_hidden_characters", f"hidden characters: {hidden[:10]!a}")
        tokens = count_tokens(text)
        if tokens > max_tokens:
            return Refusal("proposal_too_long", f"too long: {tokens} tokens, at most {max_tokens} are allowed")
        return None

    def unusable(self, text: str) -> str | None:
        if not text.split():
            return "the revised text was empty"
        if hidden := hidden_characters(text):
            return f"the revised text has characters that a reader does not see: {hidden!a}"
        return "the revised text was not readable instructions" if _is_garbage(text) else None

    def show(self, component: str, text: str, fence: str) -> str:
        return f"""\
A language model works under written instructions. Improve them so that it does better on new problems of the same kind.
The part you are revising is called "{component}".

Its instructions are now:
{fence}
{text}
{fence}"""

    def ask(self, proposer: Literal["light", "full"], max_tokens: int, fence: str) -> str:
        return f"""\
First think about what went wrong, what the failures have in common, and which rule or method would have prevented them.
Then write the revised instructions.

- {self.aims[proposer]}
- Write general rules. The next problems will be different, so leave out answers to single problems and their details.
- Facts about the kind of problem, the expected answer format and a method that works are all worth stating.
- The revised instructions may take at most {max_tokens} tokens.
- Give the whole revised text, not only the changes, inside one fenced block that opens and closes with {fence}. Nothing
  outside that block is used."""


def _is_garbage(text: str) -> bool:
    """Broken characters, mostly symbols, or the same few words over and over."""
    if "\ufffd" in text:
        return True
    solid = "".join(text.split())
    if sum(letter.isalnum() for letter in solid) < len(solid) / 2:
        return True
    words = text.casefold().split()
    return len(words) >= 40 and len(set(words)) < len(words) / 10


KINDS: dict[str, Kind] = {"prompt": Prompt()}


def find_kind(name: str) -> Kind:
    if name not in KINDS:
        raise ValueError(f"a component has the kind '{name}'; expected one of {', '.join(KINDS)}")
    return KINDS[name]
