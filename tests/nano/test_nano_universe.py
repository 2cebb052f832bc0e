"""The universe: operations do what they are called, what is held out is never said, and what is said has one meaning."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pytest
from episodes import Difficulty, Episode, make_episode
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.tasks.rulebook import phrases as p
from fastslow.tasks.rulebook import universe as u
from fastslow.tasks.rulebook.reading import read

OPERATION = {operation.name: operation for operation in u.OPERATIONS}
KINDS = ("frame", "prefix", "suffix", "separator")
lists_of_items = st.lists(st.sampled_from(u.LETTERS), min_size=1, max_size=9) | st.lists(
    st.sampled_from(u.DIGITS), min_size=1, max_size=9
)


def fillings(ways: Iterable[str]) -> set[str]:
    return {
        way.replace("{w}", verb).replace("{o}", items) for way in ways for verb in p.VERBS for items in p.LISTS
    }  # fmt: skip


def with_fillers(texts: Iterable[str]) -> set[str]:
    return {said for text in texts for said in (text, *(f"{filler} {text}" for filler in p.FILLERS))}


SEEN = {operation.name: with_fillers(fillings(operation.seen)) for operation in u.OPERATIONS}
HELD = {operation.name: fillings(operation.held) for operation in u.OPERATIONS}
PHRASES = [*((name, text, False) for name in SEEN for text in SEEN[name])]
PHRASES += [*((name, text, True) for name in HELD for text in HELD[name])]
MEANINGS: dict[str, list[tuple[str, bool]]] = {}
for _name, _text, _held in PHRASES:
    MEANINGS.setdefault(_text, []).append((_name, _held))
STYLE_SEEN = {text: style for style in u.STYLES for text in with_fillers(style.seen)}
STYLE_HELD = {text: style for style in u.STYLES for text in style.held}
FRAMES = [
    (re.compile(frame.replace("{code}", r"(?P<code>[a-z]+)").replace("{phrase}", "(?P<phrase>.+)")), held)
    for frames, held in ((p.SENTENCES_SEEN, False), (p.SENTENCES_HELD, True))
    for frame in frames
]
LINKS = [(*re.split(r"\{a\}|\{b\}", link)[:2], held) for links, held in ((p.LINKS_SEEN, False), (p.LINKS_HELD, True))
         for link in links]  # fmt: skip
CODEWORDS = {held: set(u.codewords(held)) for held in (False, True)}


@dataclass(frozen=True)
class Reading:
    """One way to read a sentence about a word, and whether anything in it is held out."""

    word: str
    operations: tuple[str, ...]
    held: bool


def readings(sentence: str) -> Iterator[Reading]:
    """Every way to take a sentence apart into frame, link and phrases, seen or held out."""
    for frame, frame_held in FRAMES:
        match = frame.fullmatch(sentence)
        if not match or match["code"] not in CODEWORDS[False] | CODEWORDS[True]:
            continue
        for operations, held in phrase_readings(match["phrase"]):
            yield Reading(match["code"], operations, frame_held or held or match["code"] in CODEWORDS[True])


def phrase_readings(text: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    for name, held in MEANINGS.get(text, []):
        yield (name,), held
    for before, between, link_held in LINKS:
        if not text.startswith(before):
            continue
        for match in re.finditer(f"(?={re.escape(between)})", text):
            first, second = text[len(before) : match.start()], text[match.start() + len(between) :]
            for (a, a_held), (b, b_held) in itertools.product(MEANINGS.get(first, []), MEANINGS.get(second, [])):
                yield (a, b), link_held or a_held or b_held


def sentences(episode: Episode) -> list[str]:
    return [sentence for sentence in episode.system.removesuffix(".").split(". ") if sentence]


def read_rules(episode: Episode) -> tuple[dict[str, u.Codeword], list[u.Style], bool]:
    """What a system message says, read by a stranger, and whether anything in it is held out. Ambiguity is an error."""
    rules, styles, held = {}, [], set()
    for sentence in sentences(episode):
        if sentence in p.NOISE:
            continue
        if sentence in STYLE_SEEN or sentence in STYLE_HELD:
            styles.append((STYLE_SEEN | STYLE_HELD)[sentence])
            held.add(sentence in STYLE_HELD)
            continue
        found = set(readings(sentence))
        assert len({(reading.word, reading.operations) for reading in found}) == 1, (sentence, found)
        assert len({reading.held for reading in found}) == 1, (sentence, found)
        reading = found.pop()
        rules[reading.word] = u.Codeword(reading.word, tuple(OPERATION[name] for name in reading.operations))
        held.add(reading.held)
    return rules, styles, any(held)


def test_pretraining_never_says_anything_held_out_and_answers_what_it_says() -> None:
    draw = random.Random(11)
    answered = 0
    for _ in range(2500):
        episode = make_episode(draw, replace(Difficulty(), unruled=0), questions=2)
        rules, styles, held = read_rules(episode)
        assert not held, episode.system
        for question, answer in episode.questions:
            word, _, items = question.partition(" : ")
            assert word in CODEWORDS[False]
            assert answer == u.write_answer(rules[word].apply(items.split()), styles), (episode.system, question)
            answered += 1
    assert answered == 5000


def test_pretraining_with_guesses_says_nothing_held_out_either() -> None:
    draw = random.Random(12)
    unruled = unexplained = 0
    for _ in range(1000):
        episode = make_episode(draw, Difficulty(), questions=1)
        rules, _, held = read_rules(episode)
        assert not held
        word = episode.questions[0][0].split(" : ")[0]
        assert word in CODEWORDS[False]
        unruled += not rules
        unexplained += bool(rules) and word not in rules
    assert 40 < unruled < 130
    assert 40 < unexplained < 130


def test_held_out_episodes_say_every_rule_in_a_held_out_way() -> None:
    draw = random.Random(13)
    for _ in range(500):
        difficulty = replace(Difficulty(), unruled=0, held_phrasings=True, held_codewords=True)
        episode = make_episode(draw, difficulty, questions=1)
        said = [sentence for sentence in sentences(episode) if sentence not in p.NOISE]
        assert said
        assert all(sentence in STYLE_HELD or all(r.held for r in readings(sentence)) for sentence in said)
        rules, styles, _ = read_rules(episode)
        [(question, answer)] = episode.questions
        word, _, items = question.partition(" : ")
        assert word in CODEWORDS[True]
        assert answer == u.write_answer(rules[word].apply(items.split()), styles)


@pytest.mark.parametrize("held", [False, True])
def test_combinations_are_held_out_where_there_is_one_style(held: bool) -> None:
    draw = random.Random(14)
    difficulty = Difficulty(codewords=(1, 2), styles=(1, 1), unruled=0, held_combinations=held)
    for _ in range(500):
        rules, [style], _ = read_rules(make_episode(draw, difficulty, questions=1))
        assert {u.combination_held(rule.operations[0], style) for rule in rules.values()} == {held}


def test_every_held_out_word_is_learnt_elsewhere() -> None:
    def words(*texts: Iterable[str]) -> set[str]:
        return {word for text in itertools.chain(*texts) for word in re.sub(r"\{\w+\}", "", text).split()}

    known = words(*SEEN.values(), STYLE_SEEN, p.SENTENCES_SEEN, p.LINKS_SEEN)
    assert words(*HELD.values(), STYLE_HELD, p.SENTENCES_HELD, p.LINKS_HELD) <= known
    for syllables in (u.SYLLABLES_FIRST, u.SYLLABLES_SECOND):
        assert all(any(syllable in word for word in CODEWORDS[False]) for syllable in syllables)


def test_made_up_words_are_400_and_a_fifth_is_held_out() -> None:
    assert (len(CODEWORDS[False]), len(CODEWORDS[True])) == (320, 80)
    assert CODEWORDS[False].isdisjoint(CODEWORDS[True])
    assert CODEWORDS[False].isdisjoint(re.findall("[a-z]+", " ".join([*MEANINGS, *STYLE_SEEN, *p.NOISE])))


def test_no_sentence_means_two_operations_or_is_both_seen_and_held_out() -> None:
    assert not {text: found for text, found in MEANINGS.items() if len(found) > 1}
    assert len(STYLE_SEEN) == sum(len(with_fillers(style.seen)) for style in u.STYLES)
    assert len(STYLE_HELD) == sum(len(style.held) for style in u.STYLES)
    assert STYLE_SEEN.keys().isdisjoint(STYLE_HELD)
    assert MEANINGS.keys().isdisjoint({*STYLE_SEEN, *STYLE_HELD, *p.NOISE})


def test_every_operation_and_kind_of_style_has_several_ways_and_some_held_out() -> None:
    for what in (*u.OPERATIONS, *u.STYLES):
        assert len(what.seen) >= 9
        assert len(what.held) == 3
        assert set(what.seen).isdisjoint(what.held)


def after(item: str, by: int) -> str:
    first, size = (ord("a"), 26) if item.isalpha() else (ord("0"), 10)
    return chr(first + (ord(item) - first + by) % size)


def by_places(items: list[str], places: Iterable[int]) -> list[str]:
    return [items[place] for place in places]


def by_rank(items: list[str]) -> list[str]:
    """Sorted by counting how many are smaller; equal ones keep their places."""
    rank = {place: sum((other, i) < (item, place) for i, other in enumerate(items)) for place, item in enumerate(items)}
    return by_places(items, sorted(rank, key=rank.__getitem__))


@settings(max_examples=150, deadline=None)
@given(items=lists_of_items)
def test_operations_against_their_definitions(items: list[str]) -> None:
    size = len(items)
    expected = {
        "reverse": by_places(items, (size - 1 - place for place in range(size))),
        "ascend": by_rank(items),
        "descend": by_places(by_rank(items), (size - 1 - place for place in range(size))),
        "drop first": by_places(items, range(1, size)),
        "drop last": by_places(items, range(size - 1)),
        "first to end": by_places(items, ((place + 1) % size for place in range(size))),
        "last to front": by_places(items, ((place - 1) % size for place in range(size))),
        "swap ends": by_places(items, ({0: size - 1, size - 1: 0}.get(place, place) for place in range(size))),
        "double": by_places(items, (place // 2 for place in range(2 * size))),
        "repeat": by_places(items, (place % size for place in range(2 * size))),
        "next": [after(item, 1) for item in items],
        "previous": [after(item, -1) for item in items],
        "first only": by_places(items, [0]),
        "last only": by_places(items, [size - 1]),
        "copy": by_places(items, range(size)),
    }
    before = list(items)
    assert {operation.name: operation.apply(items) for operation in u.OPERATIONS} == expected
    assert items == before


def test_operations_can_be_told_apart() -> None:
    items = list("cabd")
    assert len({tuple(operation.apply(items)) for operation in u.OPERATIONS}) == len(u.OPERATIONS)


@given(items=lists_of_items, names=st.lists(st.sampled_from(sorted(OPERATION)), min_size=2, max_size=2))
def test_two_operations_are_done_one_after_the_other(items: list[str], names: list[str]) -> None:
    first, second = (OPERATION[name] for name in names)
    assert u.Codeword("zorka", (first, second)).apply(items) == second.apply(first.apply(items))


@st.composite
def style_sets(draw: st.DrawFn) -> list[u.Style]:
    kinds = draw(st.lists(st.sampled_from(KINDS), unique=True))
    return [draw(st.sampled_from([style for style in u.STYLES if style.kind == kind])) for kind in kinds]


@given(items=lists_of_items, styles=style_sets())
def test_what_is_written_in_styles_reads_back(items: list[str], styles: list[u.Style]) -> None:
    assert read(u.write_answer(items, styles), styles) == ([], items)


@given(items=lists_of_items, styles=style_sets(), left_out=st.integers(0, 3))
def test_a_style_left_out_is_the_one_that_is_missed(items: list[str], styles: list[u.Style], left_out: int) -> None:
    kept = [style for index, style in enumerate(styles) if index != left_out]
    missed = [style for style in styles if style not in kept and (style.kind != "separator" or len(items) > 1)]
    assert read(u.write_answer(items, kept), styles) == (missed, items)


@given(items=lists_of_items, first=style_sets(), second=style_sets())
def test_styles_write_the_same_whatever_order_they_come_in(
    items: list[str], first: list[u.Style], second: list[u.Style]
) -> None:
    assert u.write_answer(items, first) == u.write_answer(items, first[::-1])
    if len(items) > 1 and {style.name for style in first} != {style.name for style in second}:
        assert u.write_answer(items, first) != u.write_answer(items, second)


def test_the_order_of_words_before_and_after() -> None:
    styles = [style for style in u.STYLES if style.name in ("square brackets", "dashes", "begin answer", "end done")]
    assert u.write_answer(["c", "b"], styles) == "answer : [ c - b ] done"


def test_pretraining_draws_what_the_shipped_model_was_made_from() -> None:
    draw, digest = random.Random("0/0/0"), hashlib.sha256()
    for _ in range(300):
        episode = make_episode(draw, Difficulty(), questions=12)
        digest.update(repr((episode.system, list(episode.questions))).encode())
    assert digest.hexdigest() == "f1d4fccbb189b965a7c483b84c6ecd48d2d65712cde8f87af8903c2e2873d5bb"


def test_lengths_and_counts_stay_within_the_difficulty() -> None:
    draw = random.Random(15)
    difficulty = Difficulty(lengths=(7, 9), codewords=(5, 8), styles=(2, 2), noise=(1, 2), two_operations=1, unruled=0)
    for _ in range(200):
        episode = make_episode(draw, difficulty, questions=3)
        rules, styles, _ = read_rules(episode)
        assert 5 <= len(rules) <= 8
        assert all(len(set(rule.operations)) == 2 for rule in rules.values())
        assert len({style.kind for style in styles}) == 2
        assert 1 <= sum(sentence in p.NOISE for sentence in sentences(episode)) <= 2
        assert all(7 <= len(question.split(" : ")[1].split()) <= 9 for question, _ in episode.questions)
