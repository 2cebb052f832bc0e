"""Which models are taken and which are refused, and in what words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from prefix_helpers import MODELS, SHAPE, make
from trl.trainer.utils import add_fused_lm_head

from fastslow.prefix import attention, unsupported


def build(kind: str, config: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    shape = {key: value for key, value in SHAPE.items() if key != "head_dim"}  # some work it out themselves
    model = getattr(transformers, kind)(getattr(transformers, config)(**{**shape, **settings}))
    add_fused_lm_head(model)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_taken(name: str) -> None:
    model = make(name)
    model.train()
    assert unsupported(model) is None
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
def test_taken_too(kind: str, config: str, settings: dict[str, Any]) -> None:
    assert unsupported(build(kind, config, **settings)) is None


@pytest.mark.parametrize(
    ("kind", "config", "settings", "reason"),
    [
        (
            "T5ForConditionalGeneration",
            "T5Config",
            {"d_model": 32, "d_ff": 32, "num_layers": 1},
            "is an encoder-decoder",
        ),
        ("MambaForCausalLM", "MambaConfig", {}, "attends by 'eager'"),
        ("Gemma2ForCausalLM", "Gemma2Config", {}, "attends by 'eager'"),  # with a soft cap
        ("BloomForCausalLM", "BloomConfig", {"n_head": 4}, "attends by 'eager'"),
        ("Llama4ForCausalLM", "Llama4TextConfig", {"num_local_experts": 2}, "layers of kind chunked_attention"),
        ("FalconForCausalLM", "FalconConfig", {}, "does not take a tree mask"),
    ],
)
def test_refused(kind: str, config: str, settings: dict[str, Any], reason: str) -> None:
    assert reason in (unsupported(build(kind, config, **settings)) or "")


def test_a_model_that_does_not_heed_the_mask_is_found_out() -> None:
    model = make("llama")
    backbone = model.model
    forward = backbone.forward
    backbone.forward = lambda *arguments, **named: forward(*arguments, **{**named, "attention_mask": None})
    assert "gives other log-probabilities over a tree" in (unsupported(model) or "")


def test_a_model_that_does_not_heed_positions_is_found_out() -> None:
    model = make("llama")
    backbone = model.model
    forward = backbone.forward
    backbone.forward = lambda *arguments, **named: forward(*arguments, **{**named, "position_ids": None})
    assert "gives other log-probabilities over a tree" in (unsupported(model) or "")


def test_a_wrong_gradient_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward pass alone would not tell: on a GPU the two are different kernels."""
    take = attention._take
    monkeypatch.setattr(attention, "_take", lambda states, *rest: take(states + (states - states.detach()), *rest))
    assert "gives other gradients over a tree" in (unsupported(make("llama")) or "")


def test_half_precision_is_given_room() -> None:
    model = make("llama")
    with torch.autocast("cpu", torch.bfloat16):
        assert unsupported(model) is None
