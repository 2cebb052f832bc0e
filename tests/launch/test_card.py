"""A model card names no folder of the machine that wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastslow.launch.card import base_model, shown_recipe
from fastslow.recipe import build_recipe


def test_a_recipe_is_shown_with_the_names_of_files_only(tmp_path: Path) -> None:
    task = {
        "name": "trl",
        "path": str(tmp_path / "rows.jsonl"),
        "rewards": [f"{tmp_path}/my_rewards.py:accuracy", "owner/judge"],
        "seed_text": "/think, then answer",
    }
    recipe = build_recipe({"model": str(tmp_path / "mine"), "task": task, "output": {"folder": str(tmp_path / "run")}})
    shown = shown_recipe(recipe)
    assert str(tmp_path) not in shown
    for kept in (
        "name: mine\n",
        "path: rows.jsonl\n",
        "- my_rewards.py:accuracy\n",
        "- owner/judge\n",
        "folder: run\n",
    ):
        assert kept in shown
    assert "seed_text: /think, then answer\n" in shown


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("gpt2", "gpt2"),
        ("nano", ""),
        ("/models/mine", ""),
        ("models/mine.gguf", ""),
        (".", ""),
    ],
)
def test_the_base_model_is_an_id_of_the_hub(name: str, known: str) -> None:
    assert base_model(name) == known
