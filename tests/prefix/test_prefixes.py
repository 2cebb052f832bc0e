"""Finding what prompts begin with alike, against every way to cut them."""

from __future__ import annotations

from itertools import pairwise, takewhile

from hypothesis import given
from hypothesis import strategies as st

from fastslow.prefix.prompts import plant

prompts_of_few_tokens = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=12)


def computed(prompts: list[list[int]]) -> int:
    """Tokens that are computed before decoding starts."""
    tree = plant(prompts)
    return sum(map(len, tree.contexts)) + sum(map(len, tree.problems))


@given(prompts_of_few_tokens)
def test_a_tree_holds_its_prompts_and_nothing_else(prompts: list[list[int]]) -> None:
    tree = plant(prompts)
    assert sorted(tree.prompt_of) == list(range(len(prompts)))
    for problem, last, position, prompt in zip(tree.problem_of, tree.last, tree.positions, tree.prompt_of, strict=True):
        whole = [*tree.contexts[tree.context_of[problem]], *tree.problems[problem], last]
        assert whole == prompts[prompt]
        assert position == len(whole) - 1
    assert len(set(tree.contexts)) == len(tree.contexts)
    assert len(set(zip(tree.context_of, tree.problems, strict=True))) == len(tree.problems)


@given(prompts_of_few_tokens)
def test_what_is_shared_stands_side_by_side(prompts: list[list[int]]) -> None:
    tree = plant(prompts)
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
    tree = plant([context + problem for problem in problems for context in contexts for _ in range(2)])
    assert sorted(map(list, tree.contexts)) == [[*context, 5, 5] for context in contexts]
    assert len(tree.problems) == 18
    assert all(len(problem) == 1 for problem in tree.problems)


def test_rollouts_of_one_problem_compute_it_once() -> None:
    assert computed([[1, 2, 3, 4]] * 8) == 3


def test_a_prompt_may_be_the_beginning_of_another() -> None:
    tree = plant([[1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3, 4]])
    assert tree.contexts == [(1, 2)]
    assert tree.problems == [(), (3,), (3, 4)]
    assert tree.last == [3, 4, 5]
