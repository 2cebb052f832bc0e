"""What a run on this machine would need, for `fastslow check`: the memory of a GPU, and the sampler: which one
`sampling.backend=auto` takes, and why.

Measured on one H200 (docs/scale.md). With 8 billion weights our sampler is as fast as vLLM if it has kernels for the model,
and it needs neither a second copy of the weights nor the time to start vLLM. With kernels for attention alone a decoding step
takes 1.7 times vLLM's, without any 2.4 times. With 0.5 to 1.5 billion weights and answers of 64 to 256 tokens, ours was as
fast without kernels too. The limits below lie between the two.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from fastslow.base.errors import FastSlowError
from fastslow.engine.kind import Finding
from fastslow.models.memory import GIB, PREFILL, Footprint, Shape, answers_that_fit
from fastslow.models.tokenizer import read_config, resolve
from fastslow.recipe import ModelRecipe, Recipe, SamplingRecipe, VllmServers

LARGE, LONG = 3 * 10**9, 512
"""vLLM pays from this many weights and this `sampling.max_tokens` on, where our sampler has no kernels for the model."""
FILLED = 0.8
"""The most of vLLM's share of the card that the weights, 2 bytes each, may take; the rest holds keys and values."""
CARDS = (16, 24, 40, 48, 80, 96, 141, 192)
"""Memory of usual GPUs, in GB."""
MEMORY_OF_CARD = 0.98
"""Share of that which a process can use."""
LORA_BASE = {2: "bf16, as on a GPU; on a CPU in fp32, twice as much", 4: "fp32"}
"""By bytes of a weight."""
TOO_LARGE = (
    "the run does not fit with answers of full length; leave slow.microbatch and model.gradient_checkpointing on auto, train "
    "an adapter (model.lora.rank=16), set slow.kl=0, lower sampling.max_tokens, or use a smaller model or several GPUs"
)


def sampler(recipe: Recipe, fits: Callable[[int], object]) -> Iterator[Finding]:
    """What samples, and why; vLLM servers are asked what they serve, which prompts must fit."""
    backend = recipe.sampling.backend
    if isinstance(backend, VllmServers):
        from fastslow.engine.local.servers import connect

        try:
            connected = connect(recipe)
            for server in connected.servers:
                found = (
                    f"{server.address} serves {server.model}, {server.max_length:,} tokens, with vLLM {server.version}"
                )
                yield Finding("sampler", found)
        except FastSlowError as error:
            yield Finding("sampler", str(error), missing=True)
            return
        try:
            fits(connected.max_length)
        except FastSlowError as error:
            yield Finding("task and servers", str(error), missing=True)
    elif backend == "auto":
        choice = _choice(recipe)
        yield Finding("sampler", f"{choice.backend}: {choice.why}")
    else:
        yield Finding("sampler", f"{backend}: set in the recipe")


def _choice(recipe: Recipe) -> Choice:
    """torch is imported only where its GPU matters."""
    if not vllm_installed():
        return choose(recipe.sampling, None, None)
    import torch
    from transformers import AutoModelForCausalLM

    from fastslow.models.load import choose_device

    name, trust = recipe.model.name, recipe.model.trust_remote_code
    device = choose_device(recipe.model.device)
    if device != "cuda":
        return choose(recipe.sampling, None, None)
    config, card = read_config(name, trust_remote_code=trust), torch.cuda.get_device_properties(0).total_memory
    weights = weights_of(recipe, Shape.of(config))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    return choose(recipe.sampling, weights, card, own_kernels(recipe.model, device, model))


def memory(recipe: Recipe, prompt: float) -> Iterator[Finding]:
    """Weights, gradients and Adam's two moments; a copy of the base model if there is a KL penalty without an adapter. On a
    GPU also what depends on the tokens."""
    shape = Shape.of(read_config(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code))
    weights = weights_of(recipe, shape)
    if weights is None:
        yield Finding("memory", "unknown: the model is not in a local folder of safetensors, and its shape is unusual")
        return
    if recipe.method == "gepa":
        needed, parts = 4 * weights, "weights"
    elif recipe.model.lora is not None:
        width = 4 if recipe.model.precision == "fp32" or recipe.model.device == "cpu" else 2
        needed, parts = width * weights, f"frozen weights in {LORA_BASE[width]}; an adapter adds little"
    else:
        base = bool(recipe.slow.kl) or recipe.evaluation.divergence
        needed = (16 + 4 * base) * weights
        parts = "weights, gradients, optimizer" + (", base model" if base else "")
    yield Finding("memory", f"{needed / 2**30:,.2f} GiB for {weights:,} weights ({parts}), without activations")
    if (
        shape
        and recipe.method != "gepa"
        and recipe.model.device in ("auto", "cuda")
        and recipe.model.precision != "fp32"
    ):
        yield _on_gpu(recipe, shape, weights, prompt)


def _on_gpu(recipe: Recipe, shape: Shape, weights: int, prompt: float) -> Finding:
    """What fits this machine's card, or the smallest of usual ones; calculated with contexts and answers of full length."""
    card, name = _card()
    if card is not None:
        found = plan(recipe, shape, weights, prompt, card)
        # Where the run chooses everything by itself, what it cannot fit does not fit.
        fitted = recipe.slow.microbatch == "auto" and recipe.model.gradient_checkpointing is not False
        return Finding("GPU", f"on {name}, calculated: {found or TOO_LARGE}", missing=found is None and fitted)
    for size in CARDS:
        if found := plan(recipe, shape, weights, prompt, int(MEMORY_OF_CARD * size * 10**9)):
            return Finding(
                "GPU", f"this machine has none; a card of {size} GB fits, calculated: {found} (another: --card GB)"
            )
    return Finding("GPU", f"this machine has none; on a card of {CARDS[-1]} GB, calculated: {TOO_LARGE}")


