"""vLLM in the trainer's process: sampling with the current weights.

TRL's class starts it and loads the weights. vLLM caches shared prompt prefixes itself; contexts come first in a prompt, so it
can share them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastslow.records import Completion, Sampling

if TYPE_CHECKING:
    from fastslow.engine.local.trainer import Trainer


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
    """TRL's vLLM with the weights of a trainer."""

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
