"""Which statements say the same in other words.

A grader that writes freely, as a model does, seldom says a rule twice in the same words. Two statements are taken for one if
they name the same labels and share words that are said with these labels: what a rule is about comes with its label, while
the grader's turns of phrase come with any. Words can seem to belong to a label until they are heard with another; statements
that were taken for one by mistake then come apart again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from fastslow.fast.digest.topics import word_list

MOSTLY = 0.75
"""A word belongs to the labels that this share of the statements with it name: some of them may be false."""
BY_CHANCE = 0.25
"""How likely a word may be to be said with the same labels each time if it had nothing to do with them."""
ENOUGH = 0.65
"""The part of its words that belong to its labels, weighed by their rarity, that a statement shares with a restatement."""
EARLIEST = 8
"""Of the statements with a word, those that later ones are compared with; there may be thousands."""


def restatements(texts: Mapping[str, str], frames: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """By key: for a statement that says the same as an earlier one, the earliest. `frames` has the component and the words of
    every statement that names labels, which are left out; both mappings are in the order in which statements were made."""
    labels: dict[str, frozenset[str]] = {}
    having: dict[tuple[str, str], list[str]] = {}
    for key, (component, *frame) in frames.items():
        spelled = word_list(texts[key])
        labels[key] = frozenset(word for word, kept in zip(spelled, frame, strict=True) if not kept)
        for word in dict.fromkeys(filter(None, frame)):
            having.setdefault((component, word), []).append(key)
    share = {each: times / len(frames) for each, times in Counter(labels.values()).items()}
    whole = dict.fromkeys(frames, 0.0)
    shared: Counter[tuple[str, str]] = Counter()
    for keys in having.values():
        usual, times = Counter(labels[key] for key in keys).most_common(1)[0]
        if times < MOSTLY * len(keys) or (len(keys) > 1 and share[usual] ** (times - 1) > BY_CHANCE):
            continue
        rarity = math.log((len(frames) + 1) / len(keys))
        belonging = [key for key in keys if labels[key] == usual]
        for place, key in enumerate(belonging):
            whole[key] += rarity
            for earlier in belonging[: min(place, EARLIEST)]:
                shared[earlier, key] += rarity  # type: ignore[assignment]
    order = {key: place for place, key in enumerate(frames)}
    first: dict[str, str] = {}
    for (key, later), part in sorted(shared.items(), key=lambda pair: order[pair[0][0]]):
        if part >= ENOUGH * max(whole[key], whole[later]) and not _alike(frames[key], frames[later]):
            first.setdefault(later, first.get(key, key))
    return first


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two statements are one turn of phrase about two things: word by word the same but for two words or a third."""
    return len(one) == len(other) and sum(a != b for a, b in zip(one, other, strict=True)) <= max(2, len(one) // 3)
