"""What is exported is a model folder that plain transformers can use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import BRIEF, EXAMPLE, local_engine
from safetensors.torch import load_file
from tiny import make_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from fastslow.base.errors import RunError
from fastslow.base.world import World
from fastslow.evaluation.measure import evaluate_task
from fastslow.launch import evaluate
from fastslow.launch.assembly import open_snapshot
from fastslow.launch.export import export_run, set_default_system
from fastslow.launch.start import train
from fastslow.models.chat import ChatFormat
from fastslow.recipe import load_recipe
from fastslow.records import Rollout


@pytest.mark.parametrize(
    "overrides", [[], ["model.lora={rank: 4, alpha: 8}"], ["method=gepa"]], ids=["full", "lora", "gepa"]
)
def test_an_exported_run_answers_like_the_policy_under_its_best_context(
    overrides: list[str], by_words: list[str], tmp_path: Path
) -> None:
    run = train(load_recipe(EXAMPLE, [*BRIEF, *by_words, "slow.learning_rate=1e-2", *overrides]), tmp_path / "run")
    folder = export_run(run, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    snapshot = open_snapshot(run)
    best = snapshot.pool.best.context.texts["system"]
    engine = local_engine(snapshot.run.recipe, run, World())
    if snapshot.weights is not None:
        engine.load(snapshot.weights)
    messages = [{"role": "user", "content": "zorka : a b c"}]
    prompt = ChatFormat(engine.tokenizer).prompt(messages, best)
    plain = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert plain == prompt
    with torch.no_grad():
        theirs = model(torch.tensor([plain])).logits
        ours = engine.trainer.model(torch.tensor([prompt])).logits
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)
    pool = json.loads((folder / "contexts.json").read_text())
    assert pool["best"] == snapshot.pool.best.context.id
    card = (folder / "README.md").read_text()
    assert best in card
    assert "slow:" in card
    assert str(tmp_path) not in card
    assert "base_model" not in card  # nano is on no hub
    assert len({file.stat().st_mode for file in folder.iterdir() if file.is_file()}) == 1
    measured = snapshot.run.rows("evals")[-1]["results"]["seed"]["mean"]
    assert f"| 2 | seed | 4 | {measured:.3f} |" in card
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for taken in (folder, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(RunError, match="not an empty folder"):
            export_run(run, taken)
    with pytest.raises(RunError, match="was not written"):
        export_run(run, tmp_path / "file" / "model")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("overrides", [[], ["model.lora={rank: 4, alpha: 8}"]], ids=["full", "lora"])
def test_the_weights_are_those_that_were_trained_whatever_the_base_is_stored_in(
    overrides: list[str], tiny_folder: Path, by_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same greedy answers from plain transformers and from `fastslow eval`."""
    AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.bfloat16).save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(tiny_folder).save_pretrained(tmp_path / "base")
    settings = [
        *BRIEF,
        *by_words,
        f"model={tmp_path / 'base'}",
        "slow.learning_rate=1e-2",
        "evaluation.temperature=1e-4",
    ]
    run = train(load_recipe(EXAMPLE, [*settings, *overrides]), tmp_path / "run")
    answered: list[Rollout] = []

    def evaluated(*arguments: Any, **named: Any) -> Any:
        found = evaluate_task(*arguments, **named)
        answered.extend(found[1])
        return found

    monkeypatch.setattr(evaluate, "evaluate_task", evaluated)
    evaluate.evaluate_run(run, k=1)
    best = open_snapshot(run).pool.best.context
    folder = export_run(run, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert model.dtype == torch.float32
    answers = [rollout.turns[0] for rollout in answered if rollout.context.id == best.id]
    assert answers
    for turn in answers:
        prompt = torch.tensor([turn.prompt_ids])
        plain = model.generate(prompt, do_sample=False, max_new_tokens=8)[0, len(turn.prompt_ids) :]
        assert plain.tolist() == list(turn.completion.ids)
    rounded = export_run(run, tmp_path / "rounded", dtype="bfloat16")
    assert AutoModelForCausalLM.from_pretrained(rounded, dtype="auto").dtype == torch.bfloat16
    if not overrides:  # bit for bit
        saved, written = (load_file(place / "model.safetensors") for place in (open_snapshot(run).path, folder))
        assert saved.keys() == written.keys()
        assert all(torch.equal(saved[name], written[name]) for name in saved)
    with pytest.raises(RunError, match="expected one of float32, bfloat16, float16"):
        export_run(run, tmp_path / "other", dtype="int8")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["plain", "quotes \" and ' and {{ braces }} {% raw %}", "lines\nand\ttabs \\n"])
def test_the_default_system_prompt_survives_any_text(text: str) -> None:
    tokenizer = make_tokenizer()
    with_context = ChatFormat(make_tokenizer())
    set_default_system(tokenizer, text)
    for messages in (
        [{"role": "user", "content": "a"}],
        [{"role": "system", "content": "b"}, {"role": "user", "content": "a"}],
    ):
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert text in rendered
        assert rendered.count("<system>") == 1
        assert tokenizer(rendered)["input_ids"] == with_context.prompt(messages, text)
