"""Which rollouts got further by the grader's words: what tells, what does not, and what is kept of it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.digest.transcript import MOST_ROWS
from fastslow.fast.standing import Standing
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn

FORM, VALUE, UNIT = "Put the answer into a box.", "The carry of the sum is missing.", "Name the unit of the length."

SAYINGS = [FORM, VALUE, UNIT, "?", "\x00", 'File "a", line 3']


def rollout(
    said: str, score: float = 0.0, problem: str = "p", text: str = "text", progress: float = 0.0, faulty: bool = False
) -> Rollout:
    turn = Turn("system", f"what is {problem}", (), Completion((1,), (0.0,)), "it may well be so")
    feedback = Feedback(score, said, progress=progress)
    return Rollout(
        Example(problem, {}), Context({"system": text}), 0, (turn,), feedback, {"grader": 1} if faulty else {}
    )


def group(*said: str, scores: Sequence[float] = (), problem: str = "p") -> list[Rollout]:
    return [rollout(each, score, problem) for each, score in zip(said, scores or [0.0] * len(said), strict=True)]


def signs(rollouts: Sequence[Rollout], before: Sequence[Sequence[Rollout]] = ()) -> list[list[int]]:
    standing = Standing()
    for step, each in enumerate(before):
        standing = standing.after([each], step)[0]
    return standing.after([rollouts], len(before))[1][0].tolist()


def test_fewer_complaints_are_further() -> None:
    both = f"{FORM}\n{VALUE}"
    assert signs(group(both, VALUE, FORM)) == [[0, -1, -1], [1, 0, 0], [1, 0, 0]]


def test_complaints_that_are_never_made_together_have_no_order_however_common_one_is() -> None:
    """A grader that stops at the first fault: the common complaint may be the first or the last of its checks."""
    assert not np.any(signs(group(FORM, *[VALUE] * 7), [group(FORM, *[VALUE] * 7, problem=str(n)) for n in range(40)]))


def test_a_complaint_beside_right_answers_is_nearer() -> None:
    seen = [group(*[FORM] * 4, problem=f"hard {n}") for n in range(40)]
    seen += [group("", VALUE, VALUE, VALUE, scores=[1, 0, 0, 0], problem=f"easy {n}") for n in range(40)]
    assert signs(group(FORM, VALUE), seen) == [[0, -1], [1, 0]]
    assert not np.any(signs(group(FORM, VALUE), seen[36:44]))  # a few groups tell nothing


def test_a_complaint_on_answers_that_score_more_is_nearer() -> None:
    seen = [group(FORM, VALUE, UNIT, scores=[0.2, 0.5, 0.5], problem=str(n)) for n in range(40)]
    assert signs(group(UNIT, FORM, VALUE), seen) == [[0, 1, 0], [-1, 0, -1], [0, 1, 0]]


def test_what_scores_say_outweighs_the_number_of_statements() -> None:
    """A grader that praises says more of better answers."""
    praise = f"{UNIT}\n{VALUE}"
    assert signs(group(VALUE, praise), [group(VALUE, praise, problem="other")]) == [[0, 1], [-1, 0]]
    seen = [group(VALUE, praise, scores=[0.0, 0.5], problem=str(n)) for n in range(40)]
    assert signs(group(VALUE, praise), seen) == [[0, -1], [1, 0]]


def test_silence_is_nothing_until_scores_say_what_it_means() -> None:
    """A grader may have nothing to say of the right answer, or of one that it cannot read."""
    assert not np.any(signs(group("", FORM)))
    right = [group("", FORM, scores=[1, 0], problem=str(n)) for n in range(40)]
    assert signs(group("", FORM), right) == [[0, 1], [-1, 0]]
    unread = [group("", FORM, scores=[0, 0.5], problem=str(n)) for n in range(40)]
    assert signs(group("", FORM), unread) == [[0, -1], [1, 0]]


def test_progress_comes_first_and_is_not_expected_of_right_answers() -> None:
    near, far = rollout(f"{FORM}\n{VALUE}", progress=0.5), rollout(FORM, progress=0.25)
    assert signs([near, far, rollout("", 1.0)]) == [[0, 1, 0], [-1, 0, 0], [0, 0, 0]]


def test_faulty_grades_and_prompts_that_do_not_fit_are_not_compared() -> None:
    worse = f"{FORM}\n{VALUE}"
    found = signs([rollout(worse, faulty=True), rollout(FORM), rollout(worse)], [group(worse, FORM, problem="other")])
    assert found == [[0, 0, 0], [0, 0, 1], [0, -1, 0]]


def test_a_line_that_quotes_one_answer_does_not_hide_that_less_was_said() -> None:
    said = [f"The answer {n} {n}x does not stand in bars.\n{FORM}" + f"\n{VALUE}" * (n < 2) for n in range(4)]
    assert signs(group(*said)) == [[0, 0, -1, -1], [0, 0, -1, -1], [1, 1, 0, 0], [1, 1, 0, 0]]
    # What is known by such a line alone is no silence, and has no place.
    right = [group("", FORM, scores=[1, 0], problem=str(n)) for n in range(40)]
    assert not np.any(signs(group("The answer aa bb stands outside.", FORM), right))


def test_values_of_single_problems_do_not_count() -> None:
    """What differs in a value alone is one complaint."""
    seen = [group(f"The sum of row {n} is wrong.\n{FORM}", FORM, problem=str(n)) for n in range(8)]
    found = signs(group("The sum of row 90 is wrong.", "The sum of row 91 is wrong.\n" + FORM), seen)
    assert found == [[0, 1], [-1, 0]]


def test_the_comparison_does_not_depend_on_contexts_nor_on_the_scores_compared() -> None:
    seen = [group(FORM, VALUE, f"{FORM}\n{VALUE}", scores=[0.2, 0.5, 0.0], problem=str(n)) for n in range(40)]
    said = [FORM, VALUE, f"{FORM}\n{VALUE}"]
    plain = signs([rollout(each) for each in said], seen)
    scored = zip(said, [0.9, 0.1, 0.8], strict=True)
    other = [rollout(each, score, text=f"{score} {FORM}") for each, score in scored]
    assert plain == signs(other, seen) == [[0, -1, 1], [1, 0, 1], [-1, -1, 0]]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.sampled_from(SAYINGS), max_size=4), min_size=2, max_size=6), st.data())
def test_any_words_compare_both_ways_alike(said: list[list[str]], data: st.DataObject) -> None:
    scores = [data.draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in said]
    found = np.array(signs(group(*map("\n".join, said), scores=scores)))
    assert (found == -found.T).all()
    assert not any(found[one, other] for one, a in enumerate(said) for other, b in enumerate(said) if a == b)


def test_what_is_kept_is_bounded_and_comes_back_from_a_file() -> None:
    draw = random.Random(0)
    standing, again = Standing(), Standing()
    sizes = []
    for step in range(5):
        groups = [
            group(
                *("\n".join(draw.sample([FORM, VALUE, UNIT, f"row {draw.random()} is odd"], 2)) for _ in range(50)),
                scores=[draw.choice([0, 1]) for _ in range(50)],
                problem=f"{step} {n}",
            )
            for n in range(20)
        ]
        standing, found = standing.after(groups, step)
        again, same = Standing(**json.loads(json.dumps(again.to_data()))).after(groups, step)
        assert all((one == other).all() for one, other in zip(found, same, strict=True))
        assert again.to_data() == standing.to_data()
        sizes.append(len(json.dumps(standing.to_data())))
    assert len(standing.near) == MOST_ROWS
    assert sizes[-1] < 1.1 * sizes[2]


def test_a_group_without_words_says_nothing() -> None:
    assert signs(group("", "", "")) == [[0] * 3] * 3


@pytest.mark.parametrize("count", [0, 1])
def test_no_and_one_rollout(count: int) -> None:
    assert np.shape(signs(group(*[FORM] * count))) == ((1, 1) if count else (0,))
