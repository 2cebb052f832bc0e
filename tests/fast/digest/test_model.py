"""What is expected of a text, beside the base text."""

from __future__ import annotations

import pytest

from fastslow.fast.digest.journal import Journal, Row, Said, key_of
from fastslow.fast.digest.model import Model
from fastslow.fast.digest.writing import Writer

BASE = {"prompt": "Answer the question.\nName the unit.\nBe polite."}
UNIT, POLITE, DIGITS = (key_of("prompt", line) for line in ("Name the unit.", "Be polite.", "Write digits."))


def known(cycles: int = 1) -> Model:
    """Answers without the unit fail, and are told so; politeness changes nothing; digits are asked for now and then."""
    journal, writer = Journal(), Writer(BASE, 200, lambda text: len(text.split()))
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
        row = Row(
            f"problem {number % 8}", lines, 0, float(not said), number * cycles // 48, tuple(each.key for each in said)
        )
        journal.add(row, said, f"what is {number % 8} and two")
    return Model(journal, writer, cycles - 1)


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
