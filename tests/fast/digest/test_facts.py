"""Which statements tell the case at hand, beside the rule for it."""

from __future__ import annotations

from collections.abc import Sequence

from fastslow.fast.digest.facts import approvals, cases, facts, refusals
from fastslow.fast.digest.journal import key_of
from fastslow.fast.digest.reading import read_feedback
from fastslow.fast.digest.transcript import Graded, Transcript

CODES = ("NOR", "JPN", "PER", "KEN", "AUS", "DEU")


def heard(feedback: Sequence[str]) -> set[str]:
    """The statements that are left of these failures, each of another problem."""
    transcript = Transcript()
    for number, text in enumerate(feedback):
        lines = read_feedback("system", text, "an answer")
        said = tuple(tuple(part.key for part in line) for line in lines)
        graded = Graded(f"p{number % 20}", frozenset(), 0, 0.0, 0, said)
        transcript.add(graded, [part for line in lines for part in line], f"note {number}", "an answer")
    return {each.text for each in transcript.read().statements.values()}


def test_values_beside_a_rule_are_no_rules() -> None:
    said = [f"expected '[{code}]', got 'x'\nPut the country in brackets." for code in CODES] * 4
    assert heard([*said, "Write one line."]) == {"Put the country in brackets.", "Write one line."}


def test_a_value_that_was_wanted_once_is_a_case_as_well() -> None:
    texts = {code: f"expected '{code}', got 'x'" for code in CODES} | {"rule": "Put the country in brackets."}
    said = [[[code], ["rule"]] for code in CODES]
    assert cases(texts, [*said, [["other"]]]) == set(CODES)
    assert cases(texts, [*said[:-1], [[CODES[-1]], ["other"]]]) == set(CODES[:-1]), "no rule stands beside the last"


def test_a_fact_is_told_four_times_and_always_beside_one_rule_that_is_hardly_said_without_it() -> None:
    def found(told: set[int], rule: set[int], *, left_out: str = "…", other: str = "Use JSON.") -> bool:
        return bool(facts({"told": (f"you wrote {left_out}", told), "rule": (other, rule)}))

    assert found({1, 2, 3, 4}, {1, 2, 3, 4, 5, 6})
    assert facts({"told": ("you wrote …", {1, 2, 3, 4}), "rule": ("Use JSON.", {1, 2, 3, 4})}) == {"told"}
    assert not found({1, 2, 3}, {1, 2, 3})
    assert not found({1, 2, 3, 4}, {1, 2, 3, 5})
    assert not found({1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7})
    assert not found({1, 2, 3, 4}, {1, 2, 3, 4}, left_out="17")
    assert not found({1, 2, 3, 4}, {1, 2, 3, 4}, other="Use … instead.")


def test_values_are_all_there_is_where_no_rule_stands_beside_them() -> None:
    codes = [f"field {code.lower()}: expected '{code}', got 'x'" for code in CODES] * 4
    assert sum("expected" in text for text in heard(codes)) == len(CODES)


def test_a_sentence_that_is_said_of_every_failure_explains_no_value() -> None:
    boilerplate = [f"expected '[{code}]', got 'x'\nSee the manual of the house." for code in CODES] * 8
    assert sum("expected" in text for text in heard(boilerplate)) == len(CODES)


def test_what_must_not_be_given_is_no_case() -> None:
    said = [
        f"'{name}' is out of use.\nUse what is in the list." for name in ("zip", "map", "cut", "sed", "awk", "tr")
    ] * 4
    assert sum("out of use" in text for text in heard([*said, "Write one line."])) == len(CODES)


def test_a_value_that_is_wanted_most_of_the_time_is_no_case() -> None:
    said = [f"expected '{code}', got 'x'\nUse the codes." for code in ("EUR", "EUR", "EUR", "USD", "YEN", "CHF")] * 5
    assert "expected 'EUR', got 'x'" in heard([*said, "Write one line."])


def test_a_rule_that_names_things_in_quotation_marks_stays() -> None:
    rules = [f"Column `{name}` takes `{name}s`." for name in ("age", "pay", "port", "name", "price")]
    said = [f"{rule}\nEnd with a stop." if index % 2 else rule for index, rule in enumerate(rules * 5)]
    assert {*rules, "End with a stop."} == heard(said)


def test_nothing_said_is_nothing_told() -> None:
    assert cases({}, []) == frozenset()
    key = key_of("system", "expected '1'")
    assert cases({key: "expected '1'"}, [[[key]], []]) == frozenset()


def test_what_quotes_an_answer_beside_its_rule_is_a_case() -> None:
    steps = {"sort": "Rows are sorted by `rank`.", "limit": "The first rows are left by `crop`."}
    said = [
        f"There is no step '{step}' in '{step} {n} rows'.\n{rule}" for n in range(8) for step, rule in steps.items()
    ]
    assert heard(said) == set(steps.values())


def test_what_quotes_an_answer_is_kept_where_it_stands_alone_or_beside_many() -> None:
    alone = [f"There is no step 'sort' in 'sort {n} rows'." for n in range(8)]
    assert any("no step" in each for each in heard([*alone, "Write one line."]))
    beside = ["One line.", "Use brackets.", "End with a dot.", "No spaces."]
    several = [f"{said}\n{beside[n % 4]}\n{beside[(n + 1) % 4]}" for n, said in enumerate(alone)]
    assert any("no step" in each for each in heard(several))


def test_what_is_said_of_all_answers_or_of_all_right_ones_tells_none_from_another() -> None:
    right, wrong = set(range(4)), set(range(4, 12))
    said = {"all": right | wrong, "right": right, "praise": right | {5}, "some": {1, 2}, "blame": wrong}
    assert approvals(said, right, wrong) == {"all", "right"}
    assert approvals(said, {0, 1, 2}, wrong) == set(), "too few right answers"


def test_what_is_said_of_every_failure_whether_a_line_says_it_or_not_only_calls_it_one() -> None:
    wrong = set(range(20))
    said = {"leider falsch": wrong, "name the unit": set(range(12)), "round it": set(range(12, 20))}

    def found(said: dict[str, set[int]], told: set[int]) -> frozenset[str]:
        return refusals(said, wrong, lambda _: told)

    assert found(said, set(range(8))) == {"leider falsch"}
    assert not found(said, set(range(7))), "too few failures under texts with the line"
    assert not found({**said, "round it": {12}}, set(range(8))), "it may be what is wrong where nothing else is said"
    assert not found({**said, "leider falsch": set(range(1, 20))}, set(range(8)))
