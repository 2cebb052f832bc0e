"""What `sampling.backend=auto` takes, and where it says so."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import local_engine
from slow_helpers import make_recipe
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from fastslow.engine.local import engine, estimate
from fastslow.engine.local.estimate import Choice, choose
from fastslow.launch import doctor
from fastslow.models import kernels
from fastslow.models.load import Policy
from fastslow.prefix import level_attention
from fastslow.recipe import ModelRecipe, SamplingRecipe, build_recipe

CARD = 80 * 2**30


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (estimate, doctor):
        monkeypatch.setattr(module, "vllm_installed", lambda: True)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("weights", "card", "tokens", "kernels", "backend", "why"),
    [
        (8 * 10**9, CARD, 1024, True, "transformers", "as fast as vLLM for this model"),
        (8 * 10**9, CARD, 1024, False, "vllm", "8.0 billion weights and answers of up to 1024 tokens"),
        (8 * 10**9, None, 1024, False, "transformers", "no CUDA GPU"),
        (None, CARD, 1024, False, "transformers", "size of the model is unknown"),
        (15 * 10**8, CARD, 1024, False, "transformers", "1.5 billion weights; vLLM pays from 3 billion on"),
        (8 * 10**9, CARD, 256, False, "transformers", "sampling.max_tokens=256; vLLM pays from 512 on"),
        (20 * 10**9, CARD, 1024, False, "transformers", "37 GiB, do not fit 40 GiB of the card with keys and values"),
    ],
)
def test_vllm_is_taken_where_it_pays(
    weights: int | None, card: int | None, tokens: int, kernels: bool, backend: str, why: str
) -> None:
    chosen = choose(SamplingRecipe(max_tokens=tokens), weights, card, kernels)
    assert chosen.backend == backend
    assert why in chosen.why


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU and packages that have all kernels."""
    monkeypatch.setattr(kernels, "kernels_installed", lambda: True)
    monkeypatch.setattr(level_attention, "_kernels", lambda: level_attention)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("family", "head", "settings", "launched", "found"),
    [
        ("qwen3", 128, {}, {}, True),
        ("llama", 100, {}, {}, False),  # attention has no kernel for such heads
        ("gemma", 128, {}, {}, False),  # norms have none
        ("qwen3", 128, {"precision": "fp32"}, {}, False),
        ("qwen3", 128, {"device": "cpu"}, {}, False),
        ("qwen3", 128, {}, {"ACCELERATE_USE_FSDP": "true"}, False),
    ],
)
def test_kernels_are_there_for_all_of_a_step_or_do_not_count(
    family: str,
    head: int,
    settings: dict[str, str],
    launched: dict[str, str],
    found: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    recipe = ModelRecipe.model_validate({"name": "any", "device": "cuda", **settings})
    assert estimate.own_kernels(recipe, recipe.device, meta_model(family, head)) == found


def meta_model(family: str, head: int, *, heads: int = 4, layers: int = 1, intermediate: int = 64) -> PreTrainedModel:
    config = AutoConfig.for_model(
        family,
        hidden_size=heads * head,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head,
        num_hidden_layers=layers,
        intermediate_size=intermediate,
    )
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.usefixtures("installed", "gpu")
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_check_says_what_the_run_takes(
    precision: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a card of which there is only the size."""
    recipe = make_recipe(tiny_folder)
    model = recipe.model.model_copy(update={"device": "cuda", "precision": precision, "name": str(tmp_path)})
    recipe = recipe.model_copy(update={"model": model})
    large = meta_model("llama", 128, heads=32, layers=32, intermediate=14336)  # no files: the config says its size
    large.config.save_pretrained(tmp_path)
    monkeypatch.setattr("fastslow.models.load.choose_device", lambda wanted: wanted)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=CARD))
    sampling = recipe.sampling.model_copy(update={"max_tokens": 1024})
    recipe = recipe.model_copy(update={"sampling": sampling})
    said = estimate._choice(recipe)
    policy = Policy(large, None, "cuda", precision == "bf16", None)
    assert engine.with_sampler(recipe, policy)[1] == {"backend": said.backend, "why": said.why}
    assert said.backend == ("vllm" if precision == "fp32" else "transformers")


def test_without_the_package_it_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "vllm_installed", lambda: False)
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
    assert made.sampler.vllm is None


@pytest.mark.usefixtures("installed")
def test_check_and_doctor_say_it_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = build_recipe({"model": "nano", "task": "rulebook", "sampling": {"max_tokens": 32}})
    assert next(iter(estimate.sampler(recipe, lambda length: None))).found == "transformers: no CUDA GPU is used"
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
