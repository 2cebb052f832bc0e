"""The population: who stays, who is played, how it is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.pool import Member, Pool, select
from fastslow.records import Context

repeatable = settings(deadline=None, max_examples=120)


def member(name: str, scores: Sequence[float], at: int = 0) -> Member:
    return Member(Context({"system": name}), {f"p{i}": score for i, score in enumerate(scores)}, at)


@st.composite
def candidates(draw: st.DrawFn) -> list[Member]:
    """Contexts scored on the same problems; now and then the same context twice."""
    problems, count = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=problems, max_size=problems)
    names = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    return [member(str(name), draw(scores)) for name in names]


@given(found=candidates(), size=st.integers(1, 10))
@repeatable
def test_selection_keeps_distinct_contexts_of_the_front_first(found: list[Member], size: int) -> None:
    distinct = {m.context.id: m for m in reversed(found)}  # of two with the same texts the elder counts
    pool = select(found, size)
    assert len(pool.members) == min(size, len(distinct))
    assert len({m.context.id for m in pool.members}) == len(pool.members)
    assert all(m.scores == distinct[m.context.id].scores for m in pool.members)
    means = [m.mean for m in pool.members]
    assert means == sorted(means, reverse=True)

    everyone = select(found, len(found)).members
    front = [m for m in everyone if m.front]
    problems = list(found[0].scores)
    tops = {problem: max(m.scores[problem] for m in distinct.values()) for problem in problems}
    for problem, top in tops.items():  # the front loses no problem's top score
        assert any(m.scores[problem] == top for m in front)
    for one in front:  # and nobody on it could be spared
        others = [m for m in front if m is not one]
        assert any(one.scores[p] == tops[p] and all(m.scores[p] < tops[p] for m in others) for p in problems)
    for m in everyone:
        assert m.wins == sum(m.scores[p] == tops[p] for p in problems)
    # What is kept: the best mean, then the front by mean, topped up by mean from the rest.
    first, *others = everyone
    expected = [first, *(m for m in others if m.front), *(m for m in others if not m.front)][:size]
    assert sorted(m.mean for m in pool.members) == sorted(m.mean for m in expected)
    assert sum(m.front for m in pool.members) == sum(m.front for m in expected)


def test_while_nobody_has_scored_it_counts_how_far_answers_got() -> None:
    near, far = member("near", [0, 0]), member("far", [0, 0])
    near = replace(near, progress={"p0": 0.5, "p1": 0.75})
    far = replace(far, progress={"p0": 0.25, "p1": 0.75})
    pool = select([far, near], 2)
    assert [m.context.texts["system"] for m in pool.members] == ["near", "far"]
    assert [m.wins for m in pool.members] == [2, 1]
    assert [m.front for m in pool.members] == [True, False]
    assert Pool.from_dict(json.loads(json.dumps(pool.to_dict()))) == pool


def test_once_somebody_has_scored_it_no_longer_counts() -> None:
    """Texts that make answers look right are not the ones that make them right."""
    elder, close, right = member("elder", [0, 1]), member("close", [1, 0]), member("right", [1, 1])
    close = replace(close, progress={"p0": 1.0, "p1": 0.9})
    assert select([elder, close], 2).best.context == elder.context
    pool = select([elder, close, right], 3)
    assert [m.context.texts["system"] for m in pool.members] == ["right", "elder", "close"]
    assert [m.wins for m in pool.members] == [2, 1, 1]


def test_the_best_mean_stays_even_where_others_cover_its_problems() -> None:
    """Three specialists win every problem between them; the all-rounder wins none alone but is best on average."""
    specialists = [member(str(i), [1.0 if p // 2 == i else 0.0 for p in range(6)]) for i in range(3)]
    pool = select([*specialists, member("all-rounder", [1, 0.9, 1, 0.9, 1, 0.9])], 2)
    assert pool.best.context.texts["system"] == "all-rounder"


def test_a_dominated_context_is_no_member_of_the_front() -> None:
    pool = select([member("weak", [0, 0.5]), member("strong", [1, 0.5]), member("other", [0, 1])], 3)
    assert [(m.context.texts["system"], m.front, m.wins) for m in pool.members] == [
        ("strong", True, 1),
        ("other", True, 1),
        ("weak", False, 0),
    ]


def test_ties_go_to_whoever_wins_more_problems_then_to_the_elder() -> None:
    # All have mean 0.5; "wide" is best on two problems, the others on one.
    pool = select([member("a", [1, 0.25, 0.25]), member("wide", [0, 0.5, 1]), member("b", [1, 0.25, 0.25])], 3)
    assert [m.context.texts["system"] for m in pool.members] == ["wide", "a", "b"]


def test_selection_without_scores_keeps_what_there_is() -> None:
    pool = select([Member(Context({"system": "only"}))], 4)
    assert [m.context.texts["system"] for m in pool.members] == ["only"]
    assert pool.best.mean == 0.0


@given(found=candidates(), at=st.integers(0, 500))
@repeatable
def test_a_pool_survives_the_disk(found: list[Member], at: int) -> None:
    members = [Member(Context(m.context.texts, ("parent",), 3), m.scores, at) for m in found]
    pool = select(members, 8)
    assert Pool.from_dict(json.loads(json.dumps(pool.to_dict()))) == pool
    assert [record["id"] for record in pool.to_dict()] == [m.context.id for m in pool.members]
    assert [record["score"] for record in pool.to_dict()] == [m.mean for m in pool.members]


@given(size=st.integers(1, 16), group=st.integers(1, 32))
@repeatable
def test_the_active_contexts_are_the_most_that_divide_a_group(size: int, group: int) -> None:
    pool = Pool(tuple(member(str(index), [1.0]) for index in range(size)))
    active = pool.active(group)
    assert group % len(active) == 0
    assert active == [m.context for m in pool.members[: len(active)]]  # the best first
    assert not any(group % more == 0 for more in range(len(active) + 1, size + 1))


@pytest.mark.parametrize("size", [3, 5, 6, 7])
def test_a_pool_that_does_not_divide_the_group_is_cut_to_one_that_does(size: int) -> None:
    pool = Pool(tuple(member(str(index), [1.0]) for index in range(size)))
    assert len(pool.active(8)) == (2 if size == 3 else 4)


def test_what_an_optimizer_notes_is_stored_where_there_is_something_and_survives_selection() -> None:
    plain = Member(Context({"system": "a"}), {"p": 1.0})
    noted = Member(Context({"system": "b"}), {"p": 0.5}, notes={"items": [["x", 1]]})
    pool = select([plain, noted], 2)
    first, second = pool.to_dict()
    assert "notes" not in first
    assert second["notes"] == {"items": [["x", 1]]}
    assert Pool.from_dict(pool.to_dict()) == pool
