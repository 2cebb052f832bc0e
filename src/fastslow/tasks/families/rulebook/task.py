"""Rulebooks: a hidden book of rules decides what is right, the model does not see it, and the grader's feedback gives the
rules away one at a time. Two dials: how much must be *known* (text can carry it) and how much *skill* it takes (only weights
can)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, model_validator

from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Feedback, Message, Split
from fastslow.tasks.data import GeneratedOptions, GeneratedTask, split_of
from fastslow.tasks.families.rulebook import universe as u

BookName = Literal["harbour", "orchard", "foundry", "library", "observatory"]


@dataclass(frozen=True)
class Book:
    """Made-up words with their operations, as many of which count as the depth says, and how answers are written."""

    words: Mapping[str, Sequence[str]]
    styles: Sequence[str]


BOOKS = {
    name: Book(**given) for name, given in yaml.safe_load(Path(__file__).with_name("books.yaml").read_text()).items()
}
OPERATION = {operation.name: operation for operation in u.OPERATIONS}
STYLE = {style.name: style for style in u.STYLES}
OUTSIDE_IN: tuple[u.Kind, ...] = ("suffix", "prefix", "frame", "separator")


class RulebookOptions(GeneratedOptions):
    book: BookName = "harbour"
    """Which rulebook is hidden."""
    words: int = Field(default=4, ge=1, le=6)
    """Knowledge: how many made-up words there are to learn."""
    styles: int = Field(default=1, ge=0, le=3)
    """Knowledge: how many rules there are about how an answer is written."""
    shortest: int = Field(default=3, ge=2)
    """Skill: items of the shortest list. nano was trained on 2 to 6, and on few beyond."""
    longest: int = Field(default=5, ge=2, le=24)
    """Skill: items of the longest list."""
    depth: int = Field(default=1, ge=1, le=3)
    """Skill: operations a word stands for, one after the other. nano was trained on 1 and 2."""
    told: int = Field(default=0, ge=0, le=6)
    """How many of the words the seed text explains: for these only the skill is left to learn."""

    @model_validator(mode="after")
    def _ordered(self) -> RulebookOptions:
        if self.shortest > self.longest:
            raise ValueError(
                f"shortest={self.shortest} is more than longest={self.longest}; "
                f"set longest to {self.shortest} or more, or lower shortest"
            )
        return self


class Rulebook(GeneratedTask):
    """Do what a made-up word means to a short list, by rules that only the grader knows."""

    Options = RulebookOptions
    named = "book"
    options: RulebookOptions

    def __init__(self, options: RulebookOptions) -> None:
        super().__init__(options)
        book = BOOKS[options.book]
        self.words = {
            word: u.Codeword(word, tuple(OPERATION[name] for name in names[: options.depth]))
            for word, names in list(book.words.items())[: options.words]
        }
        self.styles = [STYLE[name] for name in book.styles[: options.styles]]
        draw = random.Random(options.book)
        told = [u.say_codeword(word, draw) for word in list(self.words.values())[: options.told]]
        self.seed_text = "\n".join([self.seed_text, *told])

    def rules(self, draw: random.Random) -> list[str]:
        """The whole book, in one way of saying it."""
        return [
            *(u.say_codeword(word, draw) for word in self.words.values()),
            *(u.say_style(style, draw) for style in self.styles),
        ]

    def _example(self, split: Split, index: int) -> Example:
        options = self.options
        draw = random.Random(f"{options.seed}/{options.book}/{split}/{index}")
        word = draw.choice(list(self.words))
        items: list[str] = []
        while not self.words[word].apply(items) or split_of([word, *items]) != split:
            alphabet = u.LETTERS if draw.random() < 0.75 else u.DIGITS
            items = [draw.choice(alphabet) for _ in range(draw.randint(options.shortest, options.longest))]
        name = f"rulebook-{options.book}-w{options.words}-s{options.styles}-l{options.shortest}-{options.longest}"
        return Example(f"{name}-d{options.depth}-seed{options.seed}/{split}/{index}", {"word": word, "items": items})

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": f"{example.data['word']} : {' '.join(example.data['items'])}"}]

    def answer(self, example: Example) -> str:
        return u.write_answer(self._right_items(example), self.styles)

    def _right_items(self, example: Example) -> u.Items:
        return self.words[example.data["word"]].apply(list(example.data["items"]))

    def grade(self, example: Example, answer: str) -> Feedback:
        """1 for exactly the right answer; otherwise, for each rule that was broken, a line on how and a line with the rule.

        The rule is a sentence that holds for every problem and can be lifted as it stands; the line on how names the answer.
        """
        given = " ".join(answer.split())
        if given == self.answer(example):
            return Feedback(1.0, "Right.")
        draw = random.Random(example.id)
        broken, items = read(given, self.styles)
        lines = []
        for style in broken:
            shown = f"The answer {one_line(given, 120)}" if given else "The empty answer"
            lines += [f"{shown} does not {demand(style)}.", u.say_style(style, draw)]
        word, right = self.words[example.data["word"]], self._right_items(example)
        if items != right:
            found = f"do not become {one_line(' '.join(items), 120)}" if items else "do not become nothing"
            lines += [
                f"For {word.word} the items {' '.join(example.data['items'])} {found}.",
                u.say_codeword(word, draw),
            ]
        return Feedback(0.0, "\n".join(lines))


def read(answer: str, styles: Sequence[u.Style]) -> tuple[list[u.Style], u.Items]:
    """The styles an answer breaks, in their order, and its items, taken apart from the outside in.

    Where none is broken, the items are all that is left, whatever it is: so a wrong answer breaks a style or has wrong items.
    """
    parts = answer.split()
    broken: list[u.Style] = []
    for kind in OUTSIDE_IN:
        for style in styles:
            if style.kind == kind:
                inside = _inside(style, parts, exact=not broken)
                if inside is None:
                    broken.append(style)
                else:
                    parts = inside
    return [style for style in styles if style in broken], [*filter(u.ITEMS.__contains__, parts)] if broken else parts


def demand(style: u.Style) -> str:
    """What a style asks of an answer, in its very marks."""
    before, between, after = _marks(style)
    if between:
        return f"have {between} between every two items"
    ends = [("begin", before), ("end", after)]
    return " and ".join(f"{verb} with {' '.join(marks)}" for verb, marks in ends if marks)


def _inside(style: u.Style, parts: list[str], exact: bool) -> list[str] | None:
    """What is left when a style's marks are taken off, or nothing where they are not there.

    Unless `exact`, a rule further outside is broken already, and that one answers for what stands around the marks.
    """
    before, between, after = _marks(style)
    if between:
        items = [index for index, part in enumerate(parts) if part in u.ITEMS]
        if not exact and items:
            parts = parts[items[0] : items[-1] + 1]
        kept = parts[1::2] == [between] * (len(parts) // 2) and between not in parts[::2]
        return parts[::2] if kept and (len(parts) % 2 or not parts) else None
    if before and after and not exact and before[0] in parts and after[0] in parts:
        parts = parts[parts.index(before[0]) : len(parts) - parts[::-1].index(after[0])]
    end = len(parts) - len(after)
    kept = end >= len(before) and parts[: len(before)] == before and parts[end:] == after
    return parts[len(before) : end] if kept else None


def _marks(style: u.Style) -> tuple[list[str], str, list[str]]:
    """What stands before an answer, between its items and after it."""
    written = style.apply("x y").split()
    x, y = written.index("x"), written.index("y")
    return written[:x], " ".join(written[x + 1 : y]), written[y + 1 :]
