from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.reflection import Attempt, Lessons, ReflectionFailed, Request
from fastslow.fast.reflection.lessons import QUOTING_WEIGHT, new_lessons

Make = Callable[..., Request]


def count_words(text: str) -> int:
    return len(text.split())


words = st.sampled_from(["sort", "down", "box", "check", "7", "-", "•", "Box"])
lines = st.one_of(st.lists(words, max_size=5).map(" ".join), st.text(max_size=12))
texts = st.lists(lines, max_size=5).map("\n".join)
attempts = st.builds(
    Attempt,
    question=st.just("?"),
    answer=st.just("!"),
    feedback=texts,
    score=st.sampled_from([0.0, 0.5, 1.0]),
)
requests = st.builds(
    Request,
    component=st.just("system"),
    text=texts,
    attempts=st.lists(attempts, max_size=4),
    proposer=st.sampled_from(["light", "full"]),
    max_tokens=st.integers(1, 15),
    count_tokens=st.sampled_from([count_words, len]),
    seed=st.integers(0, 10_000),
)


repeatable = settings(deadline=None)


def edit(request: Request) -> str | None:
    try:
        return Lessons()(request)
    except ReflectionFailed:
        return None


def filled(text: str) -> Counter[str]:
    return Counter(line for line in text.splitlines() if line.strip())


@repeatable
@given(requests)
def test_an_edit_is_new_filled_and_within_budget(request: Request) -> None:
    child = edit(request)
    if child is not None:
        assert child.strip()
        assert child != request.text
        assert request.count_tokens(child) <= request.max_tokens


@repeatable
@given(requests)
def test_the_same_request_gives_the_same_edit(request: Request) -> None:
    assert edit(request) == edit(request)


@repeatable
@given(requests)
def test_every_added_line_is_a_line_of_feedback_on_a_failed_attempt(request: Request) -> None:
    child = edit(request)
    offered = [
        line.strip() for attempt in request.attempts if attempt.score < 1 for line in attempt.feedback.splitlines()
    ]
    for line in filled(child or "") - filled(request.text):
        assert any(offer.endswith(line) for offer in offered)
        assert line not in request.text.splitlines()


@repeatable
@given(requests)
def test_light_makes_one_edit(request: Request) -> None:
    child = edit(request)
    if child is None or request.proposer == "full":
        return
    added, removed = filled(child) - filled(request.text), filled(request.text) - filled(child)
    assert added.total() <= 1
    assert added.total() + removed.total() >= 1
    if request.count_tokens("\n".join([*request.text.splitlines(), *added])) <= request.max_tokens:
        assert removed.total() <= 1


def test_lines_that_more_failed_attempts_share_are_likelier(make_request: Make) -> None:
    failed = [Attempt("?", "!", f"- Sort downwards.\n- Number {number} was first.", 0.0) for number in range(3)]
    children = [Lessons()(make_request("Answer.", failed, seed=seed)) for seed in range(200)]
    counts = Counter(child.splitlines()[-1] for child in children)
    assert counts["Sort downwards."] > 100
    assert len(counts) == 4


def test_lines_that_quote_their_attempt_are_unlikely(make_request: Make) -> None:
    feedback = "Sort downwards.\nThe answer 7 1 3 is not sorted.\nOf 3 1 7 the first must be 7."
    failed = [Attempt("Sort 3 1 7", "7 1 3", feedback, 0.0)]
    children = [Lessons()(make_request("Answer.", failed, seed=seed)) for seed in range(300)]
    counts = Counter(child.splitlines()[-1] for child in children)
    assert counts["Sort downwards."] > 200
    assert len(counts) == 3


def test_full_may_add_several_lessons(make_request: Make) -> None:
    failed = [Attempt("?", "!", "First.\nSecond.\nThird.\nFourth.", 0.0)]
    sizes = {
        len(Lessons()(make_request("Answer.", failed, proposer="full", seed=seed)).splitlines()) for seed in range(50)
    }
    assert sizes == {2, 3, 4}


def test_light_adds_replaces_and_drops_and_rarely_touches_the_first_line(make_request: Make) -> None:
    failed = [Attempt("?", "!", "Fourth.", 0.0)]
    children = [Lessons()(make_request("First.\nSecond.\nThird.", failed, seed=seed)) for seed in range(300)]
    shapes = Counter((len(child.splitlines()), "Fourth." in child) for child in children)
    assert shapes[4, True] > shapes[3, True] > shapes[2, False] > 0
    assert sum(child.startswith("First.") for child in children) > 280


def test_the_oldest_lines_after_the_first_make_room(make_request: Make) -> None:
    failed = [Attempt("?", "!", "four five six", 0.0)]
    children = {Lessons()(make_request("one\ntwo\nthree", failed, max_tokens=5, seed=seed)) for seed in range(100)}
    assert "one\nthree\nfour five six" in children
    assert "one\ntwo\nthree\nfour five six" not in children


def test_lines_already_there_are_not_lessons_whatever_their_bullets(make_request: Make) -> None:
    failed = [Attempt("?", "!", "1. sort   Downwards.\n\n * Sort downwards.\n---", 0.0)]
    with pytest.raises(ReflectionFailed, match="nothing new to learn"):
        Lessons()(make_request("- Sort downwards.", failed))


def test_solved_attempts_teach_nothing_and_the_failure_is_counted(make_request: Make) -> None:
    lessons = Lessons()
    with pytest.raises(ReflectionFailed, match="nothing new to learn"):
        lessons(make_request("Answer.", [Attempt("?", "!", "Correct.", 1.0)]))
    assert (lessons.usage.calls, lessons.usage.failures) == (0, 1)


def test_with_nothing_new_a_line_is_dropped(make_request: Make) -> None:
    assert Lessons()(make_request("First.\nSecond.", [], seed=1)) == "First."


def test_a_budget_that_holds_no_edit_is_a_failure(make_request: Make) -> None:
    with pytest.raises(ReflectionFailed, match="no edit fits"):
        Lessons()(make_request("one two", [Attempt("?", "!", "three", 0.0)], max_tokens=2))


def test_a_line_that_has_three_words_in_a_row_of_its_attempt_quotes_it() -> None:
    said = "Beta, gamma delta!\nalpha then gamma\nwrite one two three here\nbeta gamma"
    attempt = Attempt(question="alpha beta gamma delta", answer="one two three", feedback=said, score=0.0)
    request = Request("system", "", [attempt], "light", 99, count_words, 0)
    assert new_lessons(request) == {
        "Beta, gamma delta!": QUOTING_WEIGHT,
        "alpha then gamma": 1.0,
        "write one two three here": QUOTING_WEIGHT,
        "beta gamma": 1.0,
    }
