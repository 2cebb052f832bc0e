"""The universe of small tasks that `nano` was made for: rules in plain English about what to do with a short list.

A rule ties a made-up word to operations ("zorka means write the list backwards"), or says how every answer is written: a
frame around it, a word before or after it, what stands between the items. Each can be said in many ways.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

Ways = Sequence[str]
Items = list[str]
Kind = Literal["frame", "prefix", "suffix", "separator"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
ANIMALS = ("ant", "bat", "cat", "dog", "eel", "fox", "goat", "hen", "jay", "lark", "mole", "owl", "pig", "rat", "seal",
           "toad", "vole", "wolf", "yak", "zebra")  # fmt: skip
ALPHABETS: dict[str, Sequence[str]] = {"letters": LETTERS, "numbers": DIGITS, "animals": ANIMALS}
"""What items there are, by what they are called; a list has items of one kind."""
ITEMS = frozenset(item for alphabet in ALPHABETS.values() for item in alphabet)


@dataclass(frozen=True)
class Operation:
    """Something to do with a list."""

    name: str
    apply: Callable[[Items], Items]


@dataclass(frozen=True)
class Style:
    """One way every answer must be written; what it is called in a sentence, and one of its marks."""

    name: str
    kind: Kind
    apply: Callable[[str], str]
    called: str
    one: str = ""


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
OPERATIONS = tuple(Operation(name, apply) for name, apply in _APPLY.items())


def _separated(mark: str) -> Callable[[str], str]:
    return lambda answer: f" {mark} ".join(answer.split())


_FRAMES = {"round brackets": "()", "square brackets": "[]", "stars": "**", "bars": "||", "arrows": "<>"}
_SEPARATORS = {
    ",": ("comma", "commas"),
    "-": ("dash", "dashes"),
    "/": ("slash", "slashes"),
    "+": ("plus sign", "plus signs"),
}
STYLES = (
    *(Style(name, "frame", f"{marks[0]} {{}} {marks[1]}".format, name) for name, marks in _FRAMES.items()),
    *(
        Style(f"begin {word}", "prefix", f"{word} : {{}}".format, word)
        for word in ("answer", "result", "output", "reply")
    ),
    *(Style(f"end {word}", "suffix", f"{{}} {word}".format, word) for word in ("done", "over", "finished", "okay")),
    *(Style(many, "separator", _separated(mark), many, one) for mark, (one, many) in _SEPARATORS.items()),
)


@dataclass(frozen=True)
class Codeword:
    """What a made-up word means: operations one after the other."""

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


@dataclass(frozen=True)
class Sayings:
    """Ways to say what rules are made of."""

    operations: Mapping[str, Ways]
    styles: Mapping[str, Ways]
    sentences: Ways
    links: Ways
    fillers: Ways = ()
    """Words that mean nothing and come now and then, so that sentences are read rather than recognised."""

    def filled(self, text: str, draw: random.Random) -> str:
        return f"{draw.choice(self.fillers)} {text}" if self.fillers and draw.random() < 0.2 else text


_PHRASES = yaml.safe_load(Path(__file__).with_name("phrases.yaml").read_text())
SLOTS: Mapping[str, Ways] = _PHRASES.pop("slots")
HELD = Sayings(**_PHRASES)
"""Those that nano never saw."""


def say_codeword(codeword: Codeword, draw: random.Random, said: Sayings = HELD) -> str:
    """One sentence that ties a word to its operations."""
    return say(said.sentences, draw, code=codeword.word, phrase=say_operations(codeword, draw, said)) + "."


def say_operations(codeword: Codeword, draw: random.Random, said: Sayings) -> str:
    text = ""
    for operation in codeword.operations:
        phrase = said.filled(say(said.operations[operation.name], draw), draw)
        text = say(said.links, draw, first=text, second=phrase) if text else phrase
    return text


def say_style(style: Style, draw: random.Random, said: Sayings = HELD) -> str:
    """One sentence about how answers are written."""
    return said.filled(say(said.styles[style.kind], draw, name=style.called, one=style.one), draw) + "."


def say(ways: Ways, draw: random.Random, **parts: str) -> str:
    """One of the ways, its slots filled: by `parts`, or at random."""
    return re.sub(r"\{(\w+)\}", lambda slot: parts.get(slot[1]) or draw.choice(SLOTS[slot[1]]), draw.choice(ways))
