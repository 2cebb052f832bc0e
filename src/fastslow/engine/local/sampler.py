"""The sampler of both loops and of evaluation; it always uses the trainer's current weights.

vLLM in the trainer's process is started, and given the weights, by TRL's class. It caches shared prompt prefixes itself;
contexts come first in a prompt, so it can share them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel

from fastslow.base.errors import warn
from fastslow.engine.local.fit import free_memory
from fastslow.engine.local.generate import generate
from fastslow.models.memory import Shape, answers_that_fit
from fastslow.prefix import SharedSampler, why_not_sample
from fastslow.prefix.sampling import UNBOUNDED
from fastslow.prefix.tree import prompt_tree
from fastslow.recipe import SamplingRecipe
from fastslow.records import Completion, Enough, Ready, Sampling

if TYPE_CHECKING:
    from fastslow.engine.local.trainer import Trainer


class PolicySampler:
    """Samples in this process: with transformers and shared prefixes, or with vLLM."""

    def __init__(self, trainer: Trainer, recipe: SamplingRecipe) -> None:
        self.trainer, self.recipe = trainer, recipe
        self.vllm = Vllm(trainer, start_vllm(trainer)) if recipe.backend == "vllm" else None
        self.shares: bool | None = None
        """Whether the model supports sampling with shared prefixes; None before the first call."""

    def sync(self) -> float:
        """Update the weights of a sampler that has its own copy; return the seconds that took."""
        return self.vllm.sync() if self.vllm else 0.0

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seed: int,
        *,
        limits: Sequence[int] | None = None,
        enough: Enough | None = None,
        ready: Ready | None = None,
    ) -> list[Completion]:
        """See `Engine.sample`; deterministic by seed on one machine with transformers."""
        if self.vllm:
            return self.vllm.sample(prompts, sampling)
        torch.manual_seed(seed)
        most = math.ceil((1 + self.recipe.ahead) * self.recipe.batch) if enough else self.recipe.batch
        with self._model() as model, self.trainer.accelerator.autocast():
            ends, (batch, room) = self.trainer.eos_token_ids, self._fitting(model, prompts, sampling, most)
            if not self._shares(model):  # `generate` sets none aside, so each may have its full length
                batch = max(1, min(batch, room // sampling.max_tokens))
                return generate(
                    model, prompts, sampling, self.trainer.pad_id, ends, batch=batch, limits=limits, enough=enough
                )
            shared = SharedSampler(model, ends, sampling)

            def sample(size: int, report: Ready) -> list[Completion]:
                free = room * size // batch
                return shared.sample(prompts, seed, size, limits=limits, enough=enough, ready=report, room=free)

            found, finished = halving(sample, batch, ready)
            return [finished.get(row, completion) for row, completion in enumerate(found)]

    def _shares(self, model: PreTrainedModel) -> bool:
        """Whether the model can be sampled with shared prefixes; warns once if it cannot."""
        if self.shares is None:
            reason = why_not_sample(model)
            self.shares = reason is None
            if reason:
                warn(f"sampling falls back to padded batches without shared prefixes because {reason}")
        return self.shares

    def _fitting(
        self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], sampling: Sampling, most: int
    ) -> tuple[int, int]:
        """Sequences that are sampled together, at most `most`, and the tokens of their completions that are stored: as many
        as fit."""
        free, shape = free_memory(model.device), Shape.of(model.config)
        if free is None or shape is None or not prompts:
            return most, UNBOUNDED
        width = 2 if self.trainer.bf16 else 4
        contexts, problems = prompt_tree(prompts).stored
        return answers_that_fit(shape, width, free, contexts, problems / len(prompts), most, sampling.max_tokens)

    @contextmanager
    def _model(self) -> Iterator[PreTrainedModel]:
        """The policy's module in evaluation mode: gathered if it is sharded, otherwise with its adapter merged."""
        trainer = self.trainer
        model = trainer.accelerator.unwrap_model(trainer.wrapped)
        with without_checkpointing(model), evaluating(model), nullcontext() if trainer.sharded else merged(model):
            yield model


def halving(
    sample: Callable[[int, Ready], list[Completion]], batch: int, ready: Ready | None = None
) -> tuple[list[Completion], dict[int, Completion]]:
    """Samples in batches, and again in smaller ones after running out of GPU memory; also returns each completion as it was
    reported first, which stays valid."""
    reported: dict[int, Completion] = {}

    def report(row: int, completion: Completion) -> None:
        if row not in reported:
            reported[row] = completion
            if ready:
                ready(row, completion)

    while True:
        try:
            return sample(batch, report), reported
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
        batch = max(1, batch // 2)  # outside the handler: there, the error still holds the keys and values
        torch.cuda.empty_cache()
        warn(f"out of GPU memory while sampling; continuing with {batch} sequences at a time")


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def without_checkpointing(model: PreTrainedModel) -> Iterator[None]:
    """Keep activations in this block, where there is no gradient to recompute them for."""
    # The models have a property for this, by another name in later versions of transformers.
    enabled = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    if enabled:
        model.gradient_checkpointing_disable()
    try:
        yield
    finally:
        if enabled:
            model.gradient_checkpointing_enable()


@contextmanager
def merged(model: torch.nn.Module) -> Iterator[None]:
    """Merges a model's adapter in this block and then restores the weights bit for bit; needs memory for a copy of them.
    An unmerged adapter costs several extra small kernels per layer and token.

    Does nothing if an adapted layer shares its weights with the embedding, which must stay unchanged."""
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    weights = [layer.get_base_layer().weight.data for layer in layers]
    tied = isinstance(model, PeftModel) and model.get_base_model().get_input_embeddings().weight.data_ptr()
    if not isinstance(model, PeftModel) or any(weight.data_ptr() == tied for weight in weights):
        yield
        return
    kept = [weight.clone() for weight in weights]
    try:
        model.merge_adapter()
        yield
    finally:
        for layer, weight, before in zip(layers, weights, kept, strict=True):
            weight.copy_(before)
            layer.merged_adapters.clear()


def start_vllm(trainer: Trainer) -> Any:
    """vLLM with a trainer's model, in the share of the card that was calculated for it."""
    from trl.generation.vllm_generation import VLLMGeneration

    slow = trainer.recipe.slow
    return VLLMGeneration(
        model=trainer.model,
        accelerator=trainer.accelerator,
        processing_class=trainer.tokenizer,
        gpu_memory_utilization=trainer.vllm_share,
        max_model_length=trainer.max_length,
        max_num_seqs=slow.problems * slow.group // trainer.world.size,
        trust_remote_code=trainer.recipe.model.trust_remote_code,
    )


class Vllm:
    def __init__(self, trainer: Trainer, engine: Any) -> None:
        self.trainer, self.engine = trainer, engine
        self.loaded = -1
        """The version of the weights that it has."""

    def sync(self) -> float:
        """Load the weights if they are out of date; return the seconds that took."""
        if self.loaded == self.trainer.version:
            return 0.0
        started = time.perf_counter()
        self.engine.sync_weights()
        self.loaded = self.trainer.version
        return time.perf_counter() - started

    def sample(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Completion]:
        self.sync()
        engine = self.engine
        engine.temperature, engine.top_p = sampling.temperature, sampling.top_p
        engine.max_completion_length = sampling.max_tokens
        _, ids, logprobs, _ = engine.generate([list(prompt) for prompt in prompts], images=None, num_generations=1)
        # Of each token the log-probabilities of the most likely ones, here of the sampled one alone.
        return [Completion(tuple(i), tuple(p for p, *_ in each)) for i, each in zip(ids, logprobs, strict=True)]
