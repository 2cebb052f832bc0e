from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from fastslow.fast.reflection import ChatFailed, LocalChat

MESSAGES = [{"role": "user", "content": "sort every number"}]


def test_the_seed_alone_decides_and_the_global_random_state_stays(tiny: tuple[Any, Any]) -> None:
    chat = LocalChat(*tiny, max_tokens=12)
    state = torch.get_rng_state()
    first, again, other = chat(MESSAGES, 1), chat(MESSAGES, 1), chat(MESSAGES, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert first == again
    assert first.text != other.text


def test_tokens_are_counted_and_a_full_length_is_a_cut(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    reply = LocalChat(model, tokenizer, max_tokens=5)(MESSAGES, 3)
    assert reply.prompt_tokens == len(["<user>", "sort", "every", "number", "<end>", "<assistant>"])
    assert (reply.completion_tokens, reply.truncated) == (5, True)
    # Zero weights give every token the same chance, so an end comes long before the limit.
    even = copy.deepcopy(model)
    torch.nn.init.zeros_(even.lm_head.weight)
    reply = LocalChat(even, tokenizer, max_tokens=900)(MESSAGES, 3)
    assert reply.completion_tokens < 900
    assert not reply.truncated


def test_temperature_zero_is_greedy(tiny: tuple[Any, Any]) -> None:
    chat = LocalChat(*tiny, temperature=0.0, max_tokens=8)
    assert chat(MESSAGES, 1) == chat(MESSAGES, 2)


def test_the_models_own_sampling_defaults_are_overruled(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    narrow = copy.deepcopy(model)
    narrow.generation_config.top_k = 1
    narrow.generation_config.repetition_penalty = 5.0
    assert LocalChat(narrow, tokenizer, max_tokens=12)(MESSAGES, 1) == LocalChat(model, tokenizer, max_tokens=12)(
        MESSAGES, 1
    )


def test_a_training_model_is_put_back_into_training(tiny: tuple[Any, Any]) -> None:
    model = copy.deepcopy(tiny[0]).train()
    LocalChat(model, tiny[1], max_tokens=2)(MESSAGES, 0)
    assert model.training


def test_a_prompt_longer_than_the_model_is_a_clear_failure(tiny: tuple[Any, Any]) -> None:
    with pytest.raises(ChatFailed, match="2003 tokens, the reflection model holds 1024"):
        LocalChat(*tiny)([{"role": "user", "content": "sort " * 2000}], 0)


def test_a_tokenizer_without_chat_template_is_a_clear_failure(tiny: tuple[Any, Any]) -> None:
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = None
    with pytest.raises(ChatFailed, match="no chat template"):
        LocalChat(tiny[0], tokenizer)(MESSAGES, 0)
