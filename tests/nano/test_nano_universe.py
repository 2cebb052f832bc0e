"""The universe: operations do what they are called, what is held out is never said, and what is said has one meaning."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import phrases as p
import pytest
import universe as u
from episodes import Difficulty, Episode, make_episode
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sayings import sayings

from fastslow.tasks.families.rulebook.task import BOOKS, Rulebook, RulebookOptions, read
from fastslow.tasks.families.rulebook.universe import Sayings

OPERATION = {operation.name: operation for operation in u.OPERATIONS}
KINDS = ("frame", "prefix", "suffix", "separator")
lists_of_items = st.sampled_from([*u.ALPHABETS.values()]).flatmap(
    lambda alphabet: st.lists(st.sampled_from(alphabet), min_size=1, max_size=9)
)


def with_fillers(texts: Iterable[str]) -> set[str]:
    return {said for text in texts for said in (text, *(f"{filler} {text}" for filler in p.FILLERS))}


def style_sayings(said: Sayings, style: u.Style) -> set[str]:
    ways = said.styles[style.kind]
    return sayings(way.replace("{name}", style.called).replace("{one}", style.one) for way in ways)


SEEN = {name: with_fillers(sayings(ways)) for name, ways in u.SEEN.operations.items()}
HELD = {name: sayings(ways) for name, ways in u.HELD.operations.items()}
MEANINGS: dict[str, list[tuple[str, bool]]] = {}
for _held, _phrases in ((False, SEEN), (True, HELD)):
    for _name, _texts in _phrases.items():
        for _text in _texts:
            MEANINGS.setdefault(_text, []).append((_name, _held))
STYLE_SEEN = {text: style for style in u.STYLES for text in with_fillers(style_sayings(u.SEEN, style))}
STYLE_HELD = {text: style for style in u.STYLES for text in style_sayings(u.HELD, style)}
STYLES = STYLE_SEEN | STYLE_HELD
PRIORITIES = {text: (counts, held) for counts, ways in p.PRIORITIES.items() for held in (False, True)
              for text in ways[held]}  # fmt: skip
SENTENCES = (u.SEEN.sentences, u.HELD.sentences)
LINKS = (u.SEEN.links, u.HELD.links)
CODEWORDS = {held: set(u.codewords(held)) for held in (False, True)}


def splits(ways: tuple[p.Ways, p.Ways], text: str) -> Iterator[tuple[dict[str, str], bool]]:
    """Every way to take a text apart by a pattern with slots, and whether the pattern is held out."""
    for held in (False, True):
        for way in ways[held]:
            start, *rest = re.split(r"\{(\w+)\}", way)
            if text.startswith(start):
                yield from ((parts, held) for parts in _fits(rest, text[len(start) :]))


def _fits(rest: list[str], text: str) -> Iterator[dict[str, str]]:
    if not rest:
        if not text:
            yield {}
        return
    name, after, *more = rest
    for match in re.finditer(f"(?={re.escape(after)})", text) if after or more else re.finditer(r"\Z", text):
        for parts in _fits(more, text[match.start() + len(after) :]):
            yield {name: text[: match.start()], **parts}


def in_a_row(text: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Readings of a text as one operation, or as several linked."""
    yield from (((name,), held) for name, held in MEANINGS.get(text, []))
    for parts, held in splits(LINKS, text):
        for (first, first_held), (name, name_held) in itertools.product(
            in_a_row(parts["first"]), MEANINGS.get(parts["second"], [])
        ):
            yield (*first, name), held or first_held or name_held


def meanings(word: str, text: str) -> Iterator[tuple[u.Codeword, bool]]:
    for names, held in in_a_row(text):
        yield u.Codeword(word, tuple(OPERATION[name] for name in names)), held
    for parts, held in splits(p.EXCEPTIONS, text):
        if parts["kind"] in u.ALPHABETS:
            for (names, one), (other, two) in itertools.product(
                in_a_row(parts["phrase"]), MEANINGS.get(parts["other"], [])
            ):
                exception = (parts["kind"], OPERATION[other])
                yield u.Codeword(word, tuple(OPERATION[name] for name in names), exception), held or one or two


