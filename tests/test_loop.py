"""The method's schedule on an engine of pure Python: who looks at which problems when, under which contexts, at what cost."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import ANCHORS, BUDGET, GROUP, PROBLEMS, SAVED, STEPS, T, make_loop, outcome, recipe_of, resume, run

from fastslow.base.errors import RunError
from fastslow.engine.base import Update
from fastslow.loop import Loop
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Entry
from fastslow.runs.trouble import usual_fault


@pytest.fixture(scope="module", autouse=True)
def _no_disk() -> Iterator[None]:
    """Nothing here is about power cuts, and waiting for the disk takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", lambda path: None)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Loop, FakeEngine]]:
    """Uninterrupted runs, each made once."""

    made: dict[str, tuple[Loop, FakeEngine]] = {}

    def make(method: str = "fst", **changes: dict[str, Any]) -> tuple[Loop, FakeEngine]:
        key = f"{method} {changes}"
        if key not in made:
            made[key] = run(tmp_path_factory.mktemp("whole") / "run", recipe_of(method, **changes))
        return made[key]

    return make


Whole = Callable[..., tuple[Loop, FakeEngine]]


def problems_of(texts: list[str]) -> list[str]:
    return [text.split()[-1] for text in texts]


def updates_of(engine: FakeEngine) -> list[Update]:
    return [what for kind, what in engine.events if kind == "update"]


def played(engine: FakeEngine) -> list[list[str]]:
    """The prompts of every slow step: what was sampled last before an update."""
    found, last = [], []
    for kind, what in engine.events:
        if kind == "sample":
            last = what
        elif kind == "update":
            found.append(last)
    return found


def test_a_cycle_looks_ahead_at_the_problems_its_steps_train_on(whole: Whole) -> None:
    loop, engine = whole("fst")
    trained = [list(dict.fromkeys(problems_of(texts))) for texts in played(engine)]
    assert [len(problems) for problems in trained] == [PROBLEMS] * STEPS
    assert len({problem for problems in trained for problem in problems}) == STEPS * PROBLEMS
    cycles = loop.record.run.cycles()
    assert [data["policy_step"] for data in cycles] == [0, 2, 4]
    for number, data in enumerate(cycles):
        ahead = [problem for problems in trained[number * T : (number + 1) * T] for problem in problems]
        # The last cycle has one step left; it looks as far ahead as the others.
        assert data["anchors"][: len(ahead)] == ahead[:ANCHORS]
        assert len(data["anchors"]) == ANCHORS


