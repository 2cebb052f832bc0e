"""Which cycle a step belongs to, when there is an evaluation, and how far groups may be begun ahead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fastslow.fast.memory import Memory
from fastslow.recipe import build_recipe
from fastslow.runs.ledger import Entry
from fastslow.state import Clock, State


def made(
    step: int, *, steps: int = 10, cycle: int = 4, rollouts: int | None = None, spent: int = 0, **others: Any
) -> State:
    """The state after a step of a run with 2 problems of 4 rollouts a step."""
    recipe = build_recipe(
        {
            "model": "none",
            "task": "given",
            "slow": {"steps": steps, "problems": 2, "group": 4, "microbatch": 8},
            "fast": {"cycle": cycle, "population": 2},
            **({} if rollouts is None else {"rollouts": rollouts}),
            **others,
        }
    )
    state = State(recipe, {"prompt": "answer"})
    state.step = step
    state.ledger.book("slow", Entry(rollouts=spent))
    return state


def test_the_last_cycle_is_that_of_the_last_completed_step() -> None:
    """Step 4 ends the first cycle of four steps; the next step belongs to the second."""
    assert [made(step).last_cycle for step in range(10)] == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert [made(step).cycle for step in range(10)] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert [made(step).cycle_due for step in range(6)] == [True, False, False, False, True, False]


def test_groups_are_begun_until_the_cycle_ends_or_the_run_does() -> None:
    assert [made(step).horizon for step in range(10)] == [4, 4, 4, 4, 8, 8, 8, 8, 10, 10]
    assert [made(step, method="rl").horizon for step in range(10)] == [10] * 10


@pytest.mark.parametrize(
    ("left", "steps"), [(48, 6), (17, 3), (16, 2), (15, 2), (9, 2), (8, 1), (1, 1), (0, 1), (-2, 1)]
)
def test_no_group_is_begun_that_the_rollouts_do_not_reach(left: int, steps: int) -> None:
    """A step spends 8 rollouts. One is played although a cycle has spent the rest."""
    assert made(3, method="rl", rollouts=48, spent=48 - left).horizon == 3 + steps
    assert made(8, method="rl", rollouts=48, spent=48 - left).horizon == min(10, 8 + steps)


def test_a_run_is_done_with_its_last_step_or_its_last_rollout() -> None:
    assert [made(step, steps=3).done for step in (2, 3, 4)] == [False, True, True]
    assert [made(1, rollouts=48, spent=spent).done for spent in (47, 48, 49)] == [False, True, True]


@pytest.mark.parametrize("done", [False, True])
def test_a_run_is_done_when_its_task_has_what_it_was_played_for(done: bool) -> None:
    state = made(1)
    state.memory = Memory(state.recipe.fast, reads=False, task=SimpleNamespace(done=done))  # type: ignore[arg-type]
    assert state.done == done


def test_evaluations_come_before_and_after_training_at_the_end_of_stages_and_as_the_recipe_says() -> None:
    every = {"evaluation": {"every": 3}}
    assert [step for step in range(11) if made(step, **every).evaluation_due(())] == [0, 3, 6, 9, 10]
    assert [step for step in range(11) if made(step, **every).evaluation_due((4,))] == [0, 3, 4, 6, 9, 10]
    assert not any(made(step, evaluation={"every": 0}).evaluation_due((4,)) for step in range(11))


def test_frozen_weights_are_evaluated_when_a_cycle_has_changed_the_texts() -> None:
    """Cycles are run before steps 1, 5 and 9, so the evaluations after steps 4 and 8 would repeat earlier ones."""
    due = [
        step for step in range(13) if made(step, steps=12, method="gepa", evaluation={"every": 2}).evaluation_due(())
    ]
    assert due == [0, 2, 6, 10, 12]


def test_the_seconds_of_a_part_are_counted_once() -> None:
    clock = Clock()
    clock.count({"update": 5.0})
    clock.count({"update": 2.0, "sampling": 1.0})
    clock.split("update", "sync", 3.0)
    clock.split("update", "sync", None)
    assert clock.phases == {"update": 4.0, "sampling": 1.0, "sync": 3.0}


def test_a_clock_adds_what_came_before_and_leaves_out_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("fastslow.state.time.perf_counter", lambda: now[0])
    clock = Clock()
    now[0] += 10
    assert clock.seconds == 10
    clock.add(7)
    assert clock.seconds == 17
    with clock.stopped():
        now[0] += 5
    assert clock.seconds == 17
    with clock.phase("fast"):
        now[0] += 2
    assert (clock.seconds, clock.phases) == (19, {"fast": 2})
