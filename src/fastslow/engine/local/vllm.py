"""vLLM as TRL drives it: the weights of the moment, and its memory given back while they are updated.

vLLM keeps the keys and values of what prompts begin with alike by itself; contexts come first in a prompt, so that it finds
them. TRL puts vLLM to sleep after every call; a cycle of the fast loop makes dozens, so here it sleeps only through updates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastslow.records import Completion, Sampling

if TYPE_CHECKING:
    from trl import GRPOTrainer


class Vllm:
    """The vLLM in a trainer's process."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self.trainer, self.engine = trainer, trainer.vllm_generation
        self.sleeps = self.asleep = bool(self.engine.enable_sleep_mode)  # TRL puts it to sleep as soon as it is made

    def sync(self) -> float:
        """Wake it and load the weights where they are not those of the moment; gives the seconds that took."""
        step, engine = self.trainer.state.global_step, self.engine
        if not self.asleep and self.trainer._last_loaded_step == step:
            return 0.0
        started = time.perf_counter()
        engine.enable_sleep_mode = self.asleep  # where this is set, the weights are woken before they are loaded
        engine.sync_weights()
        if self.asleep:
            engine.llm.wake_up(tags=["kv_cache"])
        engine.enable_sleep_mode = self.asleep = False
        self.trainer._last_loaded_step = step
        return time.perf_counter() - started

    def rest(self) -> None:
        """Give its memory back, where the recipe wants it to."""
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
