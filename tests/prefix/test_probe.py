"""Which models can be trained over a tree, which can be sampled with shared prefixes, and why others cannot."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers
from architectures import CONFIGS, REFUSED
from architectures import build as build_opinionated
from prefix_helpers import MODELS, SHAPE, make
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.models.llama.modeling_llama import LlamaModel
from trl.trainer.utils import add_fused_lm_head

from fastslow.prefix import probe, tree_attention, why_not_sample, why_not_train

# Training ------------------------------------------------------------------------------------------------------------


def build(kind: str, config: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    shape = {key: value for key, value in SHAPE.items() if key != "head_dim"}  # some configs compute it
    model = getattr(transformers, kind)(getattr(transformers, config)(**{**shape, **settings}))
    add_fused_lm_head(model)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_models_that_can_be_trained(name: str) -> None:
    model = make(name)
    model.train()
    assert why_not_train(model) is None
    assert model.training


@pytest.mark.parametrize(
    ("kind", "config", "settings"),
    [
        ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}),
        ("GPTNeoXForCausalLM", "GPTNeoXConfig", {}),
        ("Phi3ForCausalLM", "Phi3Config", {"sliding_window": 4}),
        ("Cohere2ForCausalLM", "Cohere2Config", {"sliding_window": 4, "layer_types": None}),
        ("GraniteForCausalLM", "GraniteConfig", {"logits_scaling": 3.0}),
        ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2}),
    ],
)
def test_other_families_that_can_be_trained(kind: str, config: str, settings: dict[str, Any]) -> None:
    assert why_not_train(build(kind, config, **settings)) is None


@pytest.mark.parametrize(
    ("kind", "config", "settings", "reason"),
    [
        (
            "T5ForConditionalGeneration",
            "T5Config",
            {"d_model": 32, "d_ff": 32, "num_layers": 1},
            "is an encoder-decoder model",
        ),
        ("MambaForCausalLM", "MambaConfig", {}, "the attention implementation 'eager'"),
        (
            "Gemma2ForCausalLM",
            "Gemma2Config",
            {},
            "attention",
        ),  # a soft cap: not over a tree, or eager only, by version
        ("BloomForCausalLM", "BloomConfig", {"n_head": 4}, "the attention implementation 'eager'"),
        ("Llama4ForCausalLM", "Llama4TextConfig", {"num_local_experts": 2}, "layers of kind chunked_attention"),
        ("FalconForCausalLM", "FalconConfig", {}, "FalconForCausalLM fails with shared prefixes"),
    ],
)
def test_models_that_cannot_be_trained_say_why(kind: str, config: str, settings: dict[str, Any], reason: str) -> None:
    assert reason in (why_not_train(build(kind, config, **settings)) or "")


def test_a_model_that_ignores_the_mask_is_detected() -> None:
    model = make("llama")
    backbone = model.model
    forward = backbone.forward
    backbone.forward = lambda *arguments, **named: forward(*arguments, **{**named, "attention_mask": None})
    assert "computes different log-probabilities with shared prefixes" in (why_not_train(model) or "")


def test_a_model_that_ignores_positions_is_detected() -> None:
    model = make("llama")
    backbone = model.model
    forward = backbone.forward
    backbone.forward = lambda *arguments, **named: forward(*arguments, **{**named, "position_ids": None})
    assert "computes different log-probabilities with shared prefixes" in (why_not_train(model) or "")


def with_twice_the_gradient(states: torch.Tensor, groups: int) -> torch.Tensor:
    return repeat_kv(states + (states - states.detach()), groups)


def test_a_wrong_gradient_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward pass alone would not show it: on a GPU forward and backward are different kernels."""
    monkeypatch.setattr(tree_attention, "repeat_kv", with_twice_the_gradient)
    assert "computes different gradients with shared prefixes" in (why_not_train(make("llama")) or "")


def test_half_precision_has_a_wider_tolerance() -> None:
    model = make("llama")
    with torch.autocast("cpu", torch.bfloat16):
        assert why_not_train(model) is None


@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_may_differ_by_what_rounding_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bf16 rounding changes the gradients of a deep trained model by more than those of a small one."""
    monkeypatch.setattr(probe, "GRADIENT", (0.0, 0.0))
    with torch.autocast("cpu", torch.bfloat16):
        assert why_not_train(make(name)) is None
        monkeypatch.setattr(tree_attention, "repeat_kv", with_twice_the_gradient)
        assert re.search(r"gradients .* \(relative difference .*, by rounding .*\)", why_not_train(make(name)) or "")


# Sampling ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_models_that_can_be_sampled(name: str) -> None:
    assert why_not_sample(build_opinionated(CONFIGS[name]())) is None


def test_a_model_in_bf16_can_be_sampled() -> None:
    assert why_not_sample(build_opinionated(CONFIGS["llama"]()).to(torch.bfloat16)) is None


@pytest.mark.parametrize(
    ("name", "reason"), [("mamba", "cannot be replaced"), ("gpt-oss", "attention with s_aux is not supported")]
)
def test_models_that_cannot_be_sampled_say_why(name: str, reason: str) -> None:
    assert reason in str(why_not_sample(build_opinionated(REFUSED[name]())))


def test_a_model_that_numbers_positions_by_itself_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the tokens of every pass are at its first positions."""
    own = LlamaModel.forward

    def forward(self: LlamaModel, *arguments: object, **named: object) -> object:
        return own(self, *arguments, **{**named, "position_ids": None})

    monkeypatch.setattr(LlamaModel, "forward", forward)
    assert "computes different log-probabilities with shared prefixes" in str(
        why_not_sample(build_opinionated(CONFIGS["llama"]()))
    )
