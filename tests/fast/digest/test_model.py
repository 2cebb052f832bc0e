"""What is expected of a text, beside the base text."""

from __future__ import annotations

import numpy as np
import pytest

from fastslow.fast.digest.journal import Journal, Row, Said, key_of
from fastslow.fast.digest.model import HEEDED, KEPT_MOSTLY, SEEN_TWICE, TRIED, Model
from fastslow.fast.digest.writing import Heard, Writer, wish

BASE = {"prompt": "Answer the question.\nName the unit.\nBe polite."}
UNIT, POLITE, DIGITS = (key_of("prompt", line) for line in ("Name the unit.", "Be polite.", "Write digits."))


def known(most: int = 200) -> Model:
    """Answers without the unit fail, and are told so; politeness changes nothing; digits are asked for now and then."""
    journal, writer = Journal(), Writer(BASE, most, lambda text: len(text.split()))
    for key, line in writer.loose.items():
        journal.declare(key, line)
    texts = [frozenset({UNIT, POLITE}), frozenset({POLITE}), frozenset({UNIT}), frozenset({UNIT, POLITE, DIGITS})]
    for number in range(48):
        lines = texts[number % 4]
        said = []
        if UNIT not in lines:
            said.append(Said(UNIT, "Name the unit."))
        if DIGITS not in lines and number % 3 == 0:
            said.append(Said(DIGITS, "Write digits."))
        row = Row(f"problem {number % 8}", lines, 0, float(not said), 0, tuple(each.key for each in said))
        journal.add(row, said, f"what is {number % 8} and two")
    return Model(journal, writer, 0)


def test_the_base_text_gains_nothing_over_itself_and_that_is_sure() -> None:
    model = known()
    assert model.base == {UNIT, POLITE}
    base = model.judged(model.base)
    assert (base.gain, base.deviation) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.0, abs=1e-6))


def test_a_gain_is_over_the_base_text() -> None:
    """Leaving out a line that helps loses, by as much as the expected scores differ; one that is asked for gains."""
    model = known()
    without, more = model.judged(frozenset({POLITE})), model.judged(frozenset({UNIT, POLITE, DIGITS}))
    assert without.gain < -0.05 < 0.0 < more.gain
    assert without.deviation > 0.01
    assert model.best.gain >= more.gain - 1e-9
    assert 0.0 < model.level() < 1.0


def test_a_line_bears_on_a_problem_as_its_own_or_as_a_related_one() -> None:
    """Of a problem of its topic of which it was said a line bears as its own; of one of which something else was said, as a
    related one; of one of which nothing was said, by the chance of either."""
    model = known()
    place = model.place[UNIT]
    present, in_topic = np.tile(model._present(frozenset({UNIT})), (3, 1)), np.ones((3, len(model.lines)))
    own, related = model._bearing(present, [frozenset({UNIT}), frozenset({DIGITS}), frozenset()], in_topic)
    assert own[0, place] > 0
    assert related[0, place] == 0
    assert (own[1, place], related[1, place]) == (0, 1)
    assert related[2, place] == pytest.approx(1 - model._direct[place])
    assert 0 < model._direct[place] <= 1
    present, nothing = present[:1], [frozenset[str]()]
    for has_topic, likely in ((1.0, 0.0), (0.0, model.shares[place])):  # of a problem of another topic
        model._has_topic = np.full(len(model.lines), has_topic)
        own, _ = model._bearing(present, nothing, np.zeros((1, len(model.lines))))
        assert own[0, place] == pytest.approx(likely * model._gate(present, model.words.about(nothing))[0, place])
    assert model.shares[place] > 0


def test_with_too_many_lines_those_that_reach_furthest_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = known()
    reach = {line.key: whole.support[line.key].truth * whole.support[line.key].share for line in whole.lines}
    assert len(set(reach.values())) == 3
    monkeypatch.setattr("fastslow.fast.digest.model.MOST_LINES", 1)
    assert [line.key for line in known().lines] == [max(reach, key=reach.__getitem__)]


def test_a_line_may_be_as_long_as_a_text() -> None:
    longest = max(line.tokens for line in known().lines)
    assert len(known(most=longest).lines) == len(known().lines)
    assert all(line.tokens < longest for line in known(most=longest - 1).lines)


def test_a_reflection_model_is_told_of_how_many_problems_something_was_said() -> None:
    heard = [Heard("a", "one", 1, False), Heard("b", "two", 2, True)]
    prompt = wish("prompt", "Answer.", heard, [], 100, len).prompt
    assert "[1] (of 1 problem) one" in prompt
    assert "[2] (of 2 problems, and the instructions say so already) two" in prompt


def test_lines_that_answers_do_not_keep_are_counted_by_how_often_they_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = known()
    problem = next(problem for problem in model.journal.words if UNIT in model.journal.about(problem))
    said_of = sum(len(model.journal.statements[key].problems) for key in model.journal.about(problem))
    for heeded, every, expected in (
        ((HEEDED - 0.1, TRIED), False, said_of * (1 - HEEDED + 0.1)),
        ((HEEDED, TRIED), False, 0.0),
        ((HEEDED, TRIED), True, said_of * (1 - HEEDED)),
        ((0.999, TRIED), True, 0.0),
        ((HEEDED - 0.1, TRIED - 1), True, 0.0),
    ):
        monkeypatch.setattr(model.words, "heeded", lambda key, heeded=heeded: heeded)
        assert model.wanting(problem, every) == pytest.approx(expected)


def test_of_what_was_said_of_several_problems_that_is_kept_which_is_seen_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    model = known()
    assert {UNIT, DIGITS} <= model.words.place.keys()
    single = model.journal.statements[DIGITS].problems
    for heeded, kept in (
        ((KEPT_MOSTLY, SEEN_TWICE), True),
        ((KEPT_MOSTLY - 0.01, SEEN_TWICE), False),
        ((1.0, SEEN_TWICE - 0.01), False),
    ):
        monkeypatch.setattr(model.words, "heeded", lambda key, heeded=heeded: heeded)
        assert model.complaints() == (2 * kept, 2)
    for problem in list(single)[1:]:
        del single[problem]
    assert model.complaints() == (0, 1), "the other was said of one problem only"


@pytest.mark.parametrize(("right", "silent"), [(0, True), (1, True), (2, False)])
def test_scores_say_nothing_while_no_more_than_one_answer_in_fifty_is_right(right: int, silent: bool) -> None:
    journal = Journal()
    for number in range(50):
        journal.add(Row(f"problem {number}", frozenset(), 0, float(number < right), 0, ()), [], "what")
    assert Model(journal, Writer(BASE, 200, len), 0).silent is silent
