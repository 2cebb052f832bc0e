"""Which words of the questions tell problems apart."""

from __future__ import annotations

import math

import pytest

from fastslow.fast.digest.topics import Topics, words_of


def topics(**questions: str) -> Topics:
    return Topics({problem: words_of(text) for problem, text in questions.items()})


def test_a_word_of_more_than_half_of_the_questions_tells_nothing() -> None:
    found = topics(a="pay the ferry", b="stamp the ferry", c="send the visa", d="send it")
    assert found.rarity == pytest.approx(
        {
            word: math.log(5 / count)
            for word, count in {"pay": 1, "stamp": 1, "ferry": 2, "send": 2, "visa": 1, "it": 1}.items()
        }
    )
    assert found.having["ferry"] == {"a", "b"}


def test_a_topic_has_the_words_that_three_in_five_of_its_questions_have() -> None:
    found = topics(a="ferry one", b="ferry two", c="ferry three", d="visa", e="visa", f="x", g="y", h="z")
    five = frozenset("abcde")
    assert found.shared(["ferry", "visa", "unheard"], five) == {"ferry"}
    assert found.shared(["ferry", "visa"], frozenset("abde")) == frozenset()


def test_a_question_is_of_a_topic_if_it_has_most_of_its_words_by_their_rarity() -> None:
    found = topics(a="rare common", b="rare", c="common", d="common", e="common", **dict.fromkeys("fghij", "other"))
    rare, common = math.log(11 / 2), math.log(11 / 4)
    assert rare / (rare + common) > 0.6 > common / (rare + common)
    assert found.matching(frozenset({"rare", "common"})) == {"a", "b"}


@pytest.mark.parametrize(
    ("words", "problems", "numbered"),
    [
        (["message", "31"], {"a"}, True),
        (["message"], {"a"}, False),
        (["31"], {"b"}, False),  # of another question
        (["31"], {"a", "b"}, False),
        (["7"], {"b"}, False),  # of two questions
        (["7"], {"b", "c"}, False),
        (["99"], {"a"}, False),  # of none
    ],
)
def test_a_number_marks_the_one_problem_whose_question_has_it(
    words: list[str], problems: set[str], numbered: bool
) -> None:
    found = topics(a="message 31", b="part 7", c="part 7", d="nothing")
    assert found.numbered(words, frozenset(problems)) is numbered
