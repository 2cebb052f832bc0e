"""Choosing and showing saved rollouts."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from run_helpers import make_rollout

from fastslow.base.errors import RunError
from fastslow.recipe import build_recipe
from fastslow.records import Context, Rollout
from fastslow.runs.folder import RunFolder
from fastslow.runs.rollouts import Choice, choose_rollouts, show_rollouts

SEED, CHILD = Context({"system": "Think."}), Context({"system": "Think.\nzorka means reverse"})


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", build_recipe({"model": "nano", "task": "given"}))


def under(context: Context, rollout: Rollout) -> Rollout:
    return replace(rollout, context=context)


def fill(run: RunFolder) -> None:
    """A cycle of the fast loop and two steps."""
    run.write_json("contexts/seed.json", {"id": SEED.id, "texts": SEED.texts})
    child = {"id": CHILD.id, "texts": CHILD.texts}
    run.save_cycle(0, {"cycle": 0, "contexts": [child], "population": [child]})
    run.save_rollouts(
        0, [make_rollout("a", 0.0), under(CHILD, make_rollout("b", 1.0))], ["rescore", "fast-score"], of="cycle"
    )
    run.save_rollouts(1, [make_rollout("a", 1.0)])
    faulty = replace(make_rollout("a", 0.0, feedback="\x1b[2Jno"), error="grader raised KeyError")
    run.save_rollouts(2, [make_rollout("a", 0.5), faulty, under(CHILD, make_rollout("c", 1.0, turns=2))])


def shown(run: RunFolder, **choice: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_rollouts(choose_rollouts(run, Choice(**choice)), console)  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined]


def found(run: RunFolder, **choice: object) -> list[tuple[str, float, str]]:
    rows = choose_rollouts(run, Choice(**choice)).rollouts  # type: ignore[arg-type]
    return [(row["example"], row["score"], row["where"]) for row in rows]


def test_the_newest_step_is_shown_with_all_that_a_person_asks_for(run: RunFolder) -> None:
    fill(run)
    text = shown(run)
    assert text.startswith("step 2: 3 rollouts, mean reward 0.500\n")
    for part in ("a · score 0.500 · step 2", f"context {SEED.id}: Think.", "question: a question", "answer: an answer"):
        assert part in text
    assert "feedback: �[2Jno" in text
    assert "error: grader raised KeyError" in text
    assert "answer 2: an answer" in text  # of two turns
    assert "\x1b" not in text
    assert "; 1 shown" in shown(run, limit=1)


def test_rollouts_are_chosen_and_ordered(run: RunFolder) -> None:
    fill(run)
    assert found(run, order="worst", limit=2) == [("a", 0.0, "step 2"), ("a", 0.5, "step 2")]
    assert found(run, order="best", limit=1) == [("c", 1.0, "step 2")]
    assert found(run, step=1) == [("a", 1.0, "step 1")]
    assert found(run, cycle=0) == [("a", 0.0, "cycle 0 (rescore)"), ("b", 1.0, "cycle 0 (fast-score)")]
    in_all = [("a", 0.5, "step 2"), ("a", 0.0, "step 2"), ("a", 1.0, "step 1"), ("a", 0.0, "cycle 0 (rescore)")]
    assert found(run, problem="a") == in_all
    assert [row[0] for row in found(run, context=CHILD.id[:6])] == ["c", "b"]
    assert found(run, context=CHILD.id, problem="b", step=None) == [("b", 1.0, "cycle 0 (fast-score)")]
    assert found(run, problem="a", order="best")[0] == ("a", 1.0, "step 1")


def test_a_run_without_slow_steps_shows_its_newest_cycle(run: RunFolder) -> None:
    run.save_rollouts(3, [make_rollout("a", 0.5)], ["fast-minibatch"], of="cycle")
    assert found(run) == [("a", 0.5, "cycle 3 (fast-minibatch)")]
    assert "(its text was not saved)" in shown(run)


def test_a_run_of_an_earlier_version_shows_what_it_has(run: RunFolder) -> None:
    run.save_rollouts(1, [make_rollout("a")])
    path = run.path / "rollouts" / "step-000001.parquet"
    early = ["example", "context", "policy_step", "score", "feedback", "answers", "prompt_tokens", "completion_tokens"]
    pq.write_table(pq.read_table(path, columns=early), path)
    text = shown(run)
    assert "answer: an answer" in text
    assert "question" not in text


def test_what_is_not_there_is_said(run: RunFolder) -> None:
    with pytest.raises(RunError, match="no saved rollouts"):
        shown(run)
    fill(run)
    for choice, said in {
        ("step", 7): "no rollouts of step 7; it has those of steps 1 to 2",
        ("cycle", 1): "no rollouts of cycle 1; it has those of cycles 0 to 0",
        ("context", "ffff"): f"no rollout of context 'ffff'; step 2 has, among others, '{SEED.id}', '{CHILD.id}'",
        ("problem", "z"): "no rollout of problem 'z'; step 2 has, among others, 'a', 'c'",
    }.items():
        with pytest.raises(RunError) as caught:
            shown(run, **dict([choice]))
        assert said in str(caught.value)
    (run.path / "rollouts" / "step-000002.parquet").write_bytes(b"broken")
    with pytest.raises(RunError, match="cannot be read"):
        shown(run)
