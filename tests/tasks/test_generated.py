"""Generated problems belong to one split, whatever the seed they are drawn with."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Example, Split
from fastslow.tasks.data import draw_for, split_of
from fastslow.tasks.families.rulebook.task import Rulebook, RulebookOptions
from fastslow.tasks.families.star_graph import StarGraph, StarGraphOptions

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@settings(deadline=None, max_examples=60)
@given(shown=st.text() | st.lists(st.integers(), max_size=4))
def test_a_problem_belongs_to_one_split(shown: Any) -> None:
    assert split_of(shown) == split_of(shown)
    assert split_of(shown) in SPLITS


def test_half_of_the_problems_are_for_training() -> None:
    counts = {split: [split_of(f"problem {n}") for n in range(4000)].count(split) for split in SPLITS}
    for split, share in {"train": 0.5, "validation": 0.25, "test": 0.25}.items():
        assert abs(counts[split] - 4000 * share) < 5 * (4000 * share * (1 - share)) ** 0.5


def test_draws_go_on_until_one_belongs_to_the_split() -> None:
    def draw(seed: int, split: Split) -> Example:
        numbers = random.Random(seed)
        return draw_for(split, lambda: Example("x", {"n": numbers.randrange(40)}), lambda example: example.data["n"])

    found = {split: {draw(seed, split).data["n"] for seed in range(400)} for split in SPLITS}
    assert set.union(*found.values()) == set(range(40))
    assert sum(map(len, found.values())) == 40
    with pytest.raises(TaskError, match="none belongs to validation; choose options under which there are more"):
        draw_for(
            "validation", lambda: Example("x", {}), lambda example: next(n for n in range(99) if split_of(n) == "test")
        )


@settings(deadline=None, max_examples=25)
@given(
    degree=st.integers(2, 3),
    path=st.integers(2, 3),
    spare=st.integers(0, 3),
    seeds=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_star_graphs_of_any_two_seeds_share_no_problem_between_splits(
    degree: int, path: int, spare: int, seeds: tuple[int, int]
) -> None:
    """The smallest graphs there are, which meet all the time."""
    shown: dict[Split, set[str]] = {split: set() for split in SPLITS}
    for seed in seeds:
        options = StarGraphOptions(degree=degree, path=path, nodes=1 + degree * (path - 1) + spare, seed=seed)
        task = StarGraph(options)
        for split in SPLITS:
            shown[split] |= {task.messages(example)[0]["content"] for example in task.examples(split)[:60]}
    assert sum(map(len, shown.values())) == len(set.union(*shown.values()))


def test_rulebooks_of_two_seeds_share_no_problem_between_splits() -> None:
    shown: dict[Split, set[str]] = {split: set() for split in SPLITS}
    for seed in (0, 1):
        task = Rulebook(RulebookOptions(words=2, shortest=2, longest=2, seed=seed))
        for split in SPLITS:
            shown[split] |= {task.messages(example)[0]["content"] for example in task.examples(split)[:200]}
    assert sum(map(len, shown.values())) == len(set.union(*shown.values()))
