"""Which models are sampled with shared prefixes, and that the others are sampled all the same."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import tiny
import torch
from architectures import CONFIGS, REFUSED, build
from test_policy_sampler import PROMPTS, SAMPLING, check, make
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaModel

from fastslow.errors import FastSlowWarning
from fastslow.prefix.sharing import why_not


@pytest.mark.parametrize("name", CONFIGS)
def test_models_that_can(name: str) -> None:
    assert why_not(build(CONFIGS[name]())) is None


def test_a_model_in_bf16_can() -> None:
    assert why_not(build(CONFIGS["llama"]()).to(torch.bfloat16)) is None


@pytest.mark.parametrize(("name", "reason"), [("mamba", "cannot be replaced"), ("gpt-oss", "takes s_aux")])
def test_models_that_cannot_say_why(name: str, reason: str) -> None:
    assert reason in str(why_not(build(REFUSED[name]())))


def test_a_model_that_gives_other_probabilities_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that numbers positions by itself would: here all tokens of a pass stand at its first positions."""
    own = LlamaModel.forward

    def forward(self: LlamaModel, *arguments: object, **named: object) -> object:
        return own(self, *arguments, **{**named, "position_ids": None})

    monkeypatch.setattr(LlamaModel, "forward", forward)
    assert "other probabilities" in str(why_not(build(CONFIGS["llama"]())))


def test_a_state_space_model_is_sampled_by_generate_with_one_message(tmp_path: Path) -> None:
    tokenizer = tiny.make_tokenizer()
    model: PreTrainedModel = build(REFUSED["mamba"]())
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    sampler = make(tmp_path / "model", tmp_path)
    with pytest.warns(FastSlowWarning, match="contexts are not shared, because MambaForCausalLM"):
        check(sampler, sampler.trainer.model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FastSlowWarning)
        sampler.sample(PROMPTS, SAMPLING, seed=4)