def _card() -> tuple[int | None, str]:
    import torch

    if not torch.cuda.is_available():
        return None, ""
    size = torch.cuda.get_device_properties(0).total_memory
    return size, f"{torch.cuda.get_device_name(0)} ({size / GIB:.0f} GiB)"


def plan(recipe: Recipe, shape: Shape, weights: int, prompt: float, card: int) -> str | None:
    """How a run fits a card with this many bytes; None if it does not."""
    slow, sampling, lora = recipe.slow, recipe.sampling, recipe.model.lora
    needed = Footprint.of(
        recipe,
        shape,
        weights,
        shape.adapter_weights(lora.rank) if lora else weights,
        bf16=recipe.model.precision != "fp32",
    )
    evolved = 0 if recipe.method == "rl" else recipe.fast.max_tokens
    longest = round(prompt) + evolved + sampling.max_tokens
    rollouts = slow.problems * slow.group
    vllm = 0
    if sampling.backend == "vllm" or (sampling.backend == "auto" and _choice(recipe).backend == "vllm"):
        vllm = round(needed.vllm_share(card, card, rollouts, sampling.max_tokens) * card)
    free = card - vllm - (needed.fixed - needed.head)
    wish = None if recipe.model.gradient_checkpointing == "auto" else recipe.model.gradient_checkpointing
    if free < 0:
        return None
    if slow.microbatch == "auto":
        tokens, checkpointing = needed.microbatch(free, longest, wish)
        each = f"micro-batches of {tokens:,} tokens"
        tokens = max(tokens, longest)  # a row is never divided
    else:
        shared = evolved if slow.shared_prefix else 0  # by all rows, and so computed once
        tokens, checkpointing = shared + slow.microbatch * (longest - shared), wish is True
        each = f"micro-batches of {slow.microbatch} rollouts"
    update = needed.update_bytes(tokens, checkpointing) + vllm
    if update > card:
        return None
    kept = "recomputed" if checkpointing else "kept"
    words = f"updates need up to {update / GIB:.0f} GiB with {each}, activations {kept}"
    if vllm:
        return words + f"; vLLM takes {vllm / GIB:.0f} GiB of them"
    if isinstance(sampling.backend, VllmServers):
        return words + "; the servers sample"
    contexts = 1 if recipe.method == "rl" else recipe.fast.population
    in_play, problems = (math.ceil((1 + sampling.ahead) * each) for each in (rollouts, slow.problems))
    prompts = min(in_play, contexts * problems) * round(prompt)
    free = max(card - needed.sampling_bytes(0, 0, 0) + PREFILL, 0)
    most = min(math.ceil((1 + sampling.ahead) * sampling.batch), in_play)
    rows, answers = answers_that_fit(shape, 2, free, contexts * evolved, prompts / in_play, most, sampling.max_tokens)
    sampled = needed.sampling_bytes(rows, contexts * evolved + prompts * rows // in_play, answers)
    if sampled > card:
        return None
    return words + f"; sampling up to {sampled / GIB:.0f} GiB with {rows} completions at a time"


def weights_of(recipe: Recipe, shape: Shape | None) -> int | None:
    return _count_weights(Path(resolve(recipe.model.name))) or (shape.weights if shape else None)


def _count_weights(folder: Path) -> int | None:
    """From the headers of the files that transformers loads, None if they cannot be read; a weight that two layers share is
    stored once."""
    total = 0
    for path in sorted(folder.glob("model*.safetensors")) if folder.is_dir() else []:
        try:
            with safe_open(path, "numpy") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except (SafetensorError, OSError):
            return None
    return total or None


@dataclass(frozen=True)
class Choice:
    backend: Literal["transformers", "vllm"]
    why: str


def vllm_installed() -> bool:
    return "vllm" in sys.modules or find_spec("vllm") is not None


def own_kernels(recipe: ModelRecipe, device: str, model: Any) -> bool:
    """Whether all of a decoding step of our sampler has kernels for this model, and one process has all weights."""
    from fastslow.models.kernels import why_no_kernels
    from fastslow.prefix.level_attention import kernels_for

    sharded = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    if why_no_kernels(device, model) or recipe.precision == "fp32" or sharded:
        return False
    shape = Shape.of(model.config)
    return shape is not None and kernels_for(shape.head_size)


def choose(sampling: SamplingRecipe, weights: int | None, card: int | None, kernels: bool = False) -> Choice:
    """What `auto` takes for a number of weights (None: unknown) and the bytes of the CUDA GPU (None: there is none), with or
    without `own_kernels`."""
    if sampling.ahead:
        why = f"sampling.ahead={sampling.ahead:g} stops answers and continues them, which vLLM does not"
    elif not vllm_installed():
        why = "the package vllm is not installed"
    elif card is None:
        why = "no CUDA GPU is used"
    elif weights is None:
        why = "the size of the model is unknown"
    elif weights < LARGE:
        why = f"the model has {weights / 1e9:.1f} billion weights; vLLM pays from {LARGE / 1e9:g} billion on"
    elif sampling.max_tokens < LONG:
        why = f"sampling.max_tokens={sampling.max_tokens}; vLLM pays from {LONG} on"
    elif kernels:
        why = "as fast as vLLM for this model, and needs no second copy of the weights"
    elif 2 * weights > FILLED * (room := card / 2):  # the trainer has the weights too
        size = f"{2 * weights / 2**30:.0f} GiB"
        why = f"the weights, {size}, do not fit {room / 2**30:.0f} GiB of the card with keys and values"
    else:
        why = f"{weights / 1e9:.1f} billion weights and answers of up to {sampling.max_tokens} tokens"
        return Choice("vllm", why)
    return Choice("transformers", why)
