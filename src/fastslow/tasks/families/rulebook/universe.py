"""The universe of small tasks that `nano` was made for: rules in plain English about what to do with a short list.

A rule ties a made-up word to operations ("zorka means write the list backwards"), perhaps to others for one kind of item, or
says how every answer is written: a frame around it, a word before or after it, what stands between the items. Each can be
said in many ways. Some of them (`held`) never occur in pretraining; every word in them does.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fastslow.tasks.families.rulebook import phrases as p

Items = list[str]
Kind = Literal["frame", "prefix", "suffix", "separator"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
ANIMALS = ("ant", "bat", "cat", "dog", "eel", "fox", "goat", "hen", "jay", "lark", "mole", "owl", "pig", "rat", "seal",
           "toad", "vole", "wolf", "yak", "zebra")  # fmt: skip
ALPHABETS: dict[str, Sequence[str]] = {"letters": LETTERS, "numbers": DIGITS, "animals": ANIMALS}
"""What items there are, by what they are called; a list has items of one kind."""
ITEMS = frozenset(item for alphabet in ALPHABETS.values() for item in alphabet)


DIVISION = 25
"""The first number by which every word of what is held out also occurs in what is not."""


def _divided(ways: p.Ways, held: int, name: str) -> tuple[p.Ways, p.Ways]:
    """Ways of saying: those of pretraining, and a few held out, drawn at random."""
    out = random.Random(f"held out {DIVISION}: {name}").sample(ways, held)
    return tuple(way for way in ways if way not in out), tuple(way for way in ways if way in out)


@dataclass(frozen=True)
class Operation:
    """Something to do with a list, and ways to say it."""

    name: str
    apply: Callable[[Items], Items]
    seen: tuple[str, ...]
    held: tuple[str, ...]


@dataclass(frozen=True)
class Style:
    """One way every answer must be written."""

    name: str
    kind: Kind
    apply: Callable[[str], str]
    seen: tuple[str, ...]
    held: tuple[str, ...]


def _shift(by: int) -> Callable[[Items], Items]:
    """The item so many places on in the alphabet or among the digits; animals have no such place."""

    def shifted(item: str) -> str:
        alphabet = LETTERS if item in LETTERS else DIGITS
        return alphabet[(alphabet.index(item) + by) % len(alphabet)]

    return lambda items: [shifted(item) for item in items]


_APPLY: dict[str, Callable[[Items], Items]] = {
    "reverse": lambda items: items[::-1],
    "ascend": sorted,
    "descend": lambda items: sorted(items, reverse=True),
    "drop first": lambda items: items[1:],
    "drop last": lambda items: items[:-1],
    "first to end": lambda items: items[1:] + items[:1],
    "last to front": lambda items: items[-1:] + items[:-1],
    "swap ends": lambda items: items[-1:] + items[1:-1] + items[:1] if len(items) > 1 else items,
    "double": lambda items: [item for item in items for _ in range(2)],
    "repeat": lambda items: items * 2,
    "next": _shift(1),
    "previous": _shift(-1),
    "first only": lambda items: items[:1],
    "last only": lambda items: items[-1:],
    "copy": list,
}
OPERATIONS = tuple(Operation(name, _APPLY[name], *_divided(ways, 3, name)) for name, ways in p.OPERATION_WAYS.items())


def _style(name: str, kind: Kind, apply: Callable[[str], str], one: str = "", called: str = "") -> Style:
    seen, held = (
        tuple(way.replace("{name}", called or name).replace("{one}", one) for way in ways)
        for ways in _divided(p.STYLE_WAYS[kind], 3, kind)
    )
    return Style(name, kind, apply, seen, held)


def _frame(left: str, right: str) -> Callable[[str], str]:
    return lambda answer: f"{left} {answer} {right}"


def _prefixed(word: str) -> Callable[[str], str]:
    return lambda answer: f"{word} : {answer}"


def _suffixed(word: str) -> Callable[[str], str]:
    return lambda answer: f"{answer} {word}"


def _separated(mark: str) -> Callable[[str], str]:
    return lambda answer: f" {mark} ".join(answer.split())


STYLES = (
    _style("round brackets", "frame", _frame("(", ")")),
    _style("square brackets", "frame", _frame("[", "]")),
    _style("stars", "frame", _frame("*", "*")),
    _style("bars", "frame", _frame("|", "|")),
    _style("arrows", "frame", _frame("<", ">")),
    *(
        _style(f"begin {word}", "prefix", _prefixed(word), called=word)
        for word in ("answer", "result", "output", "reply")
    ),
    *(_style(f"end {word}", "suffix", _suffixed(word), called=word) for word in ("done", "over", "finished", "okay")),
    _style("commas", "separator", _separated(","), one="comma"),
    _style("dashes", "separator", _separated("-"), one="dash"),
    _style("slashes", "separator", _separated("/"), one="slash"),
    _style("plus signs", "separator", _separated("+"), one="plus sign"),
)

SYLLABLES_FIRST = ("zor", "bli", "mav", "tru", "ked", "fon", "gra", "glo", "wex", "dri", "sno", "vul", "hap", "jin", "qua",
                   "lom", "rif", "cas", "yab", "ned")  # fmt: skip
SYLLABLES_SECOND = ("ka", "mo", "tep", "lin", "dus", "rax", "bo", "fi", "gan", "zel", "pim", "vor", "shi", "nu", "wick",
                    "jat", "cle", "hob", "yem", "sto")  # fmt: skip


SENTENCES = _divided(p.SENTENCES, 10, "sentences")
LINKS = _divided(p.LINKS, 2, "links")
EXCEPTIONS = _divided(p.EXCEPTIONS, 2, "exceptions")
SPARED = _divided(p.SPARED, 2, "spared")
PRIORITIES = {counts: _divided(ways, 2, counts) for counts, ways in p.PRIORITIES.items()}


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
class Codeword:
    """What a made-up word means: operations one after the other, or one other operation for one kind of item."""

    word: str
    operations: tuple[Operation, ...]
    exception: tuple[str, Operation] | None = None

    def apply(self, items: Items) -> Items:
        if self.exception and items and items[0] in ALPHABETS[self.exception[0]]:
            return self.exception[1].apply(items)
        for operation in self.operations:
            items = operation.apply(items)
        return items

    def kinds(self) -> list[str]:
        """The kinds of items it can be asked about."""
        said = [*self.operations, *([self.exception[1]] if self.exception else [])]
        shifts = any(operation.name in ("next", "previous") for operation in said)
        return [kind for kind in ALPHABETS if kind != "animals" or not shifts]


def write_answer(items: Items, styles: Sequence[Style]) -> str:
    """The answer text: separators first, then frame, then words before and after."""
    answer = " ".join(items)
    for kind in ("separator", "frame", "prefix", "suffix"):
        for style in styles:
            if style.kind == kind:
                answer = style.apply(answer)
    return answer


def say_codeword(codeword: Codeword, draw: random.Random, held: bool = False) -> str:
    """One sentence that ties a word to its operations."""
    text = _phrase(codeword.operations[0], draw, held)
    for operation in codeword.operations[1:]:
        text = _way(LINKS, draw, held, first=text, second=_phrase(operation, draw, held))
    if codeword.exception:
        kind, other = codeword.exception
        text = _way(EXCEPTIONS, draw, held, phrase=text, kind=kind, other=_phrase(other, draw, held))
    return _way(SENTENCES, draw, held, code=codeword.word, phrase=text) + "."


def say_style(style: Style, draw: random.Random, held: bool = False, spared: str | None = None) -> str:
    """One sentence about how answers are written, except perhaps for one word."""
    text = _filled(_way((style.seen, style.held), draw, held), draw, held)
    return (_way(SPARED, draw, held, style=text, code=spared) if spared else text) + "."


def say_priority(counts: Literal["first", "last"], draw: random.Random, held: bool = False) -> str:
    """One sentence about which of two rules for the same word counts."""
    return _way(PRIORITIES[counts], draw, held) + "."


def _phrase(operation: Operation, draw: random.Random, held: bool) -> str:
    return _filled(_way((operation.seen, operation.held), draw, held), draw, held)


def _way(ways: tuple[p.Ways, p.Ways], draw: random.Random, held: bool, **parts: str) -> str:
    """One of the ways, its slots filled: by `parts`, or at random."""
    return re.sub(
        r"\{(\w+)\}", lambda slot: parts.get(slot[1]) or draw.choice(p.SLOTS[slot[1]]), draw.choice(ways[held])
    )


def _filled(text: str, draw: random.Random, held: bool) -> str:
    """Now and then a word that means nothing, so that sentences are read rather than recognised."""
    return f"{draw.choice(p.FILLERS)} {text}" if not held and draw.random() < 0.2 else text
