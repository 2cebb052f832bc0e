"""Rulebooks: the hidden rules decide, the grader gives them away one at a time, and each dial turns what it says."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any, get_args

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sayings import sayings

from fastslow.models.load import load_policy
from fastslow.recipe import ModelRecipe
from fastslow.tasks.base import Example
from fastslow.tasks.families.rulebook import universe as u
from fastslow.tasks.families.rulebook.task import BOOKS, OPERATION, STYLE, BookName, Rulebook, RulebookOptions

SPLITS = ("train", "validation", "test")


def rulebook(**options: Any) -> Rulebook:
    return Rulebook(RulebookOptions(**options))


FULL = rulebook(styles=3)
# zorka means reverse in the harbour's book: [ c - b - a ] done
PROBLEM = Example("hand-made", {"word": "zorka", "items": ["a", "b", "c"]})


def style_sayings(style: u.Style) -> set[str]:
    ways = u.HELD.styles[style.kind]
    return sayings(way.replace("{name}", style.called).replace("{one}", style.one) for way in ways)


def ways(task: Rulebook) -> tuple[dict[str, u.Style], dict[str, re.Pattern[str]]]:
    """Every sentence that may state a style of a task, and a pattern of those that state a word."""
    styles = {f"{way}.": style for style in task.styles for way in style_sayings(style)}
    words = {word: re.compile(rf".*\b{word}\b.*\.") for word in task.words}
    return styles, words


def test_books_are_made_of_what_the_universe_has() -> None:
    assert set(BOOKS) == set(get_args(BookName))
    for book in BOOKS.values():
        assert len(book.words) == 6
        assert OPERATION.keys() >= {name for names in book.words.values() for name in names}
        assert len({STYLE[name].kind for name in book.styles}) == len(book.styles) == 3


def test_books_are_at_least_four_and_pairwise_different() -> None:
    assert len(BOOKS) >= 4
    for (_, first), (_, second) in itertools.combinations(BOOKS.items(), 2):
        assert first.words.keys().isdisjoint(second.words)
        assert list(first.words.values()) != list(second.words.values())
        assert first.styles != second.styles
        assert first.styles[0] != second.styles[0]  # the one style of the default


@pytest.mark.parametrize("book", sorted(BOOKS))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_words_of_a_book_mean_different_things(book: str, depth: int) -> None:
    items = list("dbac")
    meanings = {
        word: tuple(rule.apply(items)) for word, rule in rulebook(book=book, words=6, depth=depth).words.items()
    }
    assert len(set(meanings.values())) == 6
    assert all(meaning and meaning != tuple(items) for meaning in meanings.values())


def test_problems_are_the_same_every_time_and_whatever_the_size_of_the_split() -> None:
    small, large = rulebook(train=30), rulebook(train=3000)
    assert list(small.examples("train")) == large.examples("train")[:30] == rulebook(train=30).examples("train")[:]
    assert [len(rulebook().examples(split)) for split in SPLITS] == [2000, 200, 200]


def test_a_problem_never_changes_between_versions() -> None:
    example = rulebook().examples("train")[0]
    assert example == Example(
        "rulebook-harbour-w4-s1-l3-5-d1-seed0/train/0", {"word": "mavrax", "items": ["r", "p", "w", "o"]}
    )


def test_seeds_and_books_have_problems_of_their_own() -> None:
    tasks = [rulebook(longest=8), rulebook(longest=8, seed=1), rulebook(longest=8, book="orchard")]
    pools = [task.examples(split)[:100] for task in tasks for split in SPLITS]
    everything = [example for pool in pools for example in pool]
    assert len({example.id for example in everything}) == 900
    assert len({str(example.data) for example in everything}) > 890  # short lists may meet by chance


def test_no_problem_stands_in_two_splits_whatever_the_seeds() -> None:
    shown = {
        split: {
            str(example.data)
            for seed in (0, 1)
            for example in rulebook(words=1, shortest=2, longest=2, seed=seed).examples(split)
        }
        for split in SPLITS
    }
    assert all(len(problems) > 40 for problems in shown.values())
    for one, other in itertools.combinations(SPLITS, 2):
        assert shown[one].isdisjoint(shown[other])


def test_the_question_and_the_seed_text_say_nothing_of_the_rules() -> None:
    task = rulebook()
    assert task.messages(PROBLEM) == [{"role": "user", "content": "zorka : a b c"}]
    assert dict(task.seed_texts) == {"system": "Answer the question."}


@pytest.mark.parametrize("answer", ["[ c - b - a ] done", "  [ c - b\n- a ] done\t"])
def test_the_right_answer_scores_one_however_it_is_spaced(answer: str) -> None:
    assert FULL.answer(PROBLEM) == "[ c - b - a ] done"
    assert FULL.grade(PROBLEM, answer).score == 1
    assert FULL.grade(PROBLEM, answer).text == "Right."


@pytest.mark.parametrize("book", sorted(BOOKS))
@pytest.mark.parametrize(("styles", "depth"), [(0, 1), (1, 1), (3, 3)])
def test_the_answer_of_every_problem_scores_one(book: str, styles: int, depth: int) -> None:
    task = rulebook(book=book, words=6, styles=styles, depth=depth, shortest=2, longest=9)
    for example in task.examples("train")[:100]:
        assert task.grade(example, task.answer(example)).score == 1


@st.composite
def wrong_answers(draw: st.DrawFn) -> tuple[Rulebook, Example, str]:
    """The right answer of some problem with a few parts dropped, doubled, exchanged, replaced or put in."""
    task = rulebook(
        book=draw(st.sampled_from(sorted(BOOKS))),
        words=6,
        styles=draw(st.integers(0, 3)),
        depth=draw(st.integers(1, 3)),
    )
    example = task.examples("train")[draw(st.integers(0, 1999))]
    right = task.answer(example)
    parts = right.split()
    strange = st.sampled_from([*"abz09[]()*|<>,-/+:", "done", "over", "answer", "result", "A", "é", "ab", "[a"])
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(parts) - 1, 0)))
        change = draw(st.sampled_from(["drop", "double", "exchange", "replace", "put in"]))
        if change in ("put in", "replace") or not parts:
            parts[place : place + (change == "replace")] = [draw(strange)]
        elif change == "drop":
            del parts[place]
        elif change == "double":
            parts.insert(place, parts[place])
        else:
            other = draw(st.integers(0, len(parts) - 1))
            parts[place], parts[other] = parts[other], parts[place]
    assume(" ".join(parts) != right)
    return task, example, " ".join(parts)


@settings(max_examples=400, deadline=None)
@given(case=wrong_answers())
def test_nothing_else_scores_and_feedback_is_how_and_rule_line_by_line(case: tuple[Rulebook, Example, str]) -> None:
    task, example, answer = case
    feedback = task.grade(example, answer)
    assert feedback.score == 0
    lines = feedback.text.split("\n")
    assert len(lines) >= 2
    styles, words = ways(task)
    stated = []
    for how, rule in zip(lines[::2], lines[1::2], strict=True):
        if rule in styles:
            stated.append(styles[rule].name)
            assert re.match(r"The (empty )?answer .*does not (begin|end|have) ", how)
        else:
            stated.append(example.data["word"])
            assert words[example.data["word"]].fullmatch(rule)
            assert how.startswith(
                f"For {example.data['word']} the items {' '.join(example.data['items'])} do not become "
            )
            assert " ".join(example.data["items"]) not in rule
    assert len(stated) == len(set(stated))


@pytest.mark.parametrize("book", sorted(BOOKS))
@pytest.mark.parametrize("answer", ["", "q"])
def test_feedback_tells_the_rule_and_not_the_answer(book: str, answer: str) -> None:
    task = rulebook(book=book, words=6, styles=3, shortest=3, longest=6)
    told = 0
    for example in task.examples("train")[:200]:
        right = " ".join(task.words[example.data["word"]].apply(list(example.data["items"])))
        text = task.grade(example, answer).text
        assert task.answer(example) not in text
        if len(right) > 1 and right not in " ".join(example.data["items"]):  # as where the last is dropped
            assert not re.search(rf"\b{right}\b", text)
            told += 1
    assert told > 80


@settings(max_examples=100, deadline=None)
@given(answer=st.text(max_size=40))
def test_any_text_is_graded(answer: str) -> None:
    assert FULL.grade(PROBLEM, answer).score == (answer.split() == ["[", "c", "-", "b", "-", "a", "]", "done"])


ZORKA = "For zorka the items a b c do not become {}."


@pytest.mark.parametrize(
    ("answer", "faults"),
    [
        ("[ c - b - a ]", ["The answer [ c - b - a ] does not end with done."]),
        ("c - b - a done", ["The answer c - b - a done does not begin with [ and end with ]."]),
        ("[ c - b - a done", ["The answer [ c - b - a done does not begin with [ and end with ]."]),
        ("( c - b - a ) done", ["The answer ( c - b - a ) done does not begin with [ and end with ]."]),
        ("[ c b a ] done", ["The answer [ c b a ] done does not have - between every two items."]),
        ("[ c , b , a ] done", ["The answer [ c , b , a ] done does not have - between every two items."]),
        ("[ c - b - a - ] done", ["The answer [ c - b - a - ] done does not have - between every two items."]),
        ("[ a - b - c ] done", [ZORKA.format("a b c")]),
        ("[ c - b - a - a ] done", [ZORKA.format("c b a a")]),
        ("[ [ c - b - a ] ] done", ["The answer [ [ c - b - a ] ] done does not have - between every two items."]),
        ("[ C - B - A ] done", [ZORKA.format("C B A")]),
        ("[ c - b - a ] over", ["The answer [ c - b - a ] over does not end with done."]),
        (
            "",
            [
                "The empty answer does not begin with [ and end with ].",
                "The empty answer does not end with done.",
                "For zorka the items a b c do not become nothing.",
            ],
        ),
        (
            "a b c",
            [
                "The answer a b c does not begin with [ and end with ].",
                "The answer a b c does not have - between every two items.",
                "The answer a b c does not end with done.",
                ZORKA.format("a b c"),
            ],
        ),
    ],
)
def test_feedback_says_how_each_rule_was_broken_and_blames_no_other(answer: str, faults: list[str]) -> None:
    assert FULL.grade(PROBLEM, answer).text.split("\n")[::2] == faults


@pytest.mark.parametrize(
    ("options", "word", "items", "answer", "score"),
    [
        ({}, "mavrax", "a b c", "[ a a b b c c ]", 1),  # each one twice
        ({}, "mavrax", "a b c", "[ a b c a b c ]", 0),  # the whole list twice
        ({}, "gralin", "a b c", "[ a b ]", 1),
        ({}, "gralin", "a b c", "[ b c ]", 0),
        ({}, "gralin", "a b c", "[ a b c ]", 0),
        ({}, "hapgan", "c a b", "[ a b c ]", 1),
        ({}, "hapgan", "c a b", "[ c b a ]", 0),
        ({}, "hapgan", "9 0 4", "[ 0 4 9 ]", 1),
        ({"words": 6}, "rifzel", "a b c", "[ b c a ]", 1),
        ({"words": 6}, "rifzel", "a b c", "[ c a b ]", 0),
        ({"words": 6}, "drimo", "a z 9", "[ b a 0 ]", 1),  # after z comes a, after 9 comes 0
        ({"words": 6}, "drimo", "a z 9", "[ b z 0 ]", 0),
        ({"words": 6}, "drimo", "a z 9", "[ b a 10 ]", 0),
        ({"book": "orchard"}, "kedbo", "a b c", "* c b a *", 1),
        ({"book": "orchard"}, "kedbo", "a b c d", "* d b c a *", 1),
        ({"book": "orchard"}, "kedbo", "a b c d", "* d c b a *", 0),  # turned around, not only its ends
        ({"book": "orchard"}, "wexnu", "a b 0", "* z a 9 *", 1),
        ({"book": "orchard", "words": 6, "styles": 3}, "fonfi", "a b", "result : * a , b , a , b *", 1),
        ({"book": "orchard", "words": 6, "styles": 3}, "fonfi", "a b", "result * a , b , a , b *", 0),
        ({"book": "orchard", "words": 6, "styles": 3}, "fonfi", "a b", "result : * a , b *", 0),
        ({"book": "foundry", "styles": 0}, "snoshi", "a b c", "c", 1),
        ({"book": "foundry", "styles": 0}, "snoshi", "a b c", "c c", 0),
        (
            {"book": "library", "depth": 2, "styles": 0},
            "lomjat",
            "a b c",
            "b c",
            1,
        ),  # the first to the end, then without it
        ({"book": "library", "depth": 2, "styles": 0}, "lomjat", "a b c", "b c a", 0),
        ({"book": "library", "depth": 3, "styles": 0}, "casyem", "b c a", "c b", 1),
        ({"book": "observatory", "styles": 3}, "fondus", "a b c", "< a > okay", 1),
        ({"book": "observatory", "styles": 3}, "fondus", "a b c", "< a > Okay", 0),
        ({"book": "observatory", "styles": 3}, "fondus", "a b c", "< a - > okay", 0),
    ],
)
def test_answers_right_and_nearly_right(
    options: dict[str, Any], word: str, items: str, answer: str, score: int
) -> None:
    example = Example("hand-made", {"word": word, "items": items.split()})
    assert rulebook(**options).grade(example, answer).score == score


def test_one_mark_does_not_pass_for_both_ends_of_a_frame() -> None:
    task = rulebook(book="orchard")  # stars on both sides
    example = task.examples("train")[0]
    for answer in (task.answer(example).removesuffix(" *"), task.answer(example).removeprefix("* ")):
        how, rule = task.grade(example, answer).text.split("\n")
        assert how.endswith("does not begin with * and end with *.")
        assert rule.removesuffix(".") in style_sayings(STYLE["stars"])


def test_a_wrong_word_before_is_not_held_against_the_frame() -> None:
    task = rulebook(book="foundry", styles=3, words=1)  # answer : ( … / … ), trudus means the next
    how, rule = task.grade(
        Example("hand-made", {"word": "trudus", "items": ["a", "b"]}), "reply : ( b / c )"
    ).text.split("\n")
    assert how == "The answer reply : ( b / c ) does not begin with answer :."
    assert rule.removesuffix(".") in style_sayings(STYLE["begin answer"])


def test_a_long_answer_is_not_repeated_in_full() -> None:
    assert max(map(len, FULL.grade(PROBLEM, "a " * 5000).text.split("\n"))) < 250


def test_rules_lifted_from_feedback_hold_for_other_problems_too() -> None:
    task = rulebook(words=6)
    examples = task.examples("train")[:300]
    lifted = [line for example in examples for line in task.grade(example, "").text.split("\n")[1::2]]
    styles, words = ways(task)
    assert {styles[line].name for line in lifted if line in styles} == {"square brackets"}
    for word, pattern in words.items():
        said = {line for line in lifted if pattern.fullmatch(line)}
        possible = {
            f"{frame.format(code=word, phrase=way)}."
            for operation in task.words[word].operations[:1]
            for frame, way in itertools.product(u.HELD.sentences, sayings(u.HELD.operations[operation.name]))
        }
        assert said
        assert said <= possible


@pytest.mark.parametrize(("told", "stated"), [(0, 0), (2, 2), (6, 4)])
def test_the_seed_text_tells_as_many_words_as_it_should_and_the_problems_stay(told: int, stated: int) -> None:
    task, hidden = rulebook(told=told), rulebook()
    generic, *lines = task.seed_texts["system"].splitlines()
    assert [generic] == hidden.seed_texts["system"].splitlines()
    assert len(lines) == stated
    assert all(word in line for word, line in zip(task.words, lines, strict=False))
    assert list(task.examples("train"))[:5] == list(hidden.examples("train"))[:5]
    assert rulebook(told=told).seed_texts == task.seed_texts


def test_rules_tell_the_whole_book() -> None:
    task = rulebook(words=6, styles=3)
    styles, words = ways(task)
    said = task.rules(random.Random(0))
    assert len(said) == 9
    assert {styles[line].name for line in said if line in styles} == set(BOOKS["harbour"].styles)
    assert all(any(pattern.fullmatch(line) for line in said) for pattern in words.values())
    assert said == task.rules(random.Random(0)) != task.rules(random.Random(1))


@pytest.mark.parametrize("words", [1, 4, 6])
def test_the_dial_of_words(words: int) -> None:
    task = rulebook(words=words)
    assert {example.data["word"] for example in task.examples("train")[:300]} == set(task.words)
    assert len(task.words) == words
    assert list(task.words) == list(BOOKS["harbour"].words)[:words]


def test_the_dial_of_styles() -> None:
    answers = [rulebook(styles=styles).answer(PROBLEM) for styles in range(4)]
    assert answers == ["c b a", "[ c b a ]", "[ c - b - a ]", "[ c - b - a ] done"]


@pytest.mark.parametrize(("shortest", "longest"), [(2, 2), (3, 5), (7, 12)])
def test_the_dials_of_length(shortest: int, longest: int) -> None:
    examples = rulebook(words=6, shortest=shortest, longest=longest).examples("train")[:300]
    assert {len(example.data["items"]) for example in examples} == set(range(shortest, longest + 1))


def test_the_dial_of_depth() -> None:
    assert rulebook(depth=1, styles=0).answer(PROBLEM) == "c b a"
    assert rulebook(depth=2, styles=0).answer(PROBLEM) == "b a"  # and then without the first
    assert rulebook(depth=3, styles=0).answer(PROBLEM) == "a b"  # and then the last to the front


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shortest": 6}, "shortest=6 is more than longest=5; set longest to 6 or more, or lower shortest"),
        ({"book": "cellar"}, "'harbour', 'orchard'"),
        ({"words": 7}, "less than or equal to 6"),
        ({"depth": 4}, "less than or equal to 3"),
        ({"train": 0}, "greater than or equal to 1"),
    ],
)
def test_impossible_options_are_refused_with_what_to_change(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        rulebook(**options)


@torch.no_grad()
def test_nano_knows_the_book_when_it_reads_it_and_not_before() -> None:
    policy = load_policy(ModelRecipe(name="nano", device="cpu", precision="fp32"))
    task = rulebook()
    problems = task.examples("validation")[:60]
    rules = "\n".join([task.seed_text, *task.rules(random.Random(0))])

    def score(system: str) -> float:
        chats = [[{"role": "system", "content": system}, *task.messages(example)] for example in problems]
        prompts = policy.tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        ids = {name: prompts[name] for name in ("input_ids", "attention_mask")}
        output = policy.model.eval().generate(**ids, max_new_tokens=24, do_sample=False)
        answers = policy.tokenizer.batch_decode(output[:, ids["input_ids"].shape[1] :], skip_special_tokens=True)
        return sum(task.grade(*pair).score for pair in zip(problems, answers, strict=True)) / len(problems)

    assert score(task.seed_text) <= 0.1
    assert score(rules) >= 0.6
