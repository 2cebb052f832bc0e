"""Statements that say the same in other words."""

from __future__ import annotations

from fastslow.fast.digest.journal import Said, key_of
from fastslow.fast.digest.topics import restatements
from fastslow.fast.digest.transcript import Graded, Transcript, frames

LABELS = frozenset(("amber", "birch", "cedar", "delta"))
DESKS = {"visa": "amber", "parcel": "birch", "laptop": "cedar", "badge": "amber", "leak": "delta"}
WAYS = (
    "A message about a {topic} belongs to the {desk} desk.",
    "The {desk} desk handles every {topic}.",
    "Send whatever concerns a {topic} to the {desk} desk.",
    "When the subject is a {topic}, choose {desk}.",
)


def rule(topic: str, way: int, desk: str = "") -> str:
    return WAYS[way].format(topic=topic, desk=desk or DESKS[topic])


def found(*texts: str) -> dict[str, str]:
    said = [Said(key_of("system", text), text) for text in texts]
    spelled = {each.key: each.text for each in said}
    first = restatements(spelled, frames(said, LABELS))
    return {spelled[key]: spelled[earlier] for key, earlier in first.items()}


ALL = [rule(topic, way) for way in range(4) for topic in DESKS]


def test_wordings_of_a_rule_are_one_statement_the_earliest() -> None:
    assert found(*ALL) == {rule(topic, way): rule(topic, 0) for way in (1, 2, 3) for topic in DESKS}


def test_rules_for_the_same_label_stay_apart() -> None:
    one_way = [rule(topic, 0) for topic in DESKS]
    assert found(*one_way) == {}
    assert found("A visa that is urgent goes to amber.", "Lost badges are for amber, at any hour.") == {}


def test_a_false_label_does_not_hide_what_belongs_together() -> None:
    false = rule("visa", 0, "delta")
    merged = found(*ALL, false)
    assert false not in merged
    assert merged[rule("visa", 3)] == rule("visa", 0)


def test_a_turn_of_phrase_joins_nothing_once_it_is_heard_with_another_label() -> None:
    one, other = "Kindly note this once more: visa, amber.", "Badge, amber: kindly note this once more."
    rest = [rule(topic, way) for way in range(4) for topic in ("parcel", "laptop", "leak")]
    assert found(*rest, one, other)[other] == one  # all that was heard so far
    assert other not in found(*rest, one, other, "Kindly note this once more for delta.")


def test_where_all_statements_name_one_label_it_says_nothing() -> None:
    assert found(*(rule(topic, way, "amber") for way in range(4) for topic in DESKS)) == {}


def test_statements_without_labels_are_left_alone() -> None:
    assert found("Write the largest number first.", "The largest number comes first.") == {}


def test_a_transcript_counts_them_together() -> None:
    transcript = Transcript()
    for number, text in enumerate(ALL):
        said = Said(key_of("system", text), text)
        row = Graded(f"p{number}", frozenset(), 0, 0.0, 0, ((said.key,),))
        transcript.add(row, [said], f"case {number}", sorted(LABELS)[number % 4])
    held = Graded("p0", frozenset({key_of("system", rule("visa", 2))}), 9, 1.0, 0)
    transcript.add(held)
    journal = transcript.read()
    assert {each.text: len(each.problems) for each in journal.statements.values()} == {
        rule(topic, 0): 4 for topic in DESKS
    }
    assert journal.rows[-1].lines == {key_of("system", rule("visa", 0))}  # the text has it, in other words
