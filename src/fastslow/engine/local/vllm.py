"""TRL's colocated vLLM: sampling with the current weights, and sleep mode during updates.

vLLM caches shared prompt prefixes itself; contexts come first in a prompt, so it can share them. TRL puts vLLM to sleep after
every call; a cycle of the fast loop makes dozens of calls, so here vLLM sleeps only during updates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastslow.records import Completion, Sampling

if TYPE_CHECKING:
    from trl import GRPOTrainer


class Vllm:
    """The vLLM engine in a trainer's process."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self.trainer, self.engine = trainer, trainer.vllm_generation
        self.sleeps = self.asleep = bool(self.engine.enable_sleep_mode)  # TRL puts it to sleep when it is created

    def sync(self) -> float:
        """Wake vLLM and load the weights if they are out of date; return the seconds that took."""
        step, engine = self.trainer.state.global_step, self.engine
        if not self.asleep and self.trainer._last_loaded_step == step:
            return 0.0
        started = time.perf_counter()
        engine.enable_sleep_mode = self.asleep  # if set, `sync_weights` wakes the weights before it loads them
        engine.sync_weights()
        if self.asleep:
            engine.llm.wake_up(tags=["kv_cache"])
        engine.enable_sleep_mode = self.asleep = False
        self.trainer._last_loaded_step = step
        return time.perf_counter() - started

    def sleep(self) -> None:
        """Free vLLM's GPU memory, if the recipe enables sleep mode."""
        if self.sleeps and not self.asleep:
            self.engine.llm.sleep(level=2)
            self.asleep = True

    def sample(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Completion]:
        self.sync()
        engine = self.engine
        saved = engine.temperature, engine.top_p, engine.max_completion_length
        engine.temperature, engine.top_p, engine.max_completion_length = (
            sampling.temperature,
            sampling.top_p,
            sampling.max_tokens,
        )
        try:
            ids, logprobs = self.trainer._generate_single_turn(
                [list(prompt) for prompt in prompts], images=None, multimodal_fields={}, num_generations=1
            )
        finally:
            engine.temperature, engine.top_p, engine.max_completion_length = saved
        return [Completion(tuple(i), tuple(p)) for i, p in zip(ids, logprobs, strict=True)]
