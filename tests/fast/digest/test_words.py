"""What is kept and what is not, counted from the grader's words."""

from __future__ import annotations

import numpy as np
import pytest

from fastslow.fast.digest.journal import Journal, Row, Said
from fastslow.fast.digest.words import ONCE_MORE, SAID_EFFECT, SAID_NOISE, Order, Words

FIRST, SECOND, BROKEN = (f"system\n{name}" for name in ("first", "second", "unreadable"))


def journal_of(*rows: tuple[str, set[str], float, tuple[str, ...]]) -> Journal:
    journal = Journal()
    for problem, lines, score, said in rows:
        journal.add(Row(problem, frozenset(lines), 0, score, 0, said), [Said(key, key) for key in said])
    return journal


def words_of(journal: Journal, *keys: str) -> Words:
    return Words(journal, {key: frozenset({key}) for key in keys}, np.full(len(keys), 0.9), Order(journal), 0)


def kept(words: Words, key: str) -> tuple[float, float]:
    """With its line, and without."""
    place = words.place[key]
    return float(words.mean.told[list(words.place).index(key), place]), float(words.mean.untold[place])


def test_a_line_that_silences_its_statement_works_although_no_score_says_so() -> None:
    without = [("a", set(), 0.0, (FIRST,))] * 10
    after = [("a", {FIRST}, 0.0, (SECOND,))] * 10
    words = words_of(journal_of(*without, *after), FIRST, SECOND)
    told, untold = kept(words, FIRST)
    assert told > 0.7
    assert untold < 0.3


def test_a_line_that_is_not_followed_is_seen_not_to_work() -> None:
    rows = [("a", set(), 0.0, (FIRST,))] * 10 + [("a", {FIRST}, 0.0, (FIRST,))] * 10
    words = words_of(journal_of(*rows), FIRST)
    assert kept(words, FIRST)[0] < 0.5
    assert words.heeded(FIRST)[1] == pytest.approx(10)


def test_a_right_answer_is_believed_to_show_more_than_a_line_says_until_it_is_seen_not_to() -> None:
    rows = (
        [("a", set(), 0.0, (FIRST,))] * 10 + [("b", {FIRST}, 0.0, (SECOND,))] * 5 + [("b", {FIRST}, 0.0, (FIRST,))] * 5
    )

    def shown(*more: tuple[str, set[str], float, tuple[str, ...]], right: bool) -> float:
        journal = journal_of(*rows, *more)
        journal.examples, journal.right = frozenset({SECOND}), frozenset({SECOND} if right else ())
        covers = {FIRST: frozenset({FIRST}), SECOND: frozenset({FIRST})}
        words = Words(journal, covers, np.full(2, 0.9), Order(journal), 0)
        return float(words.mean.told[1, words.place[FIRST]] - words.mean.told[0, words.place[FIRST]])

    assert shown(right=True) > shown(right=False)
    assert shown(right=True) > 0
    assert shown(*[("b", {FIRST, SECOND}, 0.0, (FIRST,))] * 20, right=True) < 0


def test_silence_behind_something_earlier_is_no_progress() -> None:
    """A grader that stops at what it cannot read has not found the rest kept: what it stops at was seen before the rest."""
    stopped = [("a", set(), 0.0, (BROKEN,))] * 8 + [("a", set(), 0.0, (FIRST,))] * 8
    silent = [("a", {FIRST}, 0.0, (BROKEN,))] * 12
    gone_on = [("a", {FIRST}, 0.0, (SECOND,))] * 12
    behind, ahead = (kept(words_of(journal_of(*stopped, *rows), FIRST), FIRST)[0] for rows in (silent, gone_on))
    assert behind < ahead - 0.05


