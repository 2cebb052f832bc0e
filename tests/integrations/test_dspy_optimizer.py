"""A real dspy program of two predictors trained as a dspy user would: nano learns two words, each in its own predictor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import pytest
import torch
import yaml
from dspy_programs import RULES, SEED, Bare, Engine, TurnAndShift, by_halves, letters, plain_lm
from helpers import outcome

import fastslow
from fastslow import loop
from fastslow.base.errors import FastSlowError, RecipeError, RunError, TaskError
from fastslow.engine.base import Update
from fastslow.integrations.dspy_optimizer import FastSlow
from fastslow.models.load import load_pretrained, load_to_ask
from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.slow.update import build_update
from fastslow.tasks.adapters.dspy_program import DSPyTask

RECIPE: dict[str, Any] = {
    "model": "nano",
    "slow": {"steps": 2, "problems": 2, "group": 4, "microbatch": 8, "learning_rate": 1e-4, "warmup_steps": 1},
    "fast": {
        "population": 4,
        "cycle": 2,
        "anchors": 4,
        "budget": 40,
        "optimizer": {"proposals": 4, "proposer": "full"},
    },
    "sampling": {"max_tokens": 8},
    "evaluation": {"every": 2, "problems": 6, "k": 1},
    "output": {"checkpoint_every": 2},
}
TRAIN, HELD_OUT = letters(16), letters(6, seed=1)


@dataclass
class Trained:
    folder: Path
    program: dspy.Module
    updates: list[Update]


@pytest.fixture(autouse=True, scope="module")
def _adapter() -> Iterator[None]:
    with dspy.context(adapter=Bare()):
        yield


def compiled(folder: Path, recipe: Any = RECIPE, student: dspy.Module | None = None) -> dspy.Module:
    optimizer = FastSlow(metric=by_halves, recipe=recipe, folder=folder)
    return optimizer.compile(student or TurnAndShift(), trainset=TRAIN, valset=HELD_OUT)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The program, trained once; the updates that its trainer was handed are written down."""
    updates: list[Update] = []

    def remembered(*arguments: Any, **named: Any) -> Update:
        update, signal = build_update(*arguments, **named)
        updates.append(update)
        return update, signal

    folder = tmp_path_factory.mktemp("runs") / "program"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "build_update", remembered)
        return Trained(folder, compiled(folder), updates)


def test_each_predictor_learns_the_rule_that_the_metric_has_for_it(trained: Trained) -> None:
    for name, predictor in trained.program.named_predictors():
        lines = predictor.signature.instructions.splitlines()
        assert RULES[name] in lines
        assert not set(lines) & {rule for other, rule in RULES.items() if other != name}
    last = RunFolder.open(trained.folder).rows("evals")[-1]["results"]
    assert last["best context"]["mean"] > last["seed"]["mean"] + 0.25


def test_the_asks_of_both_predictors_are_trained(trained: Trained) -> None:
    assert len(trained.updates) == 2
    for update, row in zip(trained.updates, RunFolder.open(trained.folder).rows("metrics"), strict=True):
        pushed = [each.turn.component for each in update.rows if each.advantage]
        assert pushed.count("turn") == pushed.count("shift") > 0
        assert row["trained_rows"] == len(update.rows)
        assert row["grad_norm"] > 0
    before, _ = load_pretrained("nano")
    after, _ = load_pretrained(str(trained.folder / "checkpoints" / "step-000002"))
    moved = [not torch.equal(old, new) for old, new in zip(before.parameters(), after.parameters(), strict=True)]
    assert any(moved)


def test_the_program_is_saved_and_loads_into_a_fresh_one(trained: Trained, tmp_path: Path) -> None:
    trained.program.save(tmp_path / "mine.json")
    for path, unsafe in ((trained.folder / "program.json", False), (tmp_path / "mine.json", True)):
        loaded = TurnAndShift()
        loaded.load(path, allow_unsafe_lm_state=unsafe)
        engines = {getattr(predictor.lm, "_engine_spec", None) for predictor in loaded.predictors()}
        assert len(engines) == 1  # the weights are loaded once
        assert (engines != {None}) == unsafe
        texts = {name: predictor.signature.instructions for name, predictor in loaded.named_predictors()}
        assert texts == {name: each.signature.instructions for name, each in trained.program.named_predictors()}
        assert set(texts.values()) != {SEED}
    saved = json.loads((trained.folder / "program.json").read_text())
    assert not [key for key in saved["turn"] if "component" in key]


