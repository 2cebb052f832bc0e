"""What is exported is a model folder that plain transformers can use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from helpers import BRIEF, EXAMPLE, local_engine
from tiny import make_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from fastslow.base.errors import RunError
from fastslow.base.world import World
from fastslow.launch.assembly import open_snapshot
from fastslow.launch.export import export_run, set_default_system
from fastslow.launch.start import train
from fastslow.models.chat import ChatFormat
from fastslow.recipe import load_recipe


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
