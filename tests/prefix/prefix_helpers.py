"""Helpers for the tests of shared prefixes: tiny random models, rows drawn by hypothesis, and scoring row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl.trainer.utils import add_fused_lm_head

from fastslow.prefix.tree import TokenTree

VOCABULARY = 29
WINDOW = 4
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0,
}  # fmt: skip
SLIDING = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen2, a sliding layer": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, **SLIDING)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE)),
    "mistral, sliding": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=WINDOW)),
    "gemma3, a sliding layer": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**SHAPE, **MIXED, query_pre_attn_scalar=8, final_logit_softcapping=5.0)
    ),
}


def make(name: str, temperature: float = 1.0) -> PreTrainedModel:
    """A model whose distributions are far from flat, with TRL's head."""
    torch.manual_seed(0)
    model = MODELS[name]().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    return model


Rows = tuple[list[list[int]], list[list[int]]]


@st.composite
def rows(draw: st.DrawFn, longest: int = 9) -> Rows:
    """Rollouts of problems under contexts; some are empty, some equal, and some are the second turn of another."""
    few = st.integers(1, 3)

    def ids(least: int) -> list[int]:
        # Of three kinds of token, so that rows often share more than they must.
        return draw(st.lists(st.integers(1, 3), min_size=least, max_size=longest))

    prompts, completions = [], []
    problems = [ids(1) for _ in range(draw(few))]
    for context in [ids(0) for _ in range(draw(few))]:
        for problem in problems:
            for _ in range(draw(few)):
                prompts.append(context + problem)
                completions.append(ids(0))
                if draw(st.booleans()):
                    prompts.append(prompts[-1] + completions[-1] + ids(0))
                    completions.append(ids(0))
    return prompts, completions


def path(tree: TokenTree, place: int) -> list[int]:
    """The places of the tokens that precede a token in its sequences, itself included."""
    return [before for before in range(place + 1) if tree.ends[before] > place]


def one_by_one(model: Any, made: Rows, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies by definition: each row alone, no padding, no mask, the whole softmax."""
    width = max(map(len, made[1]))
    logprobs, entropies = [], []
    for prompt, completion in zip(*made, strict=True):
        logits = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 :]
        every = torch.log_softmax(logits[: len(completion)] / temperature, dim=-1)
        rest = (0, width - len(completion))
        chosen = torch.tensor(completion, dtype=torch.long)[:, None]
        logprobs.append(torch.nn.functional.pad(every.gather(1, chosen)[:, 0], rest))
        entropies.append(torch.nn.functional.pad(-(every.exp() * every).sum(-1), rest))
    return torch.stack(logprobs), torch.stack(entropies)


def gradients(model: torch.nn.Module, values: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of a sum with fixed weights over all values."""
    draw = torch.Generator().manual_seed(1)
    model.zero_grad()
    sum((value * torch.randn(value.shape, generator=draw)).sum() for value in values).backward()  # type: ignore[union-attr]
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.requires_grad}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Gradients to 1e-5, relative to the largest of a weight's."""
    for name, value in expected.items():
        allowed = 1e-5 * max(value.abs().max().item(), 1e-3)
        torch.testing.assert_close(found[name], value, atol=allowed, rtol=1e-5, msg=lambda text, n=name: f"{n}: {text}")
