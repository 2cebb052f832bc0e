"""Statements: about which problems they were made, and that nothing is judged by what its own grading said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastslow.fast.digest.journal import Journal, Row, Said

said = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3)
played = st.lists(st.tuples(st.sampled_from(["p", "q", "r", "s"]), said), max_size=30)


def journal_of(rows: list[tuple[str, list[str]]]) -> Journal:
    journal = Journal()
    for problem, keys in rows:
        row = Row(problem, frozenset(), 0, float(not keys), 0, tuple(keys))
        journal.add(row, [Said(key, f"Say {key}.") for key in keys], f"question {problem}")
    return journal


@given(played)
def test_every_statement_is_counted_once_for_every_time_it_was_made(rows: list[tuple[str, list[str]]]) -> None:
    journal = journal_of(rows)
    for key in "abc":
        times = {p: sum(q == p and key in keys for q, keys in rows) for p in "pqrs"}
        made = {problem: count for problem, count in times.items() if count}
        found = journal.statements[key].problems if key in journal.statements else {}
        assert found == made
    assert sum(sum(each.problems.values()) for each in journal.statements.values()) == sum(len(k) for _, k in rows)


@given(played)
def test_a_row_knows_what_was_said_before_it_and_nothing_of_its_own(rows: list[tuple[str, list[str]]]) -> None:
    journal = journal_of(rows)
    for index, (problem, _) in enumerate(rows):
        before = {key for earlier, keys in rows[:index] if earlier == problem for key in keys}
        assert journal.known[index] == before


def test_the_score_without_examples_is_of_texts_that_show_no_right_answer() -> None:
    journal = Journal()
    for lines, score in (({"rule"}, 0.0), ({"rule", "wrong"}, 0.5), ({"right"}, 1.0)):
        journal.add(Row("p", frozenset(lines), 0, score, 0))
    journal.examples, journal.right = frozenset({"right", "wrong"}), frozenset({"right"})
    assert (journal.untaught, journal.score) == (0.25, 0.5)