def test_the_returned_program_is_bound_to_the_trained_model(trained: Trained) -> None:
    """Nothing is configured: what answers is the policy of the last checkpoint."""
    evaluate = dspy.Evaluate(devset=HELD_OUT, metric=by_halves, num_threads=1, display_progress=False)
    untaught = TurnAndShift()
    untaught.set_lm(trained.program.get_lm())
    assert evaluate(trained.program).score > evaluate(untaught).score + 25  # percent


def test_the_exported_model_does_in_plain_dspy_what_it_was_trained_to(trained: Trained, tmp_path: Path) -> None:
    """The weights behind a dspy.LM, the returned program, dspy's own evaluation: no part of this library is left."""
    model, tokenizer = load_to_ask(str(fastslow.export_run(trained.folder, tmp_path / "model")), "cpu")

    def served(messages: list[dict[str, str]]) -> str:
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        written = model.generate(**prompt, max_new_tokens=8, do_sample=False)[0, prompt["input_ids"].shape[1] :]
        return str(tokenizer.decode(written, skip_special_tokens=True))

    with dspy.context(lm=plain_lm(Engine(served))):
        evaluate = dspy.Evaluate(devset=HELD_OUT, metric=by_halves, num_threads=1)
        plain = TurnAndShift()
        plain.load(trained.folder / "program.json")
        learnt, untaught = evaluate(plain).score, evaluate(TurnAndShift()).score
    assert learnt > untaught + 25  # percent


def test_compiling_again_resumes_the_run_in_the_folder(trained: Trained) -> None:
    before = outcome(trained.folder)
    again = compiled(trained.folder)
    assert outcome(trained.folder) == before
    assert repr(again) == repr(trained.program)
    with pytest.raises(RunError, match="already holds a run"):
        compiled(trained.folder, {**RECIPE, "seed": 1})


def test_a_run_with_its_own_task_object_is_evaluated(trained: Trained) -> None:
    task = DSPyTask(TurnAndShift(), by_halves, TRAIN, HELD_OUT)
    scores = fastslow.evaluate_run(trained.folder, k=1, task=task)
    recorded = RunFolder.open(trained.folder).rows("evals")[-1]["results"]
    assert {label: score.to_dict() for label, score in scores.items()} == recorded


def test_a_recipe_may_be_a_mapping_a_file_or_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "task": "star-graph"}))
    recipes = [RECIPE, build_recipe({**RECIPE, "task": "star-graph"}), path, str(path)]
    built = [FastSlow(by_halves, recipe).recipe for recipe in recipes]
    assert built == [build_recipe({**RECIPE, "task": "given"})] * 4
    assert FastSlow(by_halves, RECIPE).folder == Path("runs/dspy-fst-seed0")
    with pytest.raises(RecipeError, match="recipe is of type list; expected a mapping"):
        FastSlow(by_halves, [])  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="unknown recipe key 'modle'"):
        FastSlow(by_halves, {"modle": "nano", **RECIPE})


def test_it_is_a_dspy_optimizer() -> None:
    assert fastslow.FastSlow is FastSlow
    assert issubclass(FastSlow, dspy.teleprompt.Teleprompter)
    with pytest.raises(TaskError, match="takes no teacher"):
        FastSlow(by_halves, RECIPE).compile(TurnAndShift(), trainset=TRAIN, teacher=TurnAndShift())  # type: ignore[arg-type]


def test_a_program_that_fails_at_once_leaves_no_run_behind(tmp_path: Path) -> None:
    class Broken(TurnAndShift):
        def forward(self, letters: str) -> dspy.Prediction:
            raise LookupError("no such thing")

    with pytest.raises(FastSlowError, match="the program raised LookupError: no such thing"):
        compiled(tmp_path / "run", student=Broken())
    assert not (tmp_path / "run").exists()
