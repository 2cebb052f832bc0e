"""When a cycle has found something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fastslow.fast.optimizers.base import Optimizer
from fastslow.fast.pool import Member, Pool
from fastslow.records import Context


def test_a_find_must_be_surer_the_more_texts_were_tried() -> None:
    """Of four texts one was carried: the best is the luckiest of three."""
    asked = []

    class Spy:
        def surely_better(self, best: Member, rival: Member, tried: int) -> bool:
            asked.append((best.context.texts["system"], rival.context.texts["system"], tried))
            return True

    scores = {"carried": 0.5, "one": 0.25, "two": 0.5, "best": 0.75}
    members = [Member(Context({"system": name}), {"p": score}) for name, score in scores.items()]
    search: Any = SimpleNamespace(
        members={each.context.id: each for each in members},
        carried=Pool((members[0],)),
        evaluator=SimpleNamespace(scores=Spy()),
    )
    assert Optimizer._is_find(search, members[3])
    assert asked == [("best", "carried", 3)]
    assert not Optimizer._is_find(search, members[0])  # not a new one
    assert Optimizer._is_find(search, Member(Context({"system": "new"}), {"p": 0.0}))  # nothing scores
    assert len(asked) == 1
