"""Writes a Llama of a few thousand weights as a real GGUF file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = ["<unk>", "<begin>", "<end>", *(chr(code) for code in range(33, 127)), "Ġ", "he", "ll"]
SPECIALS = 3
HEADS, KEY_HEADS = 2, 1
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def make_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(TOKENS),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=KEY_HEADS,
            max_position_embeddings=128,
            tie_word_embeddings=False,
        )
    )


def write_gguf(path: Path, model: LlamaForCausalLM, head: NDArray[np.float32] | None) -> Path:
    """The model in GGUF's names and its order of rotary dimensions; without a head, the embedding serves as one."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([2, 3, 3] + [1] * (len(TOKENS) - SPECIALS))
    writer.add_token_merges(["h e", "l l"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(*_translated(name, tensor.numpy()))
    if head is not None:
        writer.add_tensor("output.weight", np.ascontiguousarray(head))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _translated(name: str, weights: NDArray[np.float32]) -> tuple[str, NDArray[np.float32]]:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight", weights
    if name == "model.norm.weight":
        return "output_norm.weight", weights
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KEY_HEADS}.get(part)
    if heads:
        halves = weights.reshape(heads, 2, weights.shape[0] // heads // 2, -1)
        weights = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))
    return f"blk.{layer}.{LAYER[part]}.weight", weights