def test_second_tries_show_what_a_grader_who_stops_at_the_first_fault_has_got_past() -> None:
    rows = [("a", set(), 0.0, (FIRST,)), ("a", set(), 0.0, (FIRST,))]
    tries = [((FIRST,), (SECOND,)), ((SECOND,), (BROKEN,)), ((SECOND,), (FIRST,)), ((SECOND,), (BROKEN,))]
    journal = journal_of(*rows)
    for before, said in tries:
        journal.add(Row("a", frozenset(), 0, 0.0, 0, said, again=before), [Said(key, key) for key in said])
    order, about = Order(journal), journal.about("a")
    assert [order.got_past([key], about) for key in (FIRST, SECOND, BROKEN)] == [set(), {FIRST}, {FIRST, SECOND}]
    assert order.passed(FIRST, [SECOND]) == 3 / (3 + 0 + 1)  # twice without the second, and once before it; never after
    assert len(journal.rows) == 2


def test_what_is_named_together_has_no_order() -> None:
    journal = journal_of(("a", set(), 0.0, (FIRST, SECOND)))
    journal.add(Row("a", frozenset(), 0, 0.0, 0, (SECOND,), again=(FIRST, SECOND)), [Said(SECOND, SECOND)])
    assert Order(journal).got_past([SECOND], journal.about("a")) == set()


def test_a_grader_that_names_all_has_found_the_rest_kept() -> None:
    both = [("a", set(), 0.0, (FIRST, SECOND))] * 3
    words = words_of(journal_of(*both, *[("a", {FIRST}, 0.0, (SECOND,))] * 6), FIRST, SECOND)
    assert words._told[0, words.place[FIRST]].tolist() == [6, 0]
    assert words._untold[words.place[SECOND]].tolist() == [0, 8]  # not the first: nothing was known of the problem then


def test_what_is_mostly_named_beside_others_is_hidden_by_what_is_said_alone() -> None:
    """A broken form draws one complaint in the place of all others: no progress, whether a line says them or not."""
    both = [("a", set(), 0.0, (FIRST, SECOND))] * 6
    order = Order(journal_of(*both, *[("a", set(), 0.0, (BROKEN,))] * 6))
    assert order.got_past([BROKEN], [FIRST, SECOND]) == set()
    assert order.passed(FIRST, [BROKEN]) < 0.3
    told = Order(journal_of(*both, *[("a", {FIRST}, 0.0, (FIRST, SECOND))] * 6, *[("a", {FIRST}, 0.0, (BROKEN,))] * 6))
    assert told.passed(FIRST, [BROKEN]) < 0.3


def test_what_is_said_as_often_beside_another_as_in_right_answers_too_is_not_hidden_by_it() -> None:
    """Two faults of a graded list come and go on their own: half of the answers have each, and a quarter have none."""
    rows = [("a", set(), 0.0, (FIRST, SECOND)), ("a", set(), 0.0, (FIRST,)), ("a", set(), 0.0, (SECOND,))]
    order = Order(journal_of(*rows * 20, *[("a", set(), 1.0, ())] * 20))
    assert order.passed(FIRST, [SECOND]) == pytest.approx(1.0, abs=0.05)


def test_the_chance_of_a_problem_is_the_product_of_what_was_said_of_it() -> None:
    rows = [("a", set(), 0.0, (FIRST, SECOND))] * 5 + [("a", {FIRST, SECOND}, 1.0, ())] * 5
    words = words_of(journal_of(*rows), FIRST, SECOND)
    about = words.about([frozenset({FIRST, SECOND}), frozenset()])
    expected = words.mean.told[0, 0] * words.mean.untold[1]
    np.testing.assert_allclose(words.passed(np.array([[1.0, 0.0]]), about), [expected, 1.0])
    np.testing.assert_allclose(
        words.otherwise_passed(np.array([[1.0, 0.0]]), about[:1]), [[words.mean.untold[1], words.mean.told[0, 0]]]
    )


