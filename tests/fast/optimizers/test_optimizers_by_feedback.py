"""What is particular to the optimizers that read the grader's words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest
from cycle_helpers import Stage, evolve, knows_rule, pool_of, problems
from hypothesis import given, settings
from hypothesis import strategies as st
from optimizer_helpers import Watched, half, scripted

from fastslow.fast.optimizers.ace import Item, changed
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import LanguageModelReflector, Lessons, Reply
from fastslow.tasks import Example

ANCHORS = problems(12)


# TextGrad --------------------------------------------------------------------------------------------------------------


def test_textgrad_asks_for_a_criticism_and_then_for_the_text_that_heeds_it() -> None:
    reflector, chat = scripted()
    found = evolve(Stage(half), reflector, pool_of("Answer."), ANCHORS, budget=40, optimizer="textgrad")
    criticism, edit = chat.heard[:2]
    assert "Criticise the instructions" in criticism
    assert "rule " in criticism
    assert "Idea 1." in edit
    assert "rule " not in edit.replace("general rules", "")
    assert [context.texts["system"] for context in found.contexts][:2] == ["Answer.", "Idea 2."]


def test_textgrad_takes_back_a_step_that_does_worse() -> None:
    stage = Stage(lambda texts, example: 0.5 if texts["system"] == "Answer." else 0.25)
    reflector, chat = scripted()
    found = evolve(stage, reflector, pool_of("Answer."), ANCHORS, budget=60, optimizer="textgrad")
    assert found.edits
    assert not any(edit.accepted for edit in found.edits)
    assert all("worse than 0.50" in edit.reason for edit in found.edits)
    assert {edit.parent for edit in found.edits} == {found.pool.best.context.id}
    assert len(chat.heard) == 2 * len(found.edits)


def test_textgrad_goes_on_from_a_step_that_is_no_worse() -> None:
    found = evolve(Stage(half), scripted()[0], pool_of("Answer."), ANCHORS, budget=100, optimizer="textgrad")
    parents = [edit.parent for edit in found.edits]
    assert parents == [found.contexts[0].id, *(edit.child for edit in found.edits[:-1])]


# Reflexion -------------------------------------------------------------------------------------------------------------


def by_number(texts: Mapping[str, str], example: Example) -> float:
    """A problem needs a line that names it; what another problem's line says is no help."""
    return float(f"{example.data['hint']}" in texts["system"].splitlines())


def numbered(count: int) -> list[Example]:
    return [Example(f"problem-{index}", {"hint": f"do {index}"}) for index in range(count)]


def test_a_second_try_is_made_with_the_lessons_of_its_own_problem() -> None:
    stage = Stage(by_number)
    found = evolve(stage, Lessons(), pool_of("Answer."), numbered(6), budget=12, optimizer="reflexion")
    (first, second) = [pairs for purpose, _, pairs in stage.calls if purpose == "fast-minibatch"]
    assert [example for _, example in first] == [example for _, example in second]
    assert len({context for context, _ in second}) == 3  # a text of its own for each problem
    assert not {context for context, _ in second} & {context.id for context in found.contexts}
    helped = found.pool.best.notes["memory"]
    assert {(each["problem"], each["text"]) for each in helped} == {
        (example, f"do {example.split('-')[1]}") for _, example in first
    }
    assert all(each["helped"] for each in helped)
    assert set(found.pool.best.context.texts["system"].splitlines()) == {"Answer.", *(each["text"] for each in helped)}


def test_new_problems_are_shown_the_latest_lessons_that_fit() -> None:
    stage = Stage(by_number)
    found = evolve(
        stage,
        Lessons(),
        pool_of("Answer."),
        numbered(6),
        budget=200,
        optimizer="reflexion",
        max_tokens=5,
        population=99,
    )
    last = found.contexts[-1]
    memory = next(member for member in found.pool.members if member.context.id == last.id).notes["memory"]
    assert last.texts["system"].splitlines() == ["Answer.", *(each["text"] for each in memory[-2:])]


def test_lessons_that_do_not_help_are_not_shown_to_others() -> None:
    stage, watched = Stage(lambda texts, example: 0.0), Watched()
    found = evolve(stage, watched, pool_of("Answer."), ANCHORS, budget=200, optimizer="reflexion")
    assert watched.requests
    assert not found.edits
    assert stage.booked["fast-score"] == 0
    again = [request.prompt for request, _ in watched.requests if "(none yet)" not in request.prompt]
    assert all(re.search(r"the same problem:\n(rule \d\n)+", prompt) for prompt in again)


