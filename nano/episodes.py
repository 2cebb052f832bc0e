"""Episodes of the universe: a system message with rules, and questions that each are answered by reading it.

One system message serves several questions. In training they are branches of a tree: each sees the message and itself, none
sees another, so nothing can be learnt from the answers of the others, only from the rules.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import phrases as p
import universe as u

T = TypeVar("T")


@dataclass(frozen=True)
class Difficulty:
    """What episodes are drawn from; the defaults are pretraining's."""

    lengths: tuple[int, int] = (2, 6)
    longer: float = 0.01
    """Share of lists that are longer than that. Each further item makes a list five times as rare, so that the skill for long
    lists fades out rather than breaks off."""
    codewords: tuple[int, int] = (1, 5)
    operations: tuple[float, ...] = (0.65, 0.35)
    """Shares of words that stand for one operation, for two in a row, and so on."""
    styles: tuple[int, int] = (0, 3)
    noise: tuple[int, int] = (0, 3)
    exceptions: float = 0.12
    """Share of words that mean something else for one kind of item, and of styles that spare one word."""
    priorities: float = 0.12
    """Share of messages with two rules about the same word, and one about which of them counts."""
    unruled: float = 0.08
    """Share of episodes without any rule, and of questions about a word that no rule explains: answered by a guess."""
    held_phrasings: bool = False
    """Rules in ways of saying that pretraining never uses, and only in those; likewise the two below."""
    held_codewords: bool = False
    held_combinations: bool = False
    """Every word has an operation that pretraining never has with one of the styles, or never after the one before it."""


@dataclass(frozen=True)
class Episode:
    """One system message and questions under it."""

    system: str
    questions: Sequence[tuple[str, str]]
    """What the user says and the right answer."""


def make_episode(draw: random.Random, difficulty: Difficulty, questions: int) -> Episode:
    """A rulebook at random and questions about it. The order of the draws is part of what the shipped model is made of."""
    words = draw.sample(u.codewords(difficulty.held_codewords), difficulty.codewords[1] + 1)
    held, unknown = difficulty.held_phrasings, words.pop()
    if draw.random() < difficulty.unruled:
        guesses = [_guess(draw, difficulty, unknown, _styles(draw, difficulty)) for _ in range(questions)]
        return Episode(" ".join(_noise(draw, difficulty)), guesses)
    words = words[: draw.randint(*difficulty.codewords)]
    styles = {style: _sometimes(draw, difficulty.exceptions, words) for style in _styles(draw, difficulty)}
    said: list[tuple[str, u.Codeword | None]] = []
    counts = _sometimes(draw, difficulty.priorities, ("first", "last"))
    if counts:
        said.append((u.say_priority(counts, draw, held), None))
    for word in [*words, words[0]] if counts else words:
        rule = _codeword(draw, difficulty, word, [*styles])
        said.append((u.say_codeword(rule, draw, held), rule))
    said += [(u.say_style(style, draw, held, spared), None) for style, spared in styles.items()]
    said += [(sentence, None) for sentence in _noise(draw, difficulty)]
    draw.shuffle(said)
    rules = [rule for _, rule in said if rule]
    meaning = {rule.word: rule for rule in (reversed(rules) if counts == "first" else rules)}
    asked = []
    for _ in range(questions):
        if draw.random() < difficulty.unruled:
            asked.append(_guess(draw, difficulty, unknown, [*styles]))
        else:
            word = draw.choice(words)
            asked.append(_ask(draw, difficulty, meaning[word], [s for s, spared in styles.items() if spared != word]))
    return Episode(" ".join(sentence for sentence, _ in said), asked)


def _codeword(draw: random.Random, difficulty: Difficulty, word: str, styles: Sequence[u.Style]) -> u.Codeword:
    """A meaning for a word, such that something can be asked about it, made of what may stand together."""
    while True:
        count = draw.choices(range(1, len(difficulty.operations) + 1), difficulty.operations)[0]
        operations = tuple(draw.sample(u.OPERATIONS, count))
        kind = _sometimes(draw, difficulty.exceptions, [*u.ALPHABETS])
        rule = u.Codeword(word, operations, (kind, draw.choice(u.OPERATIONS)) if kind else None)
        parts = [operations, (rule.exception[1],)] if rule.exception else [operations]
        fits = {u.combination_held(part, styles) for part in parts} == {difficulty.held_combinations}
        if fits and kind in (None, *rule.kinds()) and u.Codeword(word, operations).apply(["a"] * difficulty.lengths[1]):
            return rule


def _ask(draw: random.Random, difficulty: Difficulty, rule: u.Codeword, styles: Sequence[u.Style]) -> tuple[str, str]:
    """A question and its answer."""
    while True:
        alphabet = u.ALPHABETS[draw.choice(["letters", "letters", *rule.kinds()])]
        items = [draw.choice(alphabet) for _ in range(_length(draw, difficulty))]
        if answer := rule.apply(items):  # two droppings can leave nothing of a short list
            return f"{rule.word} : {' '.join(items)}", u.write_answer(answer, styles)


def _guess(draw: random.Random, difficulty: Difficulty, word: str, styles: Sequence[u.Style]) -> tuple[str, str]:
    """A question about a word that no rule explains."""
    return _ask(draw, difficulty, u.Codeword(word, (draw.choice(u.OPERATIONS),)), styles)


def _length(draw: random.Random, difficulty: Difficulty) -> int:
    if draw.random() >= difficulty.longer:
        return draw.randint(*difficulty.lengths)
    length = difficulty.lengths[1] + 1
    while draw.random() < 0.2:
        length += 1
    return length


def _noise(draw: random.Random, difficulty: Difficulty) -> list[str]:
    return [f"{text}." for text in draw.sample(p.NOISE, draw.randint(*difficulty.noise))]


def _sometimes(draw: random.Random, share: float, options: Sequence[T]) -> T | None:
    return draw.choice(options) if draw.random() < share else None


def _styles(draw: random.Random, difficulty: Difficulty) -> list[u.Style]:
    """Styles of different kinds, so that they never contradict each other."""
    kinds = draw.sample(("frame", "prefix", "suffix", "separator"), draw.randint(*difficulty.styles))
    return [draw.choice([style for style in u.STYLES if style.kind == kind]) for kind in kinds]
