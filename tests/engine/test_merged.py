"""An adapter merged for sampling: the same policy, and afterwards the same weights."""

from __future__ import annotations

import pytest
import tiny
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from fastslow.engine.local.sampler import merged

IDS = torch.tensor([[4, 5, 6, 7], [8, 9, 10, 11]])


def adapted(dtype: torch.dtype = torch.float32, tie: bool = False, **settings: object) -> PeftModel:
    model = tiny.make_model(tiny.make_tokenizer()).to(dtype)
    if tie:
        model.lm_head.weight = model.model.embed_tokens.weight
    peft = get_peft_model(
        model, LoraConfig(**{"r": 2, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | settings)
    )
    generator = torch.Generator().manual_seed(0)
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    return peft.eval()


def bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_the_same_policy_and_the_weights_come_back_bit_for_bit(dtype: torch.dtype) -> None:
    model = adapted(dtype)
    before, beside = bits(model), model(IDS).logits
    with model.disable_adapter():
        assert not torch.allclose(model(IDS).logits, beside, atol=0.05)
    for _ in range(3):
        with merged(model):
            inside = model(IDS).logits
            base = model.get_base_model()
            assert any(
                not torch.equal(weight, before[f"base_model.model.{name}"]) for name, weight in base.named_parameters()
            )
        torch.testing.assert_close(inside, beside, atol=1e-5 if dtype == torch.float32 else 0.05, rtol=0)
        assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
        assert torch.equal(model(IDS).logits, beside)


@torch.no_grad()
def test_the_weights_come_back_after_an_error_too() -> None:
    model = adapted()
    before, beside = bits(model), model(IDS).logits
    with pytest.raises(KeyboardInterrupt), merged(model):
        raise KeyboardInterrupt
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert torch.equal(model(IDS).logits, beside)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings.*", "ignore:.*tied.*")
def test_an_adapted_output_layer_does_not_change_an_embedding_it_shares() -> None:
    model = adapted(tie=True, target_modules=["lm_head", "q_proj"])
    embedding, beside = model.get_base_model().get_input_embeddings().weight, model(IDS).logits
    before = embedding.clone()
    with merged(model):
        assert torch.equal(embedding, before)
        torch.testing.assert_close(model(IDS).logits, beside, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_model_without_an_adapter_is_left_alone() -> None:
    model = tiny.make_model(tiny.make_tokenizer()).eval()
    beside = model(IDS).logits
    with merged(model):
        assert torch.equal(model(IDS).logits, beside)
