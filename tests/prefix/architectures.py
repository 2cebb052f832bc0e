"""Tiny models of several families, opinionated: a fresh model is nearly uniform, and then every sampler looks right."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM as Models
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 25
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 2,
}
SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHAPE),
    "llama, all heads": lambda: LlamaConfig(**{**SHAPE, "num_key_value_heads": 4}),
    "llama, positions stretched": lambda: LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    ),
    "qwen2": lambda: Qwen2Config(**SHAPE),
    "qwen3": lambda: Qwen3Config(**SHAPE),
    "mistral, window 5": lambda: MistralConfig(**SHAPE, sliding_window=5),
    "gemma2, window 5": lambda: Gemma2Config(**SHAPE, sliding_window=5, layer_types=SLIDING),
    "gemma3, window 5": lambda: Gemma3TextConfig(**SHAPE, sliding_window=5, layer_types=SLIDING),
}
REFUSED = {
    "mamba": lambda: MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, eos_token_id=2),
    "gpt-oss": lambda: GptOssConfig(**SHAPE, num_local_experts=2, num_experts_per_tok=1),
}


def build(config: Any, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    # Eager attention serves as the oracle: it is the only one that does Gemma2's soft cap.
    model = Models.from_config(config, dtype=torch.float32, **({} if config.model_type == "mamba" else EAGER)).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight *= 20
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(10)  # a fresh model attends to everything equally, and then every mask looks right
    return model


EAGER = {"attn_implementation": "eager"}
