"""Which right answers a text shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.fast.digest.examples import Candidate, correction, demonstration, is_right, mended, naming, news, picked
from fastslow.fast.digest.journal import Statement
from fastslow.fast.reflection import Attempt


def attempt(question: str, answer: str, feedback: str = "") -> Attempt:
    return Attempt(question=question, answer=answer, feedback=feedback, score=1.0)


def test_right_answers_are_told_from_wrong_ones() -> None:
    assert is_right(demonstration(attempt("q", "a")))
    assert not is_right(correction(attempt("q", "a", "no")))


def test_a_word_of_most_statements_a_label_and_a_number_name_nothing() -> None:
    said = [f"The rows are kept by {word}." for word in ("keep", "rank", "amber", "7")]
    found = naming([Statement(text, text, {"p": 1}) for text in said], {"amber"})
    assert found == {"keep": frozenset({said[0]}), "rank": frozenset({said[1]})}
    assert naming([Statement(text, text) for text in said], set()) == {}  # nobody said them


def test_an_answer_shows_what_neither_its_question_nor_another_right_example_has() -> None:
    solved = {
        ("system", "p"): attempt("sort the rows", "sort keep rank"),
        ("system", "q"): attempt("what", "keep crop"),
    }
    shown = [demonstration(attempt("x", "rank")), correction(attempt("x", "crop", "no"))]
    assert news(solved, {"sort", "keep", "rank", "crop"}, shown) == {
        ("system", "p"): {"keep"},
        ("system", "q"): {"keep", "crop"},
    }


RECORD = "Name: Ada Byron\nDate: 7 March 2026\nWeight: 3 kg\nCity: Turin"


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("Date: expected '2026-03-07', got '7 March 2026'", "Date: 2026-03-07"),
        ('date must be "2026-03-07", not "7 March 2026".', "Date: 2026-03-07"),
        ("Date: should be `2026-03-07` instead of `7 March 2026`", "Date: 2026-03-07"),
        ("Weight: wanted 3000, but got '3 kg'", "Weight: 3000"),
    ],
)
def test_values_that_the_grader_expects_take_the_place_of_those_given(told: str, line: str) -> None:
    found = mended(RECORD, [told])
    assert found is not None
    name = line.partition(":")[0]
    rest = [each for each in RECORD.splitlines() if not each.startswith(name)]
    assert [each for each in found.splitlines() if each.startswith(name)] == [line]
    assert [each for each in found.splitlines() if not each.startswith(name)] == rest


@pytest.mark.parametrize(
    "told",
    [
        "Put the date first.",
        "Name: expected 'Ida', got 'Ada'",  # less than half of its line
        "Date: expected '2026-03-07', got '8 March'",  # not what the answer has
    ],
)
def test_an_answer_that_no_expected_value_fits_is_not_mended(told: str) -> None:
    assert mended(RECORD, [told]) is None


def test_one_line_of_many_is_no_new_answer() -> None:
    told = ["Date: expected '2026-03-07', got '7 March 2026'"]
    assert mended(RECORD + "\nState: new", told) is None
    assert mended(RECORD + "\nState: new", [*told, "State: expected 'old', got 'new'"]) is not None


def test_the_same_value_twice_is_mended_where_its_name_stands() -> None:
    assert mended("From: 7 May\nTo: 7 May", ["To: expected '05-07', got '7 May'"]) == "From: 7 May\nTo: 05-07"


@given(st.text(max_size=200), st.lists(st.text(max_size=200), max_size=3))
def test_any_text_may_be_an_answer_or_feedback(answer: str, told: list[str]) -> None:
    assert mended(answer, told) is None or any(map(str.strip, told))


candidates = st.lists(
    st.tuples(st.frozensets(st.sampled_from("abcd")), st.sampled_from([0.0, 1.0, 2.0])), max_size=6
).map(lambda each: [Candidate("system", str(place), "", wanting, shows) for place, (shows, wanting) in enumerate(each)])


@given(candidates, st.integers(-1, 4))
def test_each_that_is_picked_shows_most_beside_those_before_it(given_ones: list[Candidate], room: int) -> None:
    found = picked(given_ones, room)
    assert len(found) <= max(0, room)
    known: frozenset[str] = frozenset()
    left = {each.problem: each for each in given_ones}
    for each in found:
        most = max((len(other.shows - known), other.wanting) for other in left.values())
        assert (len(left[each.problem].shows - known), each.wanting) == most != (0, 0.0)
        known |= left.pop(each.problem).shows
    if len(found) < room:
        assert not any(other.shows - known or other.wanting for other in left.values())
