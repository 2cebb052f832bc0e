"""One sampler for slow loop, fast loop and evaluation: it draws from the trainer's model, always with its current weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel
from trl.models import unwrap_model_for_generation

from fastslow.engine.base import Ready
from fastslow.engine.local.generate import generate, generation_settings
from fastslow.engine.local.merged import merged
from fastslow.engine.local.vllm import Vllm
from fastslow.errors import FastSlowWarning
from fastslow.prefix import SharedSampler, why_not_sample
from fastslow.recipe import SamplingRecipe
from fastslow.records import Completion, Sampling

if TYPE_CHECKING:
    from trl import GRPOTrainer


class PolicySampler:
    """Samples through transformers with shared prefixes, or through vLLM driven by TRL."""

    def __init__(self, trainer: GRPOTrainer, recipe: SamplingRecipe) -> None:
        self.trainer, self.recipe = trainer, recipe
        self.vllm = Vllm(trainer) if recipe.backend == "vllm" else None
        self.shares: bool | None = None
        """Whether the model can be sampled with shared prefixes; not known before it is tried."""

    def sync(self) -> float:
        """Bring the weights of a sampler that has its own up to date; gives the seconds that took."""
        return self.vllm.sync() if self.vllm else 0.0

    def rest(self) -> None:
        """No sampling before the next update: memory that is only needed for it may be given back."""
        if self.vllm:
            self.vllm.rest()

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, ready: Ready | None = None
    ) -> list[Completion]:
        """One completion per prompt, in order; on one machine with transformers the same seed draws the same tokens."""
        if self.vllm:
            return self.vllm.sample(prompts, sampling)
        torch.manual_seed(seed)
        with self._model(sampling) as model, self.trainer.accelerator.autocast():
            return self._transformers(model, prompts, sampling, seed, ready)

    def _transformers(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seed: int,
        ready: Ready | None,
    ) -> list[Completion]:
        """With shared prefixes, or with transformers' own `generate` for a model that cannot."""
        ends, batch = self.trainer.eos_token_ids, self.recipe.batch
        if self.shares is None:
            reason = why_not_sample(model)
            self.shares = reason is None
            if reason:
                warnings.warn(
                    f"sampling falls back to padded batches without shared prefixes because {reason}",
                    FastSlowWarning,
                    stacklevel=2,
                )
        if self.shares:
            return SharedSampler(model, ends, sampling).sample(prompts, seed, batch, ready)
        return generate(
            model, prompts, sampling, pad_id=self.trainer._tokenizer.pad_token_id, eos_ids=ends, batch=batch
        )

    @contextmanager
    def _model(self, sampling: Sampling) -> Iterator[PreTrainedModel]:
        """The policy's own module, gathered where it is sharded, in evaluation mode, its adapter merged where it is whole."""
        trainer = self.trainer
        whole = not (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled)
        with (
            unwrap_model_for_generation(
                trainer.model_wrapped,
                trainer.accelerator,
                gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
                generation_kwargs=self._settings(sampling),
                gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
            ) as model,
            trainer._dist.summon_full_params(trainer.model_wrapped, recurse=False),
            evaluating(model),
            merged(model) if whole else nullcontext(),
        ):
            yield model

    def _settings(self, sampling: Sampling) -> dict:
        return generation_settings(sampling, self.trainer._tokenizer.pad_token_id, self.trainer.eos_token_ids)


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode, and then what was before."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
