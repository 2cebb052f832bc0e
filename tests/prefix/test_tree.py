"""Shared beginnings and the two layouts, against what a tree is and against every way to divide prompts."""

from __future__ import annotations

from itertools import pairwise, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_helpers import Rows, path, rows

from fastslow.prefix.tree import UNSCORED, cut_by_tokens, lexicographic, prompt_tree, sort_by_prefix, token_tree


def leading(one: list[int], other: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 255, 256, 70_000]), max_size=6), max_size=9))
def test_rows_are_sorted_as_lists_are_and_share_what_they_share(made: list[list[int]]) -> None:
    order, shared = sort_by_prefix(made)
    assert order == lexicographic(made) == sorted(range(len(made)), key=lambda index: (made[index], index))
    for first in range(len(made)):
        for last in range(first + 1, len(made)):
            assert min(shared[first + 1 : last + 1]) == leading(made[order[first]], made[order[last]])


# For training --------------------------------------------------------------------------------------------------------


@given(rows())
@settings(max_examples=100, deadline=None)
def test_every_completion_token_is_scored_after_exactly_what_precedes_it(made: Rows) -> None:
    tree = token_tree(*made)
    for prompt, completion, places in zip(*made, tree.places, strict=True):
        assert len(places) == len(completion)
        for index, place in enumerate(places):
            before = path(tree, place)
            assert tree.tokens[before].tolist() == [*prompt, *completion[:index]]
            assert tree.positions[before].tolist() == list(range(len(before)))
            assert tree.labels[place] == completion[index]
    scored = {place for places in tree.places for place in places}
    assert scored == set(np.flatnonzero(tree.labels != UNSCORED))


@given(rows())
@settings(max_examples=100, deadline=None)
def test_only_scoring_repeats_a_beginning(made: Rows) -> None:
    """Places with descendants are distinct beginnings; with copies, there are no more places than distinct beginnings."""
    tree = token_tree(*made)
    whole = [(*prompt, *completion) for prompt, completion in zip(*made, strict=True) if completion]
    beginnings = {row[:end] for row in whole for end in range(1, len(row) + 1)}
    inner = {row[:end] for row in whole for end in range(1, len(row))}
    assert len(tree) <= max(len(beginnings), 1)
    followed = [place for place in range(len(tree)) if tree.ends[place] > place + 1]
    assert len({tuple(tree.tokens[path(tree, place)]) for place in followed}) == len(followed)
    if whole:
        assert {tuple(tree.tokens[path(tree, place)]) for place in range(len(tree))} == inner


def test_without_completions_there_is_still_a_row_to_run() -> None:
    tree = token_tree([[1, 2], []], [[], []])
    assert len(tree) == 1
    assert tree.labels.tolist() == [UNSCORED]


def test_a_completion_needs_a_prompt() -> None:
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        token_tree([[1], []], [[2], [2]])


# For sampling --------------------------------------------------------------------------------------------------------

prompts_of_few_tokens = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=12)


def computed(prompts: list[list[int]]) -> int:
    """Tokens that are computed before decoding starts."""
    tree = prompt_tree(prompts)
    return sum(map(len, tree.contexts)) + sum(map(len, tree.problems))


@given(prompts_of_few_tokens)
def test_a_tree_holds_its_prompts_and_nothing_else(prompts: list[list[int]]) -> None:
    tree = prompt_tree(prompts)
    assert sorted(tree.prompt_of) == list(range(len(prompts)))
    for problem, last, position, prompt in zip(tree.problem_of, tree.last, tree.positions, tree.prompt_of, strict=True):
        whole = [*tree.contexts[tree.context_of[problem]], *tree.problems[problem], last]
        assert whole == prompts[prompt]
        assert position == len(whole) - 1
    assert len(set(tree.contexts)) == len(tree.contexts)
    assert len(set(zip(tree.context_of, tree.problems, strict=True))) == len(tree.problems)


@given(prompts_of_few_tokens)
def test_rows_that_share_are_neighbours(prompts: list[list[int]]) -> None:
    tree = prompt_tree(prompts)
    for owners in (tree.problem_of, [tree.context_of[problem] for problem in tree.problem_of]):
        changes = sum(one != other for one, other in pairwise(owners))
        assert changes == len(set(owners)) - 1


@given(prompts_of_few_tokens)
def test_no_way_to_cut_sorted_prompts_computes_less(prompts: list[list[int]]) -> None:
    bodies = sorted({tuple(prompt[:-1]) for prompt in prompts})

    def cost(run: list[tuple[int, ...]]) -> int:
        columns = zip(*run, strict=False) if len(run) > 1 else ()
        shared = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
        return shared + sum(len(body) - shared for body in run)

    least = [0]
    for end in range(1, len(bodies) + 1):
        least.append(min(least[start] + cost(bodies[start:end]) for start in range(end)))
    assert computed(prompts) <= least[-1]


def test_contexts_are_found_behind_a_template_and_before_problems() -> None:
    """All prompts begin with the template's two tokens; the contexts share a beginning, and so do the problems."""
    contexts = [[7, 7, *[8] * 50, number, *[9] * 40] for number in range(3)]
    problems = [[5, 5, number, number + 1] for number in range(10, 16)]
    tree = prompt_tree([context + problem for problem in problems for context in contexts for _ in range(2)])
    assert sorted(map(list, tree.contexts)) == [[*context, 5, 5] for context in contexts]
    assert len(tree.problems) == 18
    assert all(len(problem) == 1 for problem in tree.problems)


def test_rollouts_of_one_problem_compute_it_once() -> None:
    assert computed([[1, 2, 3, 4]] * 8) == 3


def test_a_prompt_may_be_the_beginning_of_another() -> None:
    tree = prompt_tree([[1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3, 4]])
    assert tree.contexts == [(1, 2)]
    assert tree.problems == [(), (3,), (3, 4)]
    assert tree.last == [3, 4, 5]


@pytest.mark.parametrize(
    ("rows", "limit", "cuts"),
    [
        ([[1, 2, 3], [1, 2, 4]], 4, [(0, 2)]),  # 3 tokens, and 1 more
        ([[1, 2, 3], [1, 2, 4]], 3, [(0, 1), (1, 2)]),  # the first row of a run is counted whole
        ([[1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 5]], 3, [(0, 2), (2, 3), (3, 4)]),
        ([[1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 5]], 4, [(0, 3), (3, 4)]),  # and so is that of the second
        ([[1, 2, 3, 4, 5], [2], [3, 4, 5, 6], [4]], 2, [(0, 1), (1, 2), (2, 3), (3, 4)]),  # longer than the limit
        ([[7]], 1, [(0, 1)]),
    ],
)
def test_runs_hold_as_many_tokens_as_fit_with_shared_ones_counted_once(
    rows: list[list[int]], limit: int, cuts: list[tuple[int, int]]
) -> None:
    assert [(cut.start, cut.stop) for cut in cut_by_tokens(rows, limit)] == cuts
