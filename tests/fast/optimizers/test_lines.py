from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.optimizers.lines import (
    ADD,
    DROP,
    EXCHANGE,
    GENERIC,
    MOVE,
    change,
    cross,
    demonstration,
    distinct,
    plain_lines,
    vary,
)
from fastslow.fast.reflection import Attempt, ReflectionFailed

texts = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)
sources = st.dictionaries(st.sampled_from("efghijkl"), st.floats(0.1, 3), max_size=6)
seeds = st.integers(0, 10_000).map(random.Random)
repeatable = settings(deadline=None)


@repeatable
@given(texts, sources, seeds, st.sampled_from([ADD, DROP, EXCHANGE, MOVE]))
def test_a_change_is_one_change_of_its_kind(lines: list[str], source: dict, chance: random.Random, action: str) -> None:
    changed = change(action, lines, source, chance)
    possible = {ADD: set(source) - set(lines), DROP: lines[1:], MOVE: lines[1:]}
    possible[EXCHANGE] = possible[ADD] and lines[1:]
    assert (changed is not None) == bool(possible[action])
    if changed is None:
        return
    new, gone = set(changed) - set(lines), set(lines) - set(changed)
    assert new <= set(source)
    assert (len(new), len(gone)) == {ADD: (1, 0), DROP: (0, 1), EXCHANGE: (1, 1), MOVE: (0, 0)}[action]
    assert len(changed) == len(set(changed))
    if action == MOVE:
        assert changed != lines
    else:  # what stays keeps its order, and what is new comes last
        assert [line for line in lines if line in changed] == [line for line in changed if line in lines]
        assert not new or changed[-1] in new


@repeatable
@given(texts, sources, seeds)
def test_to_vary_is_to_change_or_to_say_that_nothing_can_be(
    lines: list[str], source: dict, chance: random.Random
) -> None:
    try:
        assert vary(lines, source, chance) != lines
    except ReflectionFailed:
        assert len(lines) == 1
        assert set(source) <= set(lines)


@repeatable
@given(texts, texts, seeds)
def test_a_cross_has_what_both_have_and_nothing_else(
    first: list[str], second: list[str], chance: random.Random
) -> None:
    crossed = cross(first, second, chance)
    assert set(first) & set(second) <= set(crossed) <= set(first) | set(second)
    assert crossed
    assert len(crossed) == len(set(crossed))


def test_lines_that_only_one_parent_has_come_with_an_even_chance() -> None:
    counts: Counter[str] = Counter()
    for seed in range(2000):
        counts.update(cross(["both", "a"], ["both", "b"], random.Random(seed)))
    assert counts["both"] == 2000
    for line in "ab":
        assert counts[line] / 2000 == pytest.approx(0.5, abs=4 * (0.25 / 2000) ** 0.5)


def test_the_first_line_goes_ten_times_less_often() -> None:
    gone = Counter(change(DROP, ["first", "second"], {}, random.Random(seed))[0] for seed in range(2200))
    assert gone["second"] / 2200 == pytest.approx(1 / 11, abs=0.025)


def test_the_same_line_in_another_dress_is_the_same_line() -> None:
    assert distinct(["- Sort it.", "sort  it.", "Stop.", "1. sort it."]) == ["- Sort it.", "Stop."]
    assert change(ADD, ["* Sort it."], {"sort it.": 1.0}, random.Random(0)) is None


def test_problems_become_single_lines() -> None:
    assert demonstration(Attempt("2 +\n 2", "4", "", 1.0)) == "For 2 + 2 the answer is 4."
    assert list(plain_lines([], ["one\n\n  two "]))[-2:] == ["one", "two"]
    assert len(demonstration(Attempt("x " * 999, "4", "", 1.0))) == 300


def test_generic_advice_is_distinct() -> None:
    assert len(distinct(GENERIC)) == len(GENERIC)
