"""Whole runs whose weights learn from the grader's words: what they learn, what interruptions change, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from bits_engine import AllRight, BitsEngine, Lies
from fake_engine import FakeEngine
from fake_runs import outcome, recipe_of, resume, run
from helpers import EXAMPLE
from helpers import outcome as outcome_of_model
from lengthy_engine import LengthyEngine, LongIsRight

from fastslow.base.errors import RecipeError
from fastslow.launch import start
from fastslow.recipe import Recipe, load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.slow.words import READ


def bits(feedback: str, steps: int = 30, **slow: Any) -> Recipe:
    settings = {"feedback": feedback, "steps": steps, "problems": 4, "group": 8, "microbatch": 8, **slow}
    return recipe_of("rl", slow=settings, evaluation={"every": 0}, output={"checkpoint_every": 10})


def test_where_every_reward_is_zero_words_lead_to_the_first_right_answer(tmp_path: Path) -> None:
    """Three bits with a chance of 0.05: one answer in eight thousand is right."""
    chances = {}
    for feedback in ("off", "rank"):
        loop, engine = run(tmp_path / feedback, bits(feedback), BitsEngine(0.05, rate=16.0), task=AllRight())
        chances[feedback] = engine.chances
        rows = RunFolder.open(loop.record.folder).rows("metrics")
        assert all(0 <= row["reward"] <= 1 and row["reward"] * 32 % 1 == 0 for row in rows)  # of the grader alone
    assert max(chances["off"]) < 0.4
    assert min(chances["rank"]) > 0.6
    assert rows[0]["words_trusted"] is None
    assert (rows[0]["gradient_by_reward"], rows[0]["zero_variance"]) == (0.0, 1.0)
    assert rows[0]["gradient_by_words"] > 0.2
    assert 0 < rows[0]["words_bonus"] < 0.5
    assert rows[-1]["words_trusted"] is True


def test_words_that_lie_cease_to_count(tmp_path: Path) -> None:
    loop, _ = run(tmp_path / "run", bits("rank", 24), BitsEngine(0.3), task=Lies())
    rows = RunFolder.open(loop.record.folder).rows("metrics")
    known = [row["words_trusted"] for row in rows]
    assert known[0] is None
    assert known[-1] is False
    assert known.count(True) <= 2
    assert all(row["gradient_by_words"] == 0 for row in rows if row["words_trusted"] is False)
    said = loop.record.view.console.file.getvalue()  # type: ignore[attr-defined]
    assert "too few groups with different rewards" in said
    assert "words do not predict rewards" in said


@pytest.mark.parametrize("fails_at", [3, 15])
def test_ranks_resume_as_if_never_interrupted(fails_at: int, tmp_path: Path) -> None:
    recipe = bits("rank", 22)
    whole, engine = run(tmp_path / "whole", recipe, BitsEngine(0.2), task=AllRight())
    first = BitsEngine(0.2)
    first.fails_at = fails_at
    with pytest.raises(RuntimeError, match="the power is out"):
        run(tmp_path / "run", recipe, first, task=AllRight())
    again, second = resume(tmp_path / "run", recipe, BitsEngine(0.2), task=AllRight())
    assert outcome(tmp_path / "run") == outcome(whole.record.folder)
    assert second.logits == engine.logits  # type: ignore[attr-defined]
    assert again.state.trust == whole.state.trust
    assert again.state.standing.to_data() == whole.state.standing.to_data()


@pytest.mark.parametrize("feedback", ["rank", "distil"])
def test_both_loops_with_reuse(feedback: str, tmp_path: Path) -> None:
    recipe = recipe_of("fst", slow={"feedback": feedback}, fast={"reuse": True})
    loop, _ = run(tmp_path / "whole", recipe, FakeEngine())
    assert loop.state.ledger["slow"].reused > 0
    first = FakeEngine()
    first.fails_at = 5
    with pytest.raises(RuntimeError, match="the power is out"):
        run(tmp_path / "run", recipe, first)
    resume(tmp_path / "run", recipe)
    assert outcome(tmp_path / "run") == outcome(loop.record.folder)


@pytest.mark.parametrize("feedback", ["rank", "distil"])
def test_groups_begun_ahead(feedback: str, tmp_path: Path) -> None:
    recipe = recipe_of("rl", slow={"feedback": feedback}, sampling={"ahead": 1.0})
    whole, _ = run(tmp_path / "whole", recipe, LengthyEngine(rate=0.1), task=LongIsRight())
    first = LengthyEngine(rate=0.1)
    first.fails_at = 5
    with pytest.raises(RuntimeError, match="the power is out"):
        run(tmp_path / "run", recipe, first, task=LongIsRight())
    resume(tmp_path / "run", recipe, LengthyEngine(rate=0.1), task=LongIsRight())
    assert outcome(tmp_path / "run") == outcome(whole.record.folder)


def test_the_teacher_of_a_failure_reads_what_was_said_of_it_and_stays_for_a_cycle(tmp_path: Path) -> None:
    loop, engine = run(tmp_path / "run", recipe_of("rl", slow={"feedback": "distil"}))
    kinds = [kind for kind, _ in engine.events if kind in ("teacher", "update")]
    assert kinds == ["teacher", "update", "update"] * 2 + ["teacher", "update"]
    assert ("save", True) in engine.events  # in the middle of a cycle
    rows = [row for kind, what in engine.events if kind == "update" for row in what.rows]
    taught = [engine.tokenizer.decode(row.teacher_prompt) for row in rows if row.teacher_prompt]
    assert taught
    for prompt in taught:
        problem = prompt.split()[-1]
        assert f"say yes write it in lower case think of {problem} Answer the question" in prompt
        assert prompt.startswith("<system> answer " + " ".join(READ.split()[:3]))
    assert {row.turn.answer for row in rows if row.teacher_prompt} == {"no"}
    assert {row.turn.answer for row in rows if not row.teacher_prompt} == {"yes"}
    metrics = RunFolder.open(loop.record.folder).rows("metrics")
    assert sum(row["distilled"] for row in metrics) * 8 == len(taught)


MODEL = [
    *(
        "fast.cycle=3",
        "slow.steps=2",
        "slow.problems=2",
        "slow.microbatch=8",
        "slow.learning_rate=1e-3",
        "slow.warmup_steps=0",
    ),
    *("output.checkpoint_every=1", "evaluation.every=0"),
]


def test_distilling_what_was_said_resumes_as_if_never_interrupted(tiny_folder: Path, tmp_path: Path) -> None:
    """A real model, interrupted in the middle of a cycle: the teacher is not the policy that the checkpoint holds."""
    recipe = load_recipe(EXAMPLE, [*MODEL, f"model={tiny_folder}", "method=rl", "slow.feedback=distil"])
    finished = start.train(recipe, tmp_path / "whole")
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-000002")
    assert (finished / "checkpoints" / "step-000001" / "teacher.safetensors").exists()
    start.resume(tmp_path / "run", step=1, trust=True)
    assert outcome_of_model(tmp_path / "run") == outcome_of_model(finished)
    rows = RunFolder.open(finished).rows("metrics")
    assert all(row["distillation"] > 0 for row in rows if row["distilled"])
    assert max(row["distilled"] for row in rows) > 0.2


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["method=distill", "slow.feedback=rank"], "slow.feedback=rank cannot be combined with method=distill"),
        (["engine=tinker", "slow.feedback=distil"], "engine.kind=tinker cannot run slow.feedback=distil"),
        (["slow.feedback=ranked"], "slow.feedback"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings: list[str], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason) as refused:
        load_recipe(EXAMPLE, settings)
    assert "\n" not in str(refused.value)


def test_off_is_what_yaml_reads_as_false() -> None:
    assert load_recipe(EXAMPLE, ["slow.feedback=off"]).slow.feedback == "off"


def test_a_service_ranks_and_frozen_weights_have_no_teacher() -> None:
    assert load_recipe(EXAMPLE, ["engine=tinker", "slow.feedback=rank"]).slow.feedback == "rank"
    assert not load_recipe(EXAMPLE, ["method=gepa", "slow.feedback=distil"]).teaches
