"""The universe of small tasks that `nano` was made for: rules in plain English about what to do with a short list.

A rule ties a made-up word to one or two operations ("zorka means write the list backwards"), or says how every answer is
written: a frame around it, a word before or after it, what stands between the items. Each can be said in many ways. Some ways
of saying (`held`) never occur in pretraining; every word in them does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fastslow.tasks.rulebook.phrases import (
    FILLERS,
    LINKS_HELD,
    LINKS_SEEN,
    LISTS,
    OPERATION_WAYS,
    SENTENCES_HELD,
    SENTENCES_SEEN,
    STYLE_WAYS,
    VERBS,
)

Items = list[str]
Kind = Literal["frame", "prefix", "suffix", "separator"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"


@dataclass(frozen=True)
class Operation:
    """Something to do with a list, and ways to say it; `{w}` stands for a verb of writing, `{o}` for the list."""

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
OPERATIONS = tuple(Operation(name, _APPLY[name], *ways) for name, ways in OPERATION_WAYS.items())


def _style(name: str, kind: Kind, apply: Callable[[str], str], one: str = "", called: str = "") -> Style:
    seen, held = (
        tuple(way.replace("{name}", called or name).replace("{one}", one) for way in ways) for ways in STYLE_WAYS[kind]
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


def combination_held(operation: Operation, style: Style) -> bool:
    """A tenth of the pairs of a word's first operation and a style never make up a rulebook of that one style.

    Beside other styles they do occur in pretraining: what is held out is the pair alone, not the two together.
    """
    return (OPERATIONS.index(operation) * 3 + STYLES.index(style) * 7) % 10 == 0


@dataclass(frozen=True)
class Codeword:
    """What a made-up word means."""

    word: str
    operations: tuple[Operation, ...]

    def apply(self, items: Items) -> Items:
        for operation in self.operations:
            items = operation.apply(items)
        return items


def write_answer(items: Items, styles: Sequence[Style]) -> str:
    """The answer text: separators first, then frame, then words before and after."""
    answer = " ".join(items)
    for kind in ("separator", "frame", "prefix", "suffix"):
        for style in styles:
            if style.kind == kind:
                answer = style.apply(answer)
    return answer


def phrase(operation: Operation, draw: random.Random, held: bool) -> str:
    """One way to say an operation."""
    text = draw.choice(operation.held if held else operation.seen)
    text = text.replace("{w}", draw.choice(VERBS)).replace("{o}", draw.choice(LISTS))
    return text if held else _filled(text, draw)


def _filled(text: str, draw: random.Random) -> str:
    """Now and then a word that means nothing, so that sentences are read rather than recognised."""
    return f"{draw.choice(FILLERS)} {text}" if draw.random() < 0.2 else text


def say_codeword(codeword: Codeword, draw: random.Random, held: bool = False) -> str:
    """One sentence that ties a word to its operations."""
    parts = [phrase(operation, draw, held) for operation in codeword.operations]
    text = parts[0]
    if len(parts) > 1:
        text = draw.choice(LINKS_HELD if held else LINKS_SEEN).replace("{a}", parts[0]).replace("{b}", parts[1])
    return (
        draw.choice(SENTENCES_HELD if held else SENTENCES_SEEN)
        .replace("{code}", codeword.word)
        .replace("{phrase}", text)
        + "."
    )


def say_style(style: Style, draw: random.Random, held: bool = False) -> str:
    """One sentence about how answers are written."""
    text = draw.choice(style.held if held else style.seen)
    return (text if held else _filled(text, draw)) + "."