def test_every_group_has_equal_shares_of_the_contexts_in_order(whole: Whole) -> None:
    loop, engine = whole("fst")
    active = {data["policy_step"] // T: len(data["active"]) for data in loop.record.run.cycles()}
    assert max(active.values()) == 2  # else nothing is mixed here
    for step, texts in enumerate(played(engine)):
        assert len(texts) == PROBLEMS * GROUP
        for start in range(0, len(texts), GROUP):
            group = texts[start : start + GROUP]
            assert len(set(problems_of(group))) == 1
            systems = [text.partition("<user>")[0] for text in group]
            shares = list(Counter(systems).values())
            assert shares == [GROUP // active[step // T]] * active[step // T]
            assert systems == sorted(systems, key=systems.index)  # one context after the other


@pytest.mark.parametrize("method", ["fst", "rl", "gepa", "distill"])
def test_the_order_of_what_is_asked_of_the_engine(method: str, whole: Whole) -> None:
    schedules = {"gepa": {"evaluation": {"every": 1}}, "distill": {"output": {"checkpoint_every": 2}}}
    loop, engine = whole(method, **schedules.get(method, {}))
    kinds = [kind for kind, _ in engine.events]
    validation = [problem.startswith("validation") for kind, what in engine.events if kind == "sample"
                  for problem in problems_of(what)[:1]]  # fmt: skip
    evaluated = [row["step"] for row in loop.record.run.rows("evals")]
    if method == "gepa":
        assert {"prepare", "update", "save", "teacher"}.isdisjoint(kinds)
        assert evaluated == [0, 1, 3, 5]  # weights stay, so only after a cycle, and at the end
        return
    assert kinds[0] == "prepare"
    assert kinds[1] == "sample"
    assert validation[0]  # measured before anything is learnt
    assert evaluated == [0, 2, 4, 5]
    assert [update.step for update in updates_of(engine)] == list(range(1, STEPS + 1))
    assert kinds.count("save") == len(loop.record.checkpoints.steps()) == (4 if method == "distill" else 2)
    assert [number for number, kind in enumerate(kinds) if kind == "save"][-1] == len(kinds) - 1
    assert kinds.count("teacher") == (3 if method == "distill" else 0)
    assert bool(loop.record.run.cycles()) == (method != "rl")
    if method == "distill":  # the student reads the seed, its teachers the contexts
        assert all("<system> answer <user>" in text for texts in played(engine) for text in texts)
        read = [engine.tokenizer.decode(row.teacher_prompt) for update in updates_of(engine) for row in update.rows]
        assert any("say yes" in text for text in read)
        saved = [teacher for kind, teacher in engine.events if kind == "save"]
        # After steps 2, 4 and 5, and 3, the best so far; a cycle ends with the second and the fourth.
        assert saved == [False, True, False, True]


def test_rollouts_train_with_the_advantage_within_their_problem(whole: Whole) -> None:
    loop, engine = whole("rl")
    for update, row in zip(updates_of(engine), loop.record.run.rows("metrics"), strict=True):
        assert 0 <= row["zero_variance"] <= 1
        assert len(update.rows) == round((1 - row["zero_variance"]) * PROBLEMS) * GROUP
        for start in range(0, len(update.rows), GROUP):
            group = update.rows[start : start + GROUP]
            assert sum(row.advantage for row in group) == pytest.approx(0)
            right = [engine.tokenizer.decode(row.turn.completion.ids) == "yes" for row in group]
            assert [row.advantage > 0 for row in group] == right


def test_budgets_hold_and_everything_is_booked(whole: Whole, tmp_path: Path) -> None:
    loop, engine = whole("fst")
    sampled = sum(len(what) for kind, what in engine.events if kind == "sample")
    assert loop.state.ledger.total().rollouts == sampled
    for data in loop.record.run.cycles():
        spent = data["spent"]
        searched = spent["fast-score"]["rollouts"] + spent["fast-minibatch"]["rollouts"]
        assert searched < BUDGET + 2 * 2 + ANCHORS  # the generation that passes the budget is finished
        assert searched >= BUDGET or data["population"][0]["score"] == 1  # nothing is left to find
        assert spent["rescore"]["rollouts"] == len(data["carried"]) * ANCHORS
    limited, engine = run(tmp_path / "limited", recipe_of(rollouts=30))
    assert limited.state.step < STEPS
    before = limited.state.ledger.training_rollouts - PROBLEMS * GROUP
    assert before < 30 <= limited.state.ledger.training_rollouts
    assert limited.record.checkpoints.steps()[-1] == limited.state.step


@pytest.mark.parametrize(
    ("fails_at", "changes"),
    [
        (2, {}),
        (5, {"reuse": True, "rescore": "from-rollouts", "adaptive": True}),
    ],
)
def test_a_resumed_run_ends_as_if_never_interrupted(
    fails_at: int, changes: dict[str, Any], whole: Whole, tmp_path: Path
) -> None:
    recipe = recipe_of(fast=changes)
    expected = outcome(whole("fst", **({"fast": changes} if changes else {}))[0].record.folder)
    first = FakeEngine()
    first.fails_at = fails_at
    with pytest.raises(RuntimeError, match="the power is out"):
        run(tmp_path / "run", recipe, first)
    opened = RunFolder.open(tmp_path / "run")
    latest = opened.checkpoints.latest()
    assert latest is None if fails_at == 2 else latest[0] == SAVED
    loop, second = resume(tmp_path / "run", recipe)
    assert outcome(tmp_path / "run") == expected
    # A cycle that was finished is taken from the journal: its rollouts are booked and not played again.
    journal = [data for data in opened.cycles() if data["policy_step"] >= (latest[0] if latest else 0)]
    finished = [data for data in journal if data["policy_step"] < fails_at]
    replayed = sum(entry["rollouts"] for data in finished for entry in data["spent"].values())
    steps = STEPS - (latest[0] if latest else 0)
    sampled = sum(len(what) for kind, what in second.events if kind == "sample")
    booked = loop.state.ledger.total().rollouts
    assert sampled == booked - _booked_before(opened, latest) - replayed
    assert len(updates_of(second)) == steps


def test_what_follows_a_step_is_not_done_again_after_a_resume(tmp_path: Path) -> None:
    """The checkpoint of step 2 is written after the step's evaluation and its row of the ledger."""
    recipe, first = recipe_of("rl", output={"checkpoint_every": 2}), FakeEngine()
    first.fails_at = 3
    with pytest.raises(RuntimeError, match="the power is out"):
        run(tmp_path / "run", recipe, first)
    _, second = resume(tmp_path / "run", recipe)
    trained = next(what[0] for kind, what in second.events if kind == "sample")
    assert problems_of([trained])[0].startswith("train")
    opened = RunFolder.open(tmp_path / "run")
    assert [row["step"] for row in opened.rows("evals")] == [0, 2, 4, 5]
    assert [row["step"] for row in opened.rows("ledger")] == list(range(STEPS + 1))


def test_what_a_step_trains_on_is_of_the_present_weights(whole: Whole) -> None:
    for row in whole("fst")[0].record.run.rows("metrics"):
        assert row["staleness"] == 0
        assert list(row["ages"]) == ["0"]
        assert row["ages"]["0"] == row["response_length"] * PROBLEMS * GROUP


@pytest.mark.parametrize("reuse", [False, True])
def test_every_rollout_of_a_step_is_booked_as_sampled_or_as_reused(reuse: bool, whole: Whole) -> None:
    loop, _ = whole("fst", **({"fast": {"reuse": True}} if reuse else {}))
    spent = loop.state.ledger["slow"]
    assert spent.rollouts + spent.reused == STEPS * PROBLEMS * GROUP
    assert bool(spent.reused) == reuse


def _booked_before(opened: RunFolder, latest: tuple[int, Path] | None) -> int:
    if latest is None:
        return 0
    rows = [row for row in opened.rows("ledger") if row["step"] <= latest[0]]
    return sum(entry["rollouts"] for row in rows for entry in row["spent"].values())


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"loss": math.nan}, "the loss is nan"),
        ({"grad_norm": math.inf}, "the gradient norm is inf"),
        ({"largest_weight": math.nan}, "the largest weight is nan"),
    ],
)
def test_a_run_that_diverges_stops_and_keeps_its_last_good_checkpoint(
    numbers: dict[str, float], said: str, tmp_path: Path
) -> None:
    engine = FakeEngine()
    engine.diverges = {4: numbers}
    loop = make_loop(tmp_path / "run", recipe_of(output={"checkpoint_every": 1}), engine)
    with pytest.raises(
        RunError, match=rf"diverged at step 4: {said}; .* lower slow.learning_rate .* --step 3,"
    ) as stopped:
        loop.run()
    assert "\n" not in str(stopped.value)
    assert loop.record.checkpoints.steps() == [1, 2, 3]
    assert [row["step"] for row in RunFolder.open(tmp_path / "run").rows("metrics")] == [1, 2, 3]


