"""What `sampling.backend=auto` takes, and where it says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import local_engine
from slow_helpers import make_recipe

from fastslow import doctor, estimate
from fastslow.engine.local import choice, engine
from fastslow.engine.local.choice import Choice, choose
from fastslow.recipe import SamplingRecipe, build_recipe

CARD = 80 * 2**30


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (choice, estimate, doctor):
        monkeypatch.setattr(module, "vllm_installed", lambda: True)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("weights", "card", "tokens", "backend", "why"),
    [
        (8 * 10**9, CARD, 1024, "vllm", "8.0 billion weights and answers of up to 1024 tokens"),
        (8 * 10**9, None, 1024, "transformers", "no CUDA GPU"),
        (None, CARD, 1024, "transformers", "size of the model is unknown"),
        (15 * 10**8, CARD, 1024, "transformers", "1.5 billion weights; vLLM pays from 3 billion on"),
        (8 * 10**9, CARD, 256, "transformers", "sampling.max_tokens=256; vLLM pays from 512 on"),
        (14 * 10**9, CARD, 1024, "transformers", "26 GiB, do not fit 24 GiB of the card (sampling.vllm_memory=0.3)"),
    ],
)
def test_vllm_is_taken_where_it_pays(
    weights: int | None, card: int | None, tokens: int, backend: str, why: str
) -> None:
    chosen = choose(SamplingRecipe(max_tokens=tokens, vllm_memory=0.3), weights, card)
    assert chosen.backend == backend
    assert why in chosen.why


def test_without_the_package_it_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "vllm_installed", lambda: False)
    ours = Choice("transformers", "the package vllm is not installed")
    assert choose(SamplingRecipe(), 8 * 10**9, CARD) == ours


def test_auto_is_the_default_and_the_engine_notes_what_it_became(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(tiny_folder)
    assert recipe.sampling.backend == "auto"
    monkeypatch.setattr(engine, "choose", lambda *_: Choice("transformers", "a reason"))
    made = local_engine(recipe, tmp_path)
    assert made.notes == {"backend": "transformers", "why": "a reason", "kernels": "none: no CUDA GPU is used"}
    assert not made.in_flight
    assert not made.trainer.use_vllm


@pytest.mark.usefixtures("installed")
def test_check_and_doctor_say_it_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = build_recipe({"model": "nano", "task": "rulebook", "sampling": {"max_tokens": 32}})
    assert next(iter(estimate._sampler(recipe))).found == "transformers: no CUDA GPU is used"
    assert "vllm for models of 3 billion weights or more" in doctor._sampler("cuda")
    monkeypatch.setattr(doctor, "vllm_installed", lambda: False)
    assert doctor._sampler("cuda") == "transformers: the package vllm is not installed"


def test_run_json_says_what_sampled(tmp_path: Path) -> None:
    from fake_engine import FakeEngine
    from fake_runs import recipe_of, run

    fake = FakeEngine()
    fake.notes = {"backend": "transformers", "why": "a reason"}
    run(tmp_path / "run", recipe_of("rl"), fake)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["sampler"] == fake.notes