def readings(sentence: str) -> Iterator[tuple[u.Codeword, bool]]:
    """Every way to read a sentence about a word, and whether anything in it is held out."""
    for parts, held in splits(SENTENCES, sentence):
        if parts["code"] in CODEWORDS[False] | CODEWORDS[True]:
            for meaning, said_held in meanings(parts["code"], parts["phrase"]):
                yield meaning, held or said_held or parts["code"] in CODEWORDS[True]


def style_readings(sentence: str) -> Iterator[tuple[u.Style, str | None, bool]]:
    if sentence in STYLES:
        yield STYLES[sentence], None, sentence in STYLE_HELD
    for parts, held in splits(p.SPARED, sentence):
        if parts["style"] in STYLES:
            yield STYLES[parts["style"]], parts["code"], held or parts["style"] in STYLE_HELD


def sentences(episode: Episode) -> list[str]:
    return [sentence for sentence in episode.system.removesuffix(".").split(". ") if sentence]


@dataclass
class Message:
    """What a system message says, read by a stranger."""

    rules: list[u.Codeword]
    styles: dict[u.Style, str | None]
    counts: str | None
    held: list[bool]
    """For each rule, whether anything in it is held out."""

    def answer(self, question: str) -> str:
        word, _, items = question.partition(" : ")
        about = [rule for rule in self.rules if rule.word == word]
        assert len(about) == 1 or (len(about) == 2 and self.counts)
        rule = about[0] if self.counts == "first" else about[-1]
        return u.write_answer(rule.apply(items.split()), [s for s, spared in self.styles.items() if spared != word])


def read_message(episode: Episode) -> Message:
    """Ambiguity is an error."""
    message = Message([], {}, None, [])
    for sentence in sentences(episode):
        if sentence in PRIORITIES:
            message.counts, held = PRIORITIES[sentence]
        elif sentence in p.NOISE:
            continue
        elif found := {*style_readings(sentence)}:
            [(style, spared, held)] = found
            message.styles[style] = spared
        else:
            [(rule, held)] = {*readings(sentence)}
            message.rules.append(rule)
        message.held.append(held)
    return message


def test_pretraining_never_says_anything_held_out_and_answers_what_it_says() -> None:
    draw = random.Random(11)
    seen: Counter[str] = Counter()
    for _ in range(2500):
        episode = make_episode(draw, replace(Difficulty(), unruled=0), questions=2)
        message = read_message(episode)
        assert not any(message.held), episode.system
        for question, answer in episode.questions:
            assert question.split(" : ")[0] in CODEWORDS[False]
            assert answer == message.answer(question), (episode.system, question)
        for rule in message.rules:
            assert not u.combination_held(rule.operations, [*message.styles])
            assert not rule.exception or not u.combination_held(rule.exception[1:], [*message.styles])
        seen["exception"] += any(rule.exception for rule in message.rules)
        seen["spared"] += any(message.styles.values())
        seen["priority"] += message.counts is not None
    assert all(count > 200 for count in seen.values()), seen
    assert len(seen) == 3


def test_pretraining_with_guesses_says_nothing_held_out_either() -> None:
    draw = random.Random(12)
    unruled = unexplained = 0
    for _ in range(1000):
        episode = make_episode(draw, Difficulty(), questions=1)
        message = read_message(episode)
        assert not any(message.held)
        word = episode.questions[0][0].split(" : ")[0]
        assert word in CODEWORDS[False]
        unruled += not message.rules
        unexplained += bool(message.rules) and word not in {rule.word for rule in message.rules}
    assert 40 < unruled < 130
    assert 40 < unexplained < 130


