"""From a grader's words to statements: parts, what belongs together, and what is only a verdict."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import RunError
from fastslow.fast.digest.facts import verdicts
from fastslow.fast.digest.journal import Said, key_of
from fastslow.fast.digest.reading import (
    BRACED,
    label_words,
    parts_of,
    parts_of_texts,
    read_feedback,
    without_braces,
)
from fastslow.fast.digest.topics import Topics, words_of
from fastslow.fast.digest.transcript import FIELDS, LAST_SAID, MOST_ROWS, Graded, Transcript, wholes


def heard(*feedback: str, answers: tuple[str, ...] = (), questions: tuple[str, ...] = ()) -> Transcript:
    """A transcript in which each feedback was given on a problem of its own."""
    transcript = Transcript()
    for index, words in enumerate(feedback):
        answer = answers[index % len(answers)] if answers else "?"
        question = questions[index % len(questions)] if questions else f"problem {index}"
        lines = read_feedback("system", words, answer)
        keys = tuple(tuple(part.key for part in line) for line in lines)
        transcript.add(
            Graded(str(index), frozenset(), 0, 0.0, 0, keys), itertools.chain(*lines), question, f"ANSWER: {answer}"
        )
    return transcript


def statements(transcript: Transcript) -> list[str]:
    return [each.text for each in transcript.read().statements.values()]


def test_lines_that_differ_in_spacing_case_and_numbering_are_one_statement() -> None:
    ((one,), (other,)) = read_feedback("system", "1. Pay  at once.\n\n- pay at once;\n---\nAnother", "a")
    assert (one.text, other.text) == ("1. Pay  at once.", "Another")
    assert one.key == key_of("system", "pay at once.")
    assert one.key in parts_of_texts({"system": "Answer.\n* PAY at once."})


def test_signs_before_a_line_do_not_make_another_statement() -> None:
    assert statements(heard("❌ Name it.", "🙁 Name it.", "name it")) == ["❌ Name it."]
    assert key_of("system", "¿Dónde?") != key_of("system", "Dónde?")


def test_what_leads_on_to_an_indented_line_stands_before_it() -> None:
    (line,) = read_feedback("system", "Failed validating schema['date']:\n    use dashes", "a")
    assert [part.text for part in line] == ["Failed validating schema['date']:", "use dashes"]


def test_a_sentence_that_was_broken_where_its_line_was_full_is_one() -> None:
    broken = "Thanks. The customer wants to be told that the\nrefund takes 14 days. Name the\nVAT ID."
    parts = [part.text for line in read_feedback("system", broken, "a") for part in line]
    assert parts == ["Thanks.", "The customer wants to be told that the refund takes 14 days.", "Name the", "VAT ID."]
    listed = "the date must be written with dashes in it\nthe unit must be named"
    assert len(read_feedback("system", listed, "a")) == 2


def test_an_expected_label_is_no_rule_where_others_stand_beside_theirs() -> None:
    said = [f'The expected answer was "{desk}". A {topic} goes to {desk}.' for topic, desk in
            (("visa", "amber"), ("leak", "amber"), ("badge", "amber"), ("refund", "birch"), ("parcel", "cedar"))]  # fmt: skip
    found = statements(heard(*said, answers=("amber", "birch", "cedar")))
    assert 'The expected answer was "amber".' not in found
    assert "A visa goes to amber." in found


def test_what_quotes_the_answer_is_left_out_and_is_no_rule() -> None:
    words = "The answer 'amber and  birch, I think…' names no one option.\nName 'one option' only."
    (told,), (rule,) = read_feedback("system", words, "Amber and birch, I think\nboth will do")
    assert told.text == "The answer '…' names no one option."
    transcript = Transcript()
    for number in range(6):
        answer = f"amber and {number}"
        lines = read_feedback("system", f"The answer '{answer}' names no one option.\n{rule.text}", answer)
        keys = tuple(tuple(part.key for part in line) for line in lines)
        transcript.add(Graded(f"p{number}", frozenset(), 0, 0.0, 0, keys), itertools.chain(*lines))
        assert statements(transcript) == [rule.text]


@pytest.mark.parametrize(
    ("words", "answer", "left"),
    [
        ("It ends with 't='Ossel') | count()'.", "use crew | keep(t='Ossel') | count()", "It ends with '…'."),
        ("It begins with 'keep(more('tab…'.", "keep(more('table')", "It begins with '…'."),
        ("It begins with `cap(2)`.", "cap(2)", "It begins with `…`."),
        ("expected '[JPN]', got ''ESP''", "country: 'ESP'", "expected '[JPN]', got '…'"),
        ("expected 'A_B', got 'expected 'A_B', got '…''", "expected 'A_B', got '…'", "expected 'A_B', got '…'"),
        ("expected '[ESP]', got 'Spain [ESP]'", "Spain [ESP]", "expected '[ESP]', got '…'"),
        ("Name 'amber' at once.", "amber", "Name 'amber' at once."),
    ],
)
def test_a_quotation_of_the_answer_may_have_quotation_marks_in_it(words: str, answer: str, left: str) -> None:
    ((part,),) = read_feedback("system", words, answer)
    assert part.text == left


def test_a_rule_that_was_said_of_other_answers_stays_whole_where_an_answer_has_its_words() -> None:
    rule = "It ends with `;;`, as in `tell(:depth) ;;`."
    ((other,),) = read_feedback("system", rule, "use crew | tell(:depth) ;; ;;")
    assert other.text != rule
    ((same,),) = read_feedback("system", rule, "use crew | tell(:depth) ;; ;;", known={key_of("system", rule)})
    assert same.text == rule


@pytest.mark.parametrize(
    "rule", ["Write four fields with bars between them: name | desk | day.", "Sign it with your name."]
)
@pytest.mark.parametrize("kept", [3, 5, 99])
def test_a_known_rule_is_said_whole_where_the_answer_repeats_its_prompt(rule: str, kept: int) -> None:
    known = {part.key for part in read_feedback("system", rule, "yes")[0]}
    answer = f"You are helpful.\n{' '.join(rule.split()[:kept])}\nThe mail is about a lamp."
    (found,) = read_feedback("system", rule, answer, known=known)
    assert " ".join(part.text for part in found) == rule


def test_of_the_question_only_short_quotations_stay() -> None:
    words = "There is no box in the answer to 'Put 3, 5 and 4 in…'.\nWrite 'in order' with a capital."
    (first,), (second,) = read_feedback("system", words, "no idea", "Put 3, 5 and 4 in order")
    assert (first.text, second.text) == ("There is no box in the answer to '…'.", "Write 'in order' with a capital.")


def test_a_rule_is_found_beside_what_else_stands_in_its_line() -> None:
    rule, other = "A visa takes ten days. Urgent ones take two.", "Parcels: by van; letters: by bike."
    transcript = heard(
        f"Case 1 was late. {rule}", f"Case 2 was late. {rule}", f"Case 3 failed: {other}", f"No – {other}"
    )
    found = statements(transcript)
    assert rule in found
    assert other.removesuffix(".") in {each.removesuffix(".").removeprefix("– ") for each in found}


def test_what_was_always_said_together_comes_apart_when_it_is_said_apart() -> None:
    once, later = ("Pay the fee. Sign the form.",), ("Pay the fee. Sign the form.", "Pay the fee.")
    assert statements(heard(*once)) == ["Pay the fee. Sign the form."]
    assert statements(heard(*later)) == ["Pay the fee.", "Sign the form."]


def test_a_text_says_what_its_parts_say() -> None:
    transcript = heard("Pay the fee. Sign the form.", "Pay the fee.")
    texts = {"system": "Task.\nPay the fee. Sign the form."}
    transcript.add(Graded("late", parts_of_texts(texts), 8, 1.0, 1))
    assert transcript.read().rows[-1].lines == {key_of("system", "Pay the fee."), key_of("system", "Sign the form.")}


LABELS = ("amber", "birch", "cedar", "delta")
VERDICTS = [f"This one goes to {right}, not to {given}." for right, given in itertools.permutations(LABELS, 2)]
RULES = [f"A {topic} goes to {LABELS[place % 4]}." for place, topic in enumerate(("visa", "parcel", "badge", "leak"))]
QUESTIONS = tuple(f"About a {topic}: amber, birch, cedar or delta?" for topic in ("visa", "parcel", "badge", "leak"))


def test_verdicts_are_no_rules() -> None:
    said = [f"{verdict} {rule}" for verdict, rule in zip(VERDICTS, itertools.cycle(RULES), strict=False)]
    assert statements(heard(*said, answers=LABELS, questions=QUESTIONS)) == RULES
    apart = [words.replace(". ", ".\n") for words in said]
    assert statements(heard(*apart, answers=LABELS, questions=QUESTIONS)) == RULES


def test_a_rule_that_is_sometimes_said_with_another_label_is_no_verdict() -> None:
    said = [RULES[0]] * 6 + [f"A visa goes to {label}." for label in LABELS[1:]]
    assert len(statements(heard(*said, answers=LABELS, questions=QUESTIONS[:1]))) == 4


def test_rules_without_labels_in_their_words_stay() -> None:
    said = ["Answer with one word.", "Use at most 7 steps.", "Use at most 9 steps.", "Use at most 11 steps."]
    assert statements(heard(*said, answers=("7", "9", "11"), questions=("7 steps", "9 steps", "11 steps", "x"))) == said


def test_what_only_says_the_numbers_of_a_problem_is_no_rule() -> None:
    questions = tuple(f"A path over {', '.join(str((n + step) % 12) for step in range(6))}." for n in range(12))
    rule = "Begin at the source."
    expected = [f"expected {7 * n}, given {n}." for n in range(12)]  # of one problem each
    steps = [f"it must go to {n % 6}." for n in range(12)]  # of a few of the problems that have the number
    assert statements(heard(*(f"{rule} {each}" for each in expected), questions=questions)) == [rule]
    assert statements(heard(*(f"{rule} {each}" for each in steps), questions=questions)) == [rule]


def test_rules_that_are_alike_but_for_a_number_stay() -> None:
    floors = [1 + n % 5 for n in range(20)]
    said = [f"Visitors of floor {floor} wait." for floor in floors]
    questions = tuple(f"Somebody calls for floor {floor}" for floor in floors)
    assert len(statements(heard(*said, questions=questions))) == 5


VENDORS, DATES = ("Acme", "Bolt", "Cora", "Dune", "Elm"), ("7 March", "3 May", "12 June", "1 July", "9 Oct")
TRACE = (
    "Traceback (most recent call last):\n  File \"a.py\", line {n}, in solve\nAttributeError: 'Rows' has no 'filter'"
)


@pytest.mark.parametrize(
    ("feedback", "found"),
    [
        (
            [f"vendor: must be {each.upper()}, not {each}" for each in VENDORS],
            "vendor: must be (in capital letters), not …",
        ),
        ([f"amount: must be {n}00, not {n}.00" for n in (12, 7, 88, 31, 5)], "amount: must be (digits only), not …"),
        (
            [f"--- expected\n+++ yours\n-total: {x:.2f}\n+total: {x:g}" for x in (12.5, 3.0, 7.25, 9.1, 40.0)],
            "total: expected (with two decimals), got '…'",
        ),
        ([TRACE.format(n=n) for n in (3, 8, 21, 30, 4)], "AttributeError: 'Rows' has no 'filter'"),
        ([f"$.date: '{each}' does not match '^[0-9-]+$'" for each in DATES], "$.date: '…' does not match '^[0-9-]+$'"),
        (
            [f"main.c:{n}:7: error: expected ';' after expression" for n in (3, 8, 21, 30)],
            "error: expected ';' after expression",
        ),
        ([f"solve({n}, {2 * n}) returned {n}, expected {n + 2}" for n in (3, 8, 21, 30)], None),
        (["Wrong."] * 5, None),
    ],
)
def test_reports_of_all_kinds_become_statements_about_the_class(feedback: list[str], found: str | None) -> None:
    questions = tuple(f"The form of {name}, no. {place}" for place, name in enumerate(VENDORS))
    assert statements(heard(*feedback, questions=questions)) == ([found] if found else [])


@pytest.mark.parametrize(
    ("feedback", "found"),
    [
        # Two rules of one field keep its name, which is left out where many follow it.
        (["date: be ISO", "date: be early"], ["date: be ISO", "date: be early"]),
        (["date: be ISO\ndate: be early"], ["date: be ISO", "date: be early"]),
        ([f"Hint: use {each}" for each in VENDORS], [f"use {each}" for each in VENDORS]),
        # What is left of a value, after its field, is a rule.
        ([f"notes: must not be empty (got {n})" for n in (12, 7, 88, 31, 5)], ["notes: must not be empty (got …)"]),
        (["merge() lacks an argument: 'on'"], ["merge() lacks an argument: 'on'"]),
        (["flag: expected 'true', got 'yes'"], ["flag: expected 'true', got 'yes'"]),
        (["The answer: 'yes'"], []),
        # Little words after "not" are no values of the answer.
        (["It is not of type 'list', not in the table."], ["It is not of type 'list', not in the table."]),
    ],
)
def test_what_stands_before_a_colon_belongs_to_what_few_follow_it(feedback: list[str], found: list[str]) -> None:
    answers = ("of one in the",)
    assert statements(heard(*feedback, answers=answers)) == found


def test_a_grader_that_repeats_question_and_answer_is_read_for_the_rest() -> None:
    pairs = [("p : y n b", "b / n"), ("q : z w t", "k r m"), ("r : a b", "a over b")]
    rules = [f"{question[0]} means : turn it." for question, _ in pairs]
    said = [
        read_feedback("system", f"For {question} the answer is not {answer}.\n{rule}", answer, question)
        for (question, answer), rule in zip(pairs, rules, strict=True)
    ]
    assert {one.text for lines in said for one in lines[0]} == {"For … the answer is not …."}
    assert [" ".join(each.text for each in lines[1]) for lines in said] == rules
    assert read_feedback("system", "Sort the list first.\nSort it.", "I sort the list first.")[0][0].text == "Sort it."


def test_an_answer_that_is_repeated_over_several_lines_is_left_out() -> None:
    answer = "About ships.\nThey float.\nsure"
    said = f'You said "{answer}". Name a source.'
    ((quoted, rule),) = read_feedback("system", said, answer, "What of ships?")
    assert (quoted.text, rule.text) == ('You said "…".', "Name a source.")


def test_a_sign_or_a_few_words_that_are_a_line_of_the_answer_stay() -> None:
    ((rule,),) = read_feedback("system", "Write a - b of the layer.", "total\n-\nthe layer")
    assert rule.text == "Write a - b of the layer."


def test_points_say_nothing_where_all_are_there() -> None:
    ((lead, rule),) = read_feedback("system", "Form (2/5): no list. Tone (5/5).", "an answer")
    assert (lead.text, rule.text) == ("Form (2/5):", "no list.")


def test_sentences_without_spaces_between_them_come_apart() -> None:
    ((wrong, rule, other),) = read_feedback(
        "system", "不正解です。敬語を使ってください！「はい。いいえ。」と書く。", "だ"
    )
    assert (wrong.text, rule.text, other.text) == (
        "不正解です。",
        "敬語を使ってください！",
        "「はい。いいえ。」と書く。",
    )


def test_what_is_numbered_within_a_line_comes_apart_and_is_the_same_under_any_number() -> None:
    ((lead, one, other),) = read_feedback("system", "Issues: (1) name the unit (2) use a list", "an answer")
    ((_, again),) = read_feedback("system", "Issues: (1) use a list", "an answer")
    assert (lead.text, one.text, other.key) == ("Issues:", "(1) name the unit", again.key)
    ((_, one, other),) = read_feedback("system", "Issues • name the unit • f (2), not f(2) or (a)", "an answer")
    assert (one.text, other.text) == ("• name the unit", "• f (2), not f(2) or (a)")


@pytest.mark.parametrize("said", ["इकाई लिखें। सूची दें।", "أين الوحدة؟ اكتب قائمة."])
def test_sentences_of_other_scripts_come_apart(said: str) -> None:
    (parts,) = read_feedback("system", said, "a")
    assert len(parts) == 2


def test_what_is_said_of_every_right_answer_is_no_rule() -> None:
    transcript = Transcript()
    for number in range(8):
        words = f"All fine here.\nThe {VENDORS[number % 2]} rule was kept." if number < 4 else "Use kg."
        lines = read_feedback("system", words, "?")
        keys = tuple(tuple(part.key for part in line) for line in lines)
        graded = Graded(str(number), frozenset(), 0, float(number < 4), 0, keys)
        transcript.add(graded, itertools.chain(*lines), f"problem {number}")
    kept = [f"The {each} rule was kept." for each in VENDORS[:2]]
    assert statements(transcript) == [*kept, "Use kg."]


def test_what_only_tells_what_the_answer_was_is_no_rule_where_one_stands_beside_it() -> None:
    starts, rule = ["sum(rows)", "stock.filter", "select", "rows[0]", "[age]"], "An expression begins with `use`."
    facts = [f"The expression begins with '{start}'.\n{rule}" for start in starts]
    assert statements(heard(*facts, "Sort it first.", answers=(*starts, "?"))) == [rule, "Sort it first."]
    apart = [f"The expression begins with '{start}'." for start in starts]
    assert any("begins with '…'" in each for each in statements(heard(*apart, answers=tuple(starts))))


def test_what_a_line_of_the_texts_says_is_not_forgotten_and_the_rest_is() -> None:
    transcript = heard(
        *(f"A parcel of {n} kg goes to amber." for n in range(1, 7)), "Ring twice.", questions=("a parcel",)
    )
    text = parts_of_texts({"system": "Task.\nA parcel of … kg goes to amber."})
    for number in range(MOST_ROWS):
        transcript.add(Graded(f"later {number}", text, 8, 1.0, 1), question="a parcel")
    transcript.forget()
    kept = [row for row in transcript.rows if row.said]
    assert len(kept) == LAST_SAID
    assert len(transcript.rows) == MOST_ROWS + LAST_SAID


def test_an_example_covers_what_names_something_of_its_answer_alone() -> None:
    said = ["Choose them by `keep`.", "Sort them by `rank`.", "The last word is `crate`."]
    transcript = heard(*said, answers=("it is crate",))
    example = "Example of a right answer. The question:\nproblem 9 sort\nThe answer:\nkeep all of the rows in a crate"
    transcript.words["9"] = words_of("problem 9 sort")
    transcript.declare(key_of("system", example), example)
    transcript.examples[key_of("system", example)] = "9"
    journal, key = transcript.read(), key_of("system", example)
    assert journal.right == {key}
    assert journal.statements[key].covers - {key} == {key_of("system", said[0])}  # a label is no name


def test_a_label_is_what_a_short_answer_comes_to() -> None:
    assert label_words("I think so.\nANSWER: Amber desk") == {"amber", "desk"}
    assert label_words(r"It is \boxed{birch} I say, and nothing but that.") == {"birch"}
    assert label_words("So the message should go to the amber desk") == frozenset()


lines = st.lists(
    st.lists(st.sampled_from(["A first one.", "Then two:", "three too", "1.", "–", "x"]), max_size=4).map(" ".join),
    max_size=3,
).map("\n".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(lines, max_size=8))
def test_a_transcript_survives_the_disk_and_nothing_said_is_lost(feedback: list[str]) -> None:
    transcript = heard(*feedback)
    transcript.declare("system\nwritten", "Written.", transcript.parts_in(transcript.read().statements))
    back = Transcript.from_data(json.loads(json.dumps(transcript.to_data())))
    one, other = transcript.read(), back.read()
    assert (one.rows, one.known, one.statements) == (other.rows, other.known, other.statements)
    for words in feedback:
        for line in words.splitlines():
            letters = [letter for letter in line if letter.isalpha()]
            assert [letter for part in parts_of("system", line) for letter in part.text if letter.isalpha()] == letters
    assert set(transcript.to_data()) == FIELDS


def test_what_another_version_wrote_is_one_error() -> None:
    with pytest.raises(RunError, match="lack declared, examples, keys, labels: another version"):
        Transcript.from_data({"parts": [], "rows": [], "words": {}})


@pytest.mark.parametrize(("times", "verdict"), [((2, 1, 1), True), ((3, 1, 1), False), ((1, 1), False)])
def test_a_verdict_is_said_with_many_labels_none_of_them_most_of_the_time(
    times: tuple[int, ...], verdict: bool
) -> None:
    said = {f"label {number}": {f"problem {number}": count} for number, count in enumerate(times)}
    framed = dict.fromkeys(said, ("system", "goes", "to", ""))
    assert verdicts(said, framed, Topics({})) == (said.keys() if verdict else frozenset())


def test_a_second_try_tells_of_its_problem_and_not_of_lines_also_after_the_disk() -> None:
    transcript = heard("Begin with the way in.")
    [said] = parts_of("system", "Name the straw.")
    first = key_of("system", "Begin with the way in.")
    transcript.add(Graded("0", frozenset(), 0, 0.0, 0, ((said.key,),), again=(first,)), [said])
    for read in (transcript, Transcript.from_data(json.loads(json.dumps(transcript.to_data())))):
        journal = read.read()
        assert len(journal.rows) == 1
        assert said.key in journal.about("0")
        assert journal.beyond["0"] == {first}
        assert journal.tries == [((first,), (said.key,))]


def test_an_example_shows_what_is_said_of_its_problem_later() -> None:
    transcript = heard("Begin with the way in.")
    key = key_of("system", "Example of a right answer.")
    transcript.declare(key, "Example of a right answer.")
    transcript.examples[key] = "0"
    [said] = parts_of("system", "Name the straw.")
    transcript.add(Graded("0", frozenset(), 0, 0.0, 0, ((said.key,),)), [said])
    assert transcript.read().statements[key].covers == {said.key, key_of("system", "Begin with the way in.")}
    transcript.withdraw(key)
    assert key not in transcript.read().statements


def test_what_stands_in_braces_is_no_quotation_and_stays_whole() -> None:
    rule = 'For 4 kg call: {"name": "weigh", "arguments": {"weight": 4000}}'
    answer = '{"name":"weigh","arguments":{"weight":5000}}'
    lines = read_feedback("system", f"Step 2: weigh in grams. {rule}.", answer)
    assert [part.text for part in lines[0]] == [
        "Step 2:",
        "weigh in grams.",
        "For 4 kg call:",
        '{"name": "weigh", "arguments": {"weight": 4000}}.',
    ]
    ((refused, *_),) = read_feedback(
        "system", """'{"name": "weigh", "arguments": {"weight": 5000}}' was refused.""", answer
    )
    assert refused.text == "'…' was refused."


def test_a_rule_whose_words_an_answer_has_is_the_rule_also_where_it_was_said_first() -> None:
    rule = "A column's name always has `$` right before it, as in `$depth`."
    said = heard(rule, rule, rule, rule, answers=("<crew> ~ utter($depth) end", "<crew>", "crew", "census"))
    assert statements(said) == [rule]
    (held,) = said.read().statements.values()
    assert len(held.problems) == 4


def test_a_part_that_was_made_more_often_without_its_quotation_stays_what_it_is() -> None:
    cut_short, whole = (
        Said(key_of("system", text), text) for text in ("It cannot end with '…'.", "It cannot end with 'up'.")
    )
    other = Said(key_of("system", "It cannot end with 'so'."), "It cannot end with 'so'.")
    parts = {each.key: each for each in (cut_short, whole)}
    assert wholes(parts, {cut_short.key: 1, whole.key: 2}) == {cut_short.key: whole.key}
    assert wholes(parts, {cut_short.key: 2, whole.key: 2}) == {}
    assert wholes({**parts, other.key: other}, {cut_short.key: 1, whole.key: 2, other.key: 2}) == {}


@given(st.text(alphabet="{}a:\"' ", max_size=40))
def test_braces_that_do_not_close_hide_nothing(text: str) -> None:
    masked = without_braces(text)
    assert len(masked) == len(text)
    depth, hidden = 0, set[int]()
    for start, letter in enumerate(text):  # the longest balanced runs, by brute force
        if letter != "{":
            continue
        depth = 0
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                hidden |= set(range(start, end + 1))
                break
    outermost = {place for place, letter in enumerate(masked) if letter == BRACED}
    assert outermost <= hidden
    if text.count("{") == text.count("}") and hidden and min(hidden) == text.index("{"):
        assert outermost
