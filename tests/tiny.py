"""Tiny real models for tests: a word-level tokenizer with a chat template and a Llama of a few thousand weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WORDS = [*"abcdef", "red", "green", "blue", "stop", "go", "wait", "means", "say", "answer", "the", "with", "word", "."]


def make_tokenizer(words: Iterable[str] = WORDS) -> PreTrainedTokenizerFast:
    specials = ["<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>"]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys([*specials, *words]))}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", eos_token="<end>", padding_side="left"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0, **config: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    settings = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            **{**settings, **config},
        )
    )


def save(folder: Path, words: Iterable[str] = WORDS, seed: int = 0) -> Path:
    tokenizer = make_tokenizer(words)
    make_model(tokenizer, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