def test_held_out_episodes_say_every_rule_in_a_held_out_way() -> None:
    draw = random.Random(13)
    for _ in range(500):
        difficulty = replace(Difficulty(), unruled=0, held_phrasings=True, held_codewords=True)
        episode = make_episode(draw, difficulty, questions=1)
        message = read_message(episode)
        assert message.held
        assert all(message.held)
        [(question, answer)] = episode.questions
        assert question.split(" : ")[0] in CODEWORDS[True]
        assert answer == message.answer(question)


@pytest.mark.parametrize("held", [False, True])
def test_combinations_are_held_out_wherever_they_stand(held: bool) -> None:
    draw = random.Random(14)
    difficulty = Difficulty(codewords=(1, 2), styles=(1, 3), exceptions=0, unruled=0, held_combinations=held)
    for _ in range(500):
        message = read_message(make_episode(draw, difficulty, questions=1))
        assert {u.combination_held(rule.operations, [*message.styles]) for rule in message.rules} == {held}


def test_some_pairs_are_held_out() -> None:
    with_style = [u.combination_held([o], [s]) for o in u.OPERATIONS for s in u.STYLES]
    in_order = [u.combination_held([a, b], []) for a in u.OPERATIONS for b in u.OPERATIONS if a != b]
    assert (sum(with_style), len(with_style)) == (27, 255)
    assert (sum(in_order), len(in_order)) == (10, 210)
    assert not any(u.combination_held([operation], []) for operation in u.OPERATIONS)


def test_long_lists_grow_rare() -> None:
    draw = random.Random(16)
    difficulty = Difficulty(longer=0.5, operations=(1,), unruled=0)
    lengths = Counter(
        len(question.split(" : ")[1].split())
        for _ in range(400)
        for question, _ in make_episode(draw, difficulty, questions=10).questions
    )
    assert 1800 < sum(count for length, count in lengths.items() if length > 6) < 2200
    assert 0.12 < sum(count for length, count in lengths.items() if length > 7) / 2000 < 0.28
    assert min(lengths) == 2


def test_every_held_out_word_is_learnt_elsewhere() -> None:
    def words(*texts: Iterable[str]) -> set[str]:
        return {word for text in itertools.chain(*texts) for word in re.sub(r"\{\w+\}", "", text).split()}

    patterns = (SENTENCES, LINKS, p.EXCEPTIONS, p.SPARED, *p.PRIORITIES.values())
    known = words(*SEEN.values(), STYLE_SEEN, *(seen for seen, _ in patterns))
    assert words(*HELD.values(), STYLE_HELD, *(held for _, held in patterns)) <= known
    for syllables in (u.SYLLABLES_FIRST, u.SYLLABLES_SECOND):
        assert all(any(syllable in word for word in CODEWORDS[False]) for syllable in syllables)


def test_made_up_words_are_400_and_a_fifth_is_held_out() -> None:
    assert (len(CODEWORDS[False]), len(CODEWORDS[True])) == (320, 80)
    assert CODEWORDS[False].isdisjoint(CODEWORDS[True])
    assert CODEWORDS[False].isdisjoint(re.findall("[a-z]+", " ".join([*MEANINGS, *STYLE_SEEN, *p.NOISE, *u.ANIMALS])))


def test_the_words_of_the_books_are_made_up_words_of_the_universe() -> None:
    for book in BOOKS.values():
        assert (CODEWORDS[False] | CODEWORDS[True]).issuperset(book.words)


def test_what_is_seen_is_not_what_the_books_say() -> None:
    task = Rulebook(RulebookOptions(words=6, styles=3))
    seen = [u.say_style(style, random.Random(0)) for style in task.styles]
    assert {line.removesuffix(".") for line in seen}.isdisjoint(STYLE_HELD)


