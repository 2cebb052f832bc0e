"""What pretraining has beyond the rulebook family: its own ways of saying rules, words with exceptions, styles that spare a
word, rules about rules, and which words and combinations it never has."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import phrases as p

from fastslow.tasks.families.rulebook import universe as base
from fastslow.tasks.families.rulebook.universe import (
    ALPHABETS,
    ANIMALS,
    DIGITS,
    HELD,
    LETTERS,
    OPERATIONS,
    SLOTS,
    STYLES,
    Items,
    Operation,
    Style,
    write_answer,
)

__all__ = [
    "ALPHABETS",
    "ANIMALS",
    "DIGITS",
    "HELD",
    "LETTERS",
    "OPERATIONS",
    "SLOTS",
    "STYLES",
    "Items",
    "Style",
    "write_answer",
]

SEEN = base.Sayings(p.OPERATIONS, p.STYLES, p.SENTENCES, p.LINKS, p.FILLERS)
SYLLABLES_FIRST = ("zor", "bli", "mav", "tru", "ked", "fon", "gra", "glo", "wex", "dri", "sno", "vul", "hap", "jin", "qua",
                   "lom", "rif", "cas", "yab", "ned")  # fmt: skip
SYLLABLES_SECOND = ("ka", "mo", "tep", "lin", "dus", "rax", "bo", "fi", "gan", "zel", "pim", "vor", "shi", "nu", "wick",
                    "jat", "cle", "hob", "yem", "sto")  # fmt: skip


def codeword_held(first: int, second: int) -> bool:
    """A fifth of all made-up words, given by the positions of their syllables, never occur in pretraining."""
    return (first * 7 + second * 3) % 5 == 0


def codewords(held: bool) -> list[str]:
    """The made-up words of pretraining, or the held-out ones; every syllable occurs in both."""
    return [
        first + second
        for i, first in enumerate(SYLLABLES_FIRST)
        for j, second in enumerate(SYLLABLES_SECOND)
        if codeword_held(i, j) == held
    ]


def combination_held(operations: Sequence[Operation], styles: Sequence[Style]) -> bool:
    """Whether a pair of an operation and a style, or of two operations in a row, is one that pretraining never has.

    A tenth of the former are such, and a twentieth of the latter.
    """
    order = [OPERATIONS.index(operation) for operation in operations]
    pairs = [(i, STYLES.index(style)) for i in order for style in styles]
    return any((i * 3 + j * 7) % 10 == 0 for i, j in [*pairs, *itertools.pairwise(order)])


@dataclass(frozen=True)
class Codeword(base.Codeword):
    """A word that may stand for one other operation for one kind of item."""

    exception: tuple[str, Operation] | None = None

    def apply(self, items: Items) -> Items:
        if self.exception and items and items[0] in ALPHABETS[self.exception[0]]:
            return self.exception[1].apply(items)
        return super().apply(items)

    def kinds(self) -> list[str]:
        """The kinds of items it can be asked about."""
        said = [*self.operations, *([self.exception[1]] if self.exception else [])]
        shifts = any(operation.name in ("next", "previous") for operation in said)
        return [kind for kind in ALPHABETS if kind != "animals" or not shifts]


def say_codeword(codeword: Codeword, draw: random.Random, held: bool = False) -> str:
    """One sentence that ties a word to its operations."""
    said = HELD if held else SEEN
    text = base.say_operations(codeword, draw, said)
    if codeword.exception:
        kind, other = codeword.exception
        other_text = base.say_operations(Codeword(codeword.word, (other,)), draw, said)
        text = base.say(p.EXCEPTIONS[held], draw, phrase=text, kind=kind, other=other_text)
    return base.say(said.sentences, draw, code=codeword.word, phrase=text) + "."


def say_style(style: Style, draw: random.Random, held: bool = False, spared: str | None = None) -> str:
    """One sentence about how answers are written, except perhaps for one word."""
    text = base.say_style(style, draw, HELD if held else SEEN)
    return base.say(p.SPARED[held], draw, style=text.removesuffix("."), code=spared) + "." if spared else text


def say_priority(counts: Literal["first", "last"], draw: random.Random, held: bool = False) -> str:
    """One sentence about which of two rules for the same word counts."""
    return base.say(p.PRIORITIES[counts][held], draw) + "."
