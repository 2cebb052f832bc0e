"""A `.gguf` file becomes a standard model folder once, so that everything after it (reference model, vLLM, export) reads one
format."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from fastslow.errors import ModelError

TIED_TOLERANCE = 0.1
"""Head and embedding that differ by less than this (relative norm) are one matrix quantized twice."""


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fastslow" / "gguf"


def convert_gguf(file: Path) -> Path:
    """Dequantize a GGUF file into a folder in the cache and return it; a second call finds it there."""
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = cache_folder() / f"{file.stem}-{key}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=".writing-"))
    try:
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        _plain_copy(loaded).save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        try:
            aside.rename(target)
        except OSError:
            if not target.exists():  # else another process of the run was quicker
                raise
    except Exception as error:
        raise ModelError(f"'{file}' cannot be read as a GGUF model: {type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _plain_copy(loaded: PreTrainedModel) -> PreTrainedModel:
    """The same weights in a model whose config does not claim to be quantized."""
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    state = loaded.state_dict()
    head, embedding = state.get("lm_head.weight"), state.get("model.embed_tokens.weight")
    if head is not None and embedding is not None and head.shape == embedding.shape:
        difference = torch.linalg.vector_norm(head - embedding) / torch.linalg.vector_norm(head)
        if difference < TIED_TOLERANCE:
            # One matrix stored twice at two precisions: the head's copy is the finer one.
            config.tie_word_embeddings = True
            state["model.embed_tokens.weight"] = head
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(state)
    return plain