def test_no_sentence_means_two_operations_or_is_both_seen_and_held_out() -> None:
    assert not {text: found for text, found in MEANINGS.items() if len(found) > 1}
    assert len(STYLE_SEEN) == sum(len(with_fillers(style_sayings(u.SEEN, style))) for style in u.STYLES)
    assert len(STYLE_HELD) == sum(len(style_sayings(u.HELD, style)) for style in u.STYLES)
    assert STYLE_SEEN.keys().isdisjoint(STYLE_HELD)
    assert MEANINGS.keys().isdisjoint({*STYLES, *p.NOISE, *PRIORITIES})


def test_every_operation_and_kind_of_style_has_several_ways_and_some_held_out() -> None:
    for seen, held in ((u.SEEN.operations, u.HELD.operations), (u.SEEN.styles, u.HELD.styles)):
        assert seen.keys() == held.keys()
        for name in seen:
            assert len(seen[name]) >= 9
            assert len(held[name]) == 3
            assert set(seen[name]).isdisjoint(held[name])
    assert [*u.HELD.operations] == [operation.name for operation in u.OPERATIONS]


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
        "next": [after(item, 1) for item in items if item not in u.ANIMALS],
        "previous": [after(item, -1) for item in items if item not in u.ANIMALS],
        "first only": by_places(items, [0]),
        "last only": by_places(items, [size - 1]),
        "copy": by_places(items, range(size)),
    }
    before, animals = list(items), items[0] in u.ANIMALS
    able = [o for o in u.OPERATIONS if not animals or "animals" in u.Codeword("zorka", (o,)).kinds()]
    assert expected.keys() - {o.name for o in able} == ({"next", "previous"} if animals else set())
    assert {operation.name: operation.apply(items) for operation in able} == {o.name: expected[o.name] for o in able}
    assert items == before


def test_operations_can_be_told_apart() -> None:
    items = list("cabd")
    assert len({tuple(operation.apply(items)) for operation in u.OPERATIONS}) == len(u.OPERATIONS)


@given(items=lists_of_items, names=st.lists(st.sampled_from(sorted(OPERATION)), min_size=2, max_size=3))
def test_operations_are_done_one_after_the_other(items: list[str], names: list[str]) -> None:
    codeword = u.Codeword("zorka", tuple(OPERATION[name] for name in names))
    assume(items[0] not in u.ANIMALS or "animals" in codeword.kinds())
    expected = items
    for name in names:
        expected = OPERATION[name].apply(expected)
    assert codeword.apply(items) == expected


@pytest.mark.parametrize(("items", "answer"), [("a b", "b a"), ("1 2", "1 1 2 2"), ("cat dog", "dog cat")])
def test_an_exception_holds_for_its_kind_of_item_only(items: str, answer: str) -> None:
    codeword = u.Codeword("zorka", (OPERATION["reverse"],), ("numbers", OPERATION["double"]))
    assert codeword.apply(items.split()) == answer.split()
    assert codeword.apply([]) == []


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
    assert digest.hexdigest() == "03d5ca58280680e97a66ce57cf25dcc986c19d0bcdcb4bb29fed20e6bcc33b1f"


def test_lengths_and_counts_stay_within_the_difficulty() -> None:
    draw = random.Random(15)
    difficulty = Difficulty(
        lengths=(7, 9), longer=0, codewords=(5, 8), operations=(0, 1), styles=(2, 2), noise=(1, 2), exceptions=0,
        priorities=0, unruled=0,
    )  # fmt: skip
    for _ in range(200):
        episode = make_episode(draw, difficulty, questions=3)
        message = read_message(episode)
        assert 5 <= len(message.rules) <= 8
        assert all(len(set(rule.operations)) == 2 and not rule.exception for rule in message.rules)
        assert len({style.kind for style in message.styles}) == 2
        assert not any(message.styles.values())
        assert 1 <= sum(sentence in p.NOISE for sentence in sentences(episode)) <= 2
        assert all(7 <= len(question.split(" : ")[1].split()) <= 9 for question, _ in episode.questions)
