from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from openai_server import OpenAIServer

from fastslow.fast.reflection import Attempt, Request

WORDS = "answer the question in a box with every number sorted from large to small and check it twice before you stop"
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="session")
def tiny() -> tuple[Any, Any]:
    """A real Llama, small and random, with a word-level tokenizer and a chat template."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<unknown>", "<end>", "<user>", "<assistant>"]
    vocabulary = {word: index for index, word in enumerate([*special, *dict.fromkeys(WORDS.split())])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unknown>", eos_token="<end>", pad_token="<end>", chat_template=TEMPLATE
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=1024,
            bos_token_id=None,
            eos_token_id=vocabulary["<end>"],
            pad_token_id=vocabulary["<end>"],
        )
        model = LlamaForCausalLM(config).eval()
    return model, tokenizer


@pytest.fixture
def server(tiny: tuple[Any, Any]) -> Iterator[OpenAIServer]:
    with OpenAIServer(*tiny) as running:
        yield running


def count_words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def make_request() -> Callable[..., Request]:
    def make(text: str = "Answer the question.", attempts: Sequence[Attempt] | None = None, **changes: Any) -> Request:
        if attempts is None:
            attempts = [Attempt("Sort 3 9 1.", "1 3 9", "The order must be descending.", 0.0)]
        settings = {"proposer": "light", "max_tokens": 200, "count_tokens": count_words, "seed": 0, **changes}
        return Request(component="system", text=text, attempts=attempts, **settings)

    return make
