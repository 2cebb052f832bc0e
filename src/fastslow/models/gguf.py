"""Convert a `.gguf` file once to a standard model folder, which reference model, vLLM and export can read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from fastslow.base.cache import made_once
from fastslow.base.errors import ModelError

TIED_TOLERANCE = 0.1
"""If output head and embedding differ by less than this (relative norm), they are one matrix quantized twice."""


def convert_gguf(file: Path) -> Path:
    """Dequantize a GGUF file to a folder in the cache, unless it is there, and return the folder."""
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    return made_once("gguf", f"{file.stem}-{key}", lambda folder: _convert(file, folder))


def _convert(file: Path, folder: Path) -> None:
    try:
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        _plain_copy(loaded).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except Exception as error:
        raise ModelError(f"'{file}' cannot be read as a GGUF model: {type(error).__name__}: {error}") from error


def _plain_copy(loaded: PreTrainedModel) -> PreTrainedModel:
    """The same weights in a model without a quantization config."""
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    state = loaded.state_dict()
    head, embedding = state.get("lm_head.weight"), state.get("model.embed_tokens.weight")
    if head is not None and embedding is not None and head.shape == embedding.shape:
        difference = torch.linalg.vector_norm(head - embedding) / torch.linalg.vector_norm(head)
        if difference < TIED_TOLERANCE:
            # One matrix stored at two precisions: the head's copy has the higher one.
            config.tie_word_embeddings = True
            state["model.embed_tokens.weight"] = head
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(state)
    return plain
