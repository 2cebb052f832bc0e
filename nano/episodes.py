"""Episodes of the universe: a system message with rules, and questions that each are answered by reading it.

One system message serves several questions. In training they are branches of a tree: each sees the message and itself, none
sees another, so nothing can be learnt from the answers of the others, only from the rules.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fastslow.tasks.rulebook import phrases as p
from fastslow.tasks.rulebook import universe as u


@dataclass(frozen=True)
class Difficulty:
    """What episodes are drawn from; the defaults are pretraining's."""

    lengths: tuple[int, int] = (2, 6)
    codewords: tuple[int, int] = (1, 5)
    two_operations: float = 0.35
    styles: tuple[int, int] = (0, 3)
    noise: tuple[int, int] = (0, 3)
    unruled: float = 0.08
    """Share of episodes without any rule, and of questions about a word that no rule explains: answered by a guess."""
    held_phrasings: bool = False
    """Rules in ways of saying that pretraining never uses, and only in those; likewise the two below."""
    held_codewords: bool = False
    held_combinations: bool = False
    """With one style: only pairs of it with an operation that pretraining never has by themselves."""


@dataclass(frozen=True)
class Episode:
    """One system message and questions under it."""

    system: str
    questions: Sequence[tuple[str, str]]
    """What the user says and the right answer."""


def make_episode(draw: random.Random, difficulty: Difficulty, questions: int) -> Episode:
    """A rulebook at random and questions about it. The order of the draws is part of what the shipped model is made of."""
    words = draw.sample(u.codewords(difficulty.held_codewords), difficulty.codewords[1] + 1)
    unruled = draw.random() < difficulty.unruled
    named = [] if unruled else words[: draw.randint(*difficulty.codewords)]
    rules = [u.Codeword(word, _operations(draw, difficulty)) for word in named]
    styles = _styles(draw, difficulty)
    while not _allowed(rules, styles, difficulty):
        styles = _styles(draw, difficulty)
        rules = [u.Codeword(rule.word, _operations(draw, difficulty)) for rule in rules]
    sentences = [u.say_codeword(rule, draw, difficulty.held_phrasings) for rule in rules]
    if rules:
        sentences += [u.say_style(style, draw, difficulty.held_phrasings) for style in styles]
    sentences += [f"{text}." for text in draw.sample(p.NOISE, draw.randint(*difficulty.noise))]
    draw.shuffle(sentences)
    asked: list[tuple[str, str]] = []
    while len(asked) < questions:
        alphabet = u.LETTERS if draw.random() < 0.75 else u.DIGITS
        items = [draw.choice(alphabet) for _ in range(draw.randint(*difficulty.lengths))]
        explained = bool(rules) and draw.random() >= difficulty.unruled
        rule = draw.choice(rules) if explained else u.Codeword(words[-1], (draw.choice(u.OPERATIONS),))
        chosen = styles if rules or draw.random() < 0.5 else []
        answer = rule.apply(items)
        if answer:  # two droppings can leave nothing of a short list
            asked.append((f"{rule.word} : {' '.join(items)}", u.write_answer(answer, chosen)))
        if unruled:  # nothing to go by, so nothing to be learnt from one answer for the next
            styles = _styles(draw, difficulty)
    return Episode(" ".join(sentences), asked)


def _allowed(rules: Sequence[u.Codeword], styles: Sequence[u.Style], difficulty: Difficulty) -> bool:
    if not difficulty.unruled and any(not rule.apply(["a"] * difficulty.lengths[1]) for rule in rules):
        return False  # such as keeping only the first and then dropping it: nothing could be asked about that word
    # Only the style drawn first is looked at: a pair is held out where there is one style, not beside others.
    return not styles or all(
        u.combination_held(rule.operations[0], styles[0]) == difficulty.held_combinations for rule in rules
    )


def _operations(draw: random.Random, difficulty: Difficulty) -> tuple[u.Operation, ...]:
    """One operation, or two different ones, for a word to stand for."""
    count = 2 if draw.random() < difficulty.two_operations else 1
    return tuple(draw.sample(u.OPERATIONS, count))


def _styles(draw: random.Random, difficulty: Difficulty) -> list[u.Style]:
    """Styles of different kinds, so that they never contradict each other."""
    kinds = draw.sample(("frame", "prefix", "suffix", "separator"), draw.randint(*difficulty.styles))
    return [draw.choice([style for style in u.STYLES if style.kind == kind]) for kind in kinds]