def test_what_followed_elsewhere_is_expected_to_follow() -> None:
    """Of ten problems the second statement was made once the first was kept; on the eleventh the first was never kept."""
    rows = []
    for index in range(10):
        rows += [(f"p{index}", set(), 0.0, (FIRST,)), (f"p{index}", {FIRST}, 0.0, (SECOND,))]
    journal = journal_of(*rows, ("new", set(), 0.0, (FIRST,)))
    words = words_of(journal, FIRST, SECOND)
    (expected,) = words.follows(journal, words.about([journal.about("new")]), ["new"])
    assert expected[words.place[FIRST]] == 1
    problems = [*(f"p{index}" for index in range(10)), "new"]
    expected = words.follows(journal, words.about([journal.about(each) for each in problems]), problems)[-1]
    assert expected[words.place[SECOND]] > 0.7


def test_a_right_answer_has_got_past_all_that_was_said_of_its_problem() -> None:
    """Of ten problems five were solved once the first was kept; of the others the second statement was made then."""
    rows = []
    for index in range(10):
        said = (SECOND,) if index % 2 else ()
        rows += [(f"p{index}", set(), 0.0, (FIRST,)), (f"p{index}", {FIRST}, float(not said), said)]
    journal = journal_of(*rows, ("new", set(), 0.0, (FIRST,)))
    words = words_of(journal, FIRST, SECOND)
    problems = [*(f"p{index}" for index in range(10)), "new"]
    expected = words.follows(journal, words.about([journal.about(each) for each in problems]), problems)[-1]
    assert expected[words.place[SECOND]] == pytest.approx(5 / (10 + ONCE_MORE))


def test_what_a_line_breaks_elsewhere_counts_as_far_as_it_is_clear() -> None:
    """Every answer under the first line breaks the second statement, no other does: the ridge regression by hand, less two
    deviations."""
    rows = [("a", {FIRST}, 0.0, (SECOND,))] * 10 + [("b", set(), 1.0, ())] * 10 + [("c", set(), 0.0, (FIRST,))] * 10
    journal = journal_of(*rows)
    words = words_of(journal, FIRST, SECOND)
    present = np.array([[float(FIRST in row.lines), 0.0] for row in journal.rows])
    variance = 1 / (10 / SAID_NOISE + 1 / SAID_EFFECT**2)
    effect = variance * 10 * (1 - 1 / 3) / SAID_NOISE
    broken = words.broken_by(journal, present, 0)
    assert broken == pytest.approx([effect - 2 * variance**0.5, 0.0])
    later = words.broken_by(journal, present, 3)  # a row counts half after three cycles
    variance = 1 / (5 / SAID_NOISE + 1 / SAID_EFFECT**2)
    assert later[0] == pytest.approx(variance * 5 * (1 - 1 / 3) / SAID_NOISE - 2 * variance**0.5)


def test_what_is_said_of_right_answers_orders_nothing() -> None:
    failures = [("a", set(), 0.0, (FIRST,))] * 3 + [("a", set(), 0.0, (SECOND,))] * 3
    praise = [("a", set(), 1.0, (SECOND,))] * 5
    plain, praised = Order(journal_of(*failures)), Order(journal_of(*failures, *praise))
    assert plain.passed(SECOND, [FIRST]) == praised.passed(SECOND, [FIRST]) == 3 / (3 + 3 + 1)
    assert Order(journal_of(*praise)).passed(FIRST, [SECOND]) == 0


def test_an_example_is_judged_where_the_text_has_it_and_a_rule_where_it_stands_alone() -> None:
    rows = [("a", set(), 0.0, (FIRST,))] * 4 + [("a", {FIRST}, 0.0, (FIRST,))] * 10
    journal = journal_of(*rows, *[("a", {FIRST, SECOND}, 1.0, ())] * 10)
    journal.declare(SECOND, "Example of a right answer.")
    journal.examples = frozenset({SECOND})
    covers = {FIRST: frozenset({FIRST}), SECOND: frozenset({FIRST})}
    words = Words(journal, covers, np.array([0.9, 0.9]), Order(journal), 0)
    told = words.mean.told[:, words.place[FIRST]]
    assert told[0] < 0.3
    assert told[1] > 0.7
