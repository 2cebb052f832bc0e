"""The records: what makes two contexts the same, and what a rollout adds up."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.records import Completion, Context, Rollout, Sampling, Turn
from fastslow.tasks.base import Example, Feedback

texts = st.dictionaries(st.text(max_size=6), st.text(max_size=12), max_size=3)


@settings(deadline=None, max_examples=200)
@given(texts, texts)
def test_contexts_are_the_same_exactly_when_their_texts_are(first: dict[str, str], second: dict[str, str]) -> None:
    assert (Context(first).id == Context(second).id) == (first == second)
    turned_round = dict(reversed(first.items()))
    assert Context(turned_round, ("parent",), 3).id == Context(first).id


def test_a_contexts_id_never_changes() -> None:
    """Ids stand in run folders, so they must be the same tomorrow."""
    import hashlib

    assert Context({"system": "é"}).id == hashlib.sha256(b'[["system", "\\u00e9"]]').hexdigest()[:10]


def test_a_rollout_adds_up_its_turns() -> None:
    turns = [
        Turn("system", "", (1,) * prompt, Completion((2,) * answer, (0.0,) * answer), "")
        for prompt, answer in [(5, 2), (9, 4)]
    ]
    rollout = Rollout(Example("x", {}), Context({}), 0, turns, Feedback(0.25))
    assert (rollout.prompt_tokens, rollout.completion_tokens, rollout.score) == (14, 6, 0.25)


@pytest.mark.parametrize(
    "record", [Context({}), Sampling(), Completion((), ()), Feedback(0.0), Example("x", {})], ids=repr
)
def test_records_are_frozen(record: object) -> None:
    name = dataclasses.fields(record)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, None)