def test_the_memory_goes_on_in_the_next_cycle() -> None:
    stage = Stage(by_number)
    first = evolve(stage, Lessons(), pool_of("Answer."), numbered(6), budget=12, optimizer="reflexion")
    pool = Pool.from_dict(json.loads(json.dumps(first.pool.to_dict())))
    second = evolve(stage, Lessons(), pool, numbered(6), budget=100, optimizer="reflexion", seed=1)
    assert second.pool.best.mean == 1.0
    assert second.pool.best.notes["base"] == {"system": "Answer."}
    assert len(second.pool.best.notes["memory"]) == 6


# ACE -------------------------------------------------------------------------------------------------------------------


def test_changes_are_applied_item_by_item() -> None:
    items = [Item("one", 2, 1), Item("two"), Item("three", 0, 4)]
    changes = "HELPFUL 1 2\nharmful 2\nREMOVE 3\n- UPDATE 2: second\nADD: four\nand so on\nUPDATE 9: nobody\nADD:"
    assert changed(items, changes) == [Item("one", 3, 1), Item("second"), Item("four")]
    assert changed(items, "") == items
    assert changed([], "1. ADD: 2 apples are two") == [Item("2 apples are two")]


@settings(deadline=None)
@given(
    st.lists(st.builds(Item, st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), max_size=4),
    st.lists(
        st.one_of(
            st.text(max_size=20),
            st.builds(
                "{} {}: {}".format,
                st.sampled_from(["ADD", "UPDATE", "REMOVE", "HELPFUL"]),
                st.integers(0, 5),
                st.just("x"),
            ),
        ),
        max_size=5,
    ).map("\n".join),
)
def test_whatever_a_model_writes_items_change_only_as_it_says(items: list[Item], changes: str) -> None:
    after = changed(items, changes)
    verbs = count_verbs(changes)
    assert len(after) <= len(items) + verbs["ADD"]
    if not verbs["REMOVE"]:
        assert len(after) >= len(items)
    if not verbs["UPDATE"] and not verbs["REMOVE"]:
        assert [item.text for item in after[: len(items)]] == [item.text for item in items]


def count_verbs(changes: str) -> dict[str, int]:
    return {verb: len(re.findall(verb, changes, re.IGNORECASE)) for verb in ("ADD", "UPDATE", "REMOVE")}


def test_a_playbook_is_never_rewritten() -> None:
    """From one playbook to the next at most the lines that a change names are other ones."""
    watched = Watched()
    found = evolve(Stage(knows_rule), watched, pool_of("Answer.\nTwice."), problems(12, 6), budget=150, optimizer="ace")
    contexts = {context.id: context for context in found.contexts}
    assert len(found.edits) > 2
    for edit in found.edits:
        child, parent = (contexts[name].texts["system"].splitlines() for name in (edit.child, edit.parent))
        assert child[:2] == parent[:2] == ["Answer.", "Twice."]
        assert len(set(parent) - set(child)) <= 2
        assert len(set(child) - set(parent)) <= 2


def test_counters_follow_the_marks_and_are_carried() -> None:
    answers = iter(["ADD: Sort.\nADD: Stop.", "HELPFUL 1\nHARMFUL 2", "HELPFUL 1", "HARMFUL 2", *["HELPFUL 1"] * 50])
    reflector = LanguageModelReflector(lambda messages, seed: Reply(f"```\n{next(answers)}\n```"))
    found = evolve(Stage(half), reflector, pool_of("Answer."), ANCHORS, budget=24, optimizer="ace")
    assert found.generations == 4
    best = found.pool.best
    assert best.context.texts["system"] == "Answer.\nSort.\nStop."  # the model reads no counters
    assert best.notes["items"]["system"] == [
        {"text": "Sort.", "helpful": 2, "harmful": 0},
        {"text": "Stop.", "helpful": 0, "harmful": 2},
    ]
    second = evolve(Stage(half), reflector, found.pool, ANCHORS, budget=20, optimizer="ace")
    assert second.pool.best.notes["items"]["system"][0]["helpful"] > 2


def test_the_least_useful_items_go_when_the_playbook_is_full() -> None:
    answers = iter(["ADD: one\nADD: two\nADD: three", "HELPFUL 1 3\nHARMFUL 2\nADD: four", *["HELPFUL 1"] * 50])
    reflector = LanguageModelReflector(lambda messages, seed: Reply(f"```\n{next(answers)}\n```"))
    found = evolve(Stage(half), reflector, pool_of("Answer."), ANCHORS, budget=24, optimizer="ace", max_tokens=4)
    assert found.contexts[-1].texts["system"] == "Answer.\none\nthree\nfour"


@pytest.mark.parametrize("optimizer", ["textgrad", "reflexion", "ace"])
def test_a_start_that_is_too_long_already_costs_no_more_than_the_budget(optimizer: str) -> None:
    stage = Stage(half)
    found = evolve(stage, Lessons(), pool_of("word " * 30), ANCHORS, budget=60, optimizer=optimizer, max_tokens=10)
    assert stage.fast <= 60
    assert found.pool.members