def test_a_step_without_rows_has_no_loss_to_diverge(tmp_path: Path) -> None:
    engine = FakeEngine(chance=-1.0)
    engine.diverges = {1: {"loss": math.nan, "grad_norm": math.nan}}
    loop, _ = run(tmp_path / "run", recipe_of("rl"), engine)
    assert loop.state.step == STEPS


@pytest.mark.parametrize(("chance", "budget", "warned"), [(-1.0, 0, True), (2.0, 0, True), (0.3, 24, False)])
def test_a_run_in_which_nothing_is_learnt_says_so(chance: float, budget: int, warned: bool, tmp_path: Path) -> None:
    """Always wrong, or always right, without an edit; a run of fewer steps says it at its end."""
    loop, _ = run(tmp_path / "run", recipe_of(fast={"budget": budget}), FakeEngine(chance))
    text = loop.record.view.console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count(f"nothing is learnt: for {STEPS} steps") == warned
    assert (f"fastslow rollouts {tmp_path / 'run'}" in text.replace("\n", "")) == warned


def test_what_stops_every_rollout_is_named_where_nothing_is_learnt(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.max_length = 3
    loop, _ = run(tmp_path / "run", recipe_of("rl", slow={"patience": None}), engine)
    said = " ".join(loop.record.view.console.file.getvalue().split())  # type: ignore[attr-defined]
    rollouts = loop.state.ledger["slow"].rollouts
    assert f"; {rollouts} of {rollouts} rollouts have the fault prompt_too_long. To see" in said


@pytest.mark.parametrize(("count", "named"), [(0, False), (4, False), (5, True), (10, True)])
def test_a_fault_of_fewer_than_half_of_the_rollouts_is_not_named(count: int, named: bool) -> None:
    said = usual_fault(Entry(10, faults={"agent_hung": count, "truncated": min(count, 1)}))
    assert said == (f"; {count} of 10 rollouts have the fault agent_hung" if named else "")
    assert usual_fault(Entry()) == ""


@pytest.mark.parametrize(("steps", "said"), [(1, 1), (9, 9), (10, 10), (11, 10), (25, 10)])
def test_that_nothing_is_learnt_is_said_once(steps: int, said: int, tmp_path: Path) -> None:
    loop, _ = run(tmp_path / "run", recipe_of("rl", slow={"steps": steps, "patience": None}), FakeEngine(-1.0))
    text = loop.record.view.console.file.getvalue()  # type: ignore[attr-defined]
    assert re.findall(r"nothing is learnt: for (\d+) step", text) == [str(said)]


@pytest.mark.parametrize(("method", "steps", "kl", "warned"), [
    ("fst", 10, 6e-7, True), ("rl", 10, 6e-7, True), ("rl", 10, 0.01, False), ("rl", 9, 6e-7, False), ("rl", 10, None, False),
])  # fmt: skip
def test_weights_that_hardly_moved_are_a_warning(
    method: str, steps: int, kl: float | None, warned: bool, tmp_path: Path
) -> None:
    engine = FakeEngine()
    engine.diverges = {step: {"kl": kl} for step in range(1, steps + 1)}  # type: ignore[dict-item]
    loop, _ = run(tmp_path / "run", recipe_of(method, slow={"steps": steps}), engine)
    text = " ".join(loop.record.view.console.file.getvalue().split())  # type: ignore[attr-defined]
    equal = sum(row["zero_variance"] for row in loop.record.run.rows("metrics")) / steps  # type: ignore[union-attr]
    said = f"the weights hardly moved: after {steps} steps the KL from the base model is 6e-07"
    assert text.count("the weights hardly moved") == text.count(said) == warned
    assert text.count(f"Rewards were equal in {equal:.0%} of the groups") == warned
    assert ("a gain comes from the text" in text) == (warned and method == "fst")
