"""What optimizers that take their own steps share."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from fastslow.fast.optimizers import steps
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.optimizers.textgrad import TextGrad
from fastslow.records import Context


def test_lines_count_as_lessons_from_a_quarter_of_the_largest_weight_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "new_lessons", lambda request: {"often": 4.0, "now and then": 1.0, "once": 0.9})
    search: Any = SimpleNamespace(component="system", request=lambda *_: None)
    assert Steps.lessons(search, "Answer.", []) == {"often": 4.0, "now and then": 1.0}


def test_a_criticism_without_a_model_has_three_lines_at_most() -> None:
    lessons = {f"rule {number}": 1.0 for number in range(6)}
    search: Any = SimpleNamespace(
        text=lambda context: "Answer.",
        lessons=lambda text, attempts: lessons,
        text_request=lambda what, prompt, fence, by_hand, most: by_hand,
    )
    by_hand: Any = TextGrad._gradient(search, SimpleNamespace(context=Context({"system": "Answer."}), failed=[]))
    lines = by_hand(random.Random(0))
    assert len(set(lines)) == 3
    assert set(lines) < lessons.keys()
