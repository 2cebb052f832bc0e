"""Load a policy from a hub id, local folder or GGUF file, in the precision that training needs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from fastslow.base.cache import made_once
from fastslow.base.errors import ModelError
from fastslow.models.tokenizer import ADAPTER, not_loaded, read_tokenizer, resolve
from fastslow.recipe import ModelRecipe

TIED_TOLERANCE = 0.1
"""If output head and embedding of a GGUF file differ by less than this (relative norm), they are one matrix quantized
twice."""
ONE_THREAD = 20_000_000
"""A model with fewer weights is no faster with several CPU threads, and much slower where others use the cores too: they wait
for one another at every step. OMP_NUM_THREADS overrides it."""


@dataclass(frozen=True)
class Policy:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: str
    autocast: bool
    """Compute in bf16 with fp32 trained weights."""
    lora: LoraConfig | None

    @property
    def max_length(self) -> int | None:
        """Maximum sequence length, prompt and completion together, if the config has one."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)


def choose_device(wanted: str) -> str:
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    available = [device for device, there in usable.items() if there]
    if wanted == "auto":
        return available[0]
    if wanted not in available:
        raise ModelError(f"model.device={wanted}, but this machine has only {sorted(available)}; use model.device=auto")
    return wanted


def load_pretrained(name: str, **arguments: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load model and tokenizer by name; any failure is a `ModelError`."""
    source = resolve(name)
    # Said in any case: unsaid, transformers asks on the terminal, and "y" executes what the folder brings.
    arguments.setdefault("trust_remote_code", False)
    try:
        tokenizer = read_tokenizer(source, trust_remote_code=arguments["trust_remote_code"])
        model = AutoModelForCausalLM.from_pretrained(source, **arguments)
    except Exception as error:  # a damaged file raises OSError, ValueError, RuntimeError or a safetensors error
        raise not_loaded(name, error) from error
    return model, tokenizer


def load_to_ask(name: str, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_pretrained(name, dtype=dtype_to_ask(device), device_map=device)


def dtype_to_ask(device: str) -> torch.dtype | str:
    """The precision for inference: as stored, but fp32 on a CPU without bf16 instructions, where bf16 is about a hundred
    times slower."""
    return "auto" if device != "cpu" or _cpu_computes_in_bf16() else torch.float32


def _cpu_computes_in_bf16() -> bool:
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens that end a completion: all that the model names, and the tokenizer's, if it has one."""
    named = model.generation_config.eos_token_id
    ends = [] if named is None else [named] if isinstance(named, int) else list(named)
    own = tokenizer.eos_token_id
    return ends if own in ends or own is None else [own, *ends]


def load_trained(
    recipe: ModelRecipe, weights: Path | None, dtype: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model of a recipe with trained weights and its adapter merged; in the precision in which it was trained, whatever
    the base model is stored in, or in another `dtype`. Weights that were not trained keep their stored precision."""
    code = recipe.trust_remote_code
    if weights is None:
        return load_pretrained(recipe.name, dtype=dtype or "auto", trust_remote_code=code)
    if not (weights / ADAPTER).exists():
        model, _ = load_pretrained(str(weights), dtype=dtype or torch.float32, trust_remote_code=code)
        return model, read_tokenizer(resolve(recipe.name), trust_remote_code=code)
    device = "cuda" if recipe.device in ("auto", "cuda") and torch.cuda.is_available() else "cpu"
    frozen = torch.bfloat16 if _in_bf16(recipe, device) else torch.float32
    base, tokenizer = load_pretrained(recipe.name, dtype=dtype or frozen, trust_remote_code=code)
    return PeftModel.from_pretrained(base, str(weights)).merge_and_unload(), tokenizer


def load_trained_to_ask(
    recipe: ModelRecipe, weights: Path | None, device: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """`load_trained`, for inference on a device (`auto` chooses one)."""
    chosen = choose_device(device)
    model, tokenizer = load_trained(recipe, weights)
    if dtype_to_ask(chosen) is torch.float32:
        model = model.float()
    return model.to(chosen).eval(), tokenizer


def load_policy(recipe: ModelRecipe) -> Policy:
    """Load the policy of a recipe: fp32 weights for full training, or a frozen bf16 base with fp32 LoRA adapters."""
    device = choose_device(recipe.device)
    bf16 = _in_bf16(recipe, device)
    frozen_bf16 = bf16 and recipe.lora is not None
    model, tokenizer = load_pretrained(
        recipe.name,
        dtype=torch.bfloat16 if frozen_bf16 else torch.float32,
        trust_remote_code=recipe.trust_remote_code,
    )
    if device == "cpu" and model.num_parameters() < ONE_THREAD and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    config, lora = None, recipe.lora
    if lora is not None:
        config = LoraConfig("CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.target_modules)
    return Policy(model, tokenizer, device, bf16, config)


def _in_bf16(recipe: ModelRecipe, device: str) -> bool:
    """Whether a policy computes in bf16."""
    return recipe.precision == "bf16" or (
        recipe.precision == "auto" and device == "cuda" and torch.cuda.is_bf16_supported()
    )


def convert_gguf(file: Path, check: Callable[[Path], None] = lambda file: None) -> Path:
    """Dequantize a GGUF file, once, to a model folder in the cache, which reference model, vLLM and export can read. `check`
    raises if it is not the expected file."""
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]

    def make(folder: Path) -> None:
        check(file)
        _convert(file, folder)

    return made_once("gguf", f"{file.stem}-{key}", make)


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
