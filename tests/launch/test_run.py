"""A run as an object: what a trained nano leaves, and what can be made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import recipe_of
from fake_runs import run as run_loop
from helpers import BRIEF, EXAMPLE, last_checkpoint
from transformers import AutoModelForCausalLM

import fastslow
from fastslow.base.errors import RunError
from fastslow.launch.assembly import open_snapshot
from fastslow.launch.results import Run
from fastslow.runs.folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, by_words: list[str]) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "lora"
    settings = [*BRIEF, *by_words, "slow.learning_rate=1e-2", "model.lora={rank: 4, alpha: 8}"]
    return fastslow.train(fastslow.load_recipe(EXAMPLE, settings), folder)


def test_a_run_is_its_folder(run: Run) -> None:
    assert Path(run) == run.path
    assert (run / "recipe.yaml").is_file()
    assert str(run) == str(run.path)
    assert RunFolder.open(run).recipe == run.recipe
    assert Run(run) == run
    assert len({run, Run(str(run))}) == 1
    with pytest.raises(RunError, match="no run folder 'nowhere'"):
        Run("nowhere")


def test_the_best_prompt_is_what_is_exported(run: Run) -> None:
    best = open_snapshot(run).pool.best.context
    assert run.best_prompts == dict(best.texts)
    assert run.best_prompt == best.texts["system"]
    assert list(run.contexts[run.contexts["best"]]["text"]) == [run.best_prompt]


def test_several_components_have_several_prompts(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", recipe_of()) as folder:
        folder.write_json("contexts/seed.json", {"id": "ab", "texts": {"turn": "a", "shift": "b"}})
    run = Run(tmp_path / "run")
    assert run.best_prompts == {"turn": "a", "shift": "b"}
    with pytest.raises(RunError, match="a text for each of turn, shift; use best_prompts"):
        _ = run.best_prompt


def test_the_loaded_model_is_the_trained_one_with_its_adapter_merged(run: Run, tmp_path: Path) -> None:
    model, tokenizer = run.load_model(device="cpu")
    assert not model.training
    exported = AutoModelForCausalLM.from_pretrained(run.export(tmp_path / "model"))
    for ours, theirs in zip(model.parameters(), exported.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.to(ours.dtype))
    base = AutoModelForCausalLM.from_pretrained(run.recipe.model.name)
    moved = [
        not torch.equal(new, old.to(new.dtype)) for new, old in zip(model.parameters(), base.parameters(), strict=True)
    ]
    assert any(moved)
    assert (last_checkpoint(run.path) / "adapter_config.json").exists()
    assert tokenizer.decode(tokenizer("stop go")["input_ids"]) == "stop go"


def test_an_evaluation_is_a_table(run: Run) -> None:
    scores = run.evaluate(k=1).set_index("context")
    recorded = run.evaluations
    last = recorded[recorded["step"] == run.step].set_index("context")
    assert scores["mean"].to_dict() == last["mean"].to_dict()


def test_it_is_compared_and_drawn(run: Run) -> None:
    compared = run.compare(run, baseline="fst")
    assert list(compared.points["step"]) == [row["step"] for row in RunFolder.open(run).rows("evals")]
    assert run.plot()._repr_png_().startswith(b"\x89PNG")


def test_it_shows_the_essentials(run: Run) -> None:
    shown = repr(run)
    assert f"run: {run.path}" in shown
    assert "status: finished" in shown
    assert f"fst, model {run.recipe.model.name}, task dataset, seed 0" in shown
    start, end = run.evaluations.iloc[0], run.evaluations.iloc[-1]
    assert f"validation ({end['context']}): {start['mean']:.3f} -> {end['mean']:.3f}" in shown
    assert "best prompt (system)" in run._repr_html_()


def test_a_run_can_be_read_while_it_trains(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", recipe_of()):
        run = Run(tmp_path / "run")
        assert (run.status, run.step, run.error) == ("running", 0, None)
        assert "status: running" in repr(run)
        assert "status" in run._repr_html_()
        assert run.metrics.empty
    run_loop(tmp_path / "ended", recipe_of())
    assert Run(tmp_path / "ended").step == recipe_of().slow.steps


def test_what_ended_a_run_is_shown(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", recipe_of()) as folder:
        folder.set_status("failed", error="<no disk>")
    run = Run(tmp_path / "run")
    assert run.error == "<no disk>"
    assert "status: failed: <no disk>" in repr(run)
    assert "&lt;no disk&gt;" in run._repr_html_()
    with pytest.raises(RunError, match="has no checkpoint yet"):
        run.load_model()


def test_weights_on_a_server_are_not_loaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    remote: Any = run.recipe.model_copy(update={"engine": run.recipe.engine.model_copy(update={"name": "tinker"})})
    again = Run(run)
    monkeypatch.setitem(again.__dict__, "recipe", remote)
    with pytest.raises(RunError, match=r"are on the server of engine\.kind=tinker"):
        again.load_model()
