"""The local engine: a model in the processes of the run, sampled with shared prefixes or by vLLM, in the same
process or on servers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fastslow.base.errors import RecipeError
from fastslow.base.world import World
from fastslow.engine.base import Numbers, Objective, TokenScores, Update
from fastslow.engine.local import files
from fastslow.engine.local.choice import choose, own_kernels
from fastslow.engine.local.fleet import Fleet
from fastslow.engine.local.sampler import PolicySampler
from fastslow.engine.local.scoring import score_turns
from fastslow.engine.local.trainer import Trainer
from fastslow.models.kernels import use_kernels, why_no_kernels
from fastslow.models.load import Policy, load_trained
from fastslow.recipe import Recipe, VllmServers
from fastslow.records import Completion, Enough, Ready, Sampling, Turn


class LocalEngine:
    """See `Engine` for the contract of each method."""

    def __init__(self, policy: Policy, recipe: Recipe, folder: Path, world: World, objective: Objective) -> None:
        if recipe.sampling.ahead and world.size > 1:
            raise RecipeError(
                f"sampling.ahead={recipe.sampling.ahead:g} stops sampling when enough groups are whole, which {world.size} "
                "processes would have to agree on; set sampling.ahead=0, or run in one process"
            )
        recipe, self._chosen = with_sampler(recipe, policy)
        why_not = why_no_kernels(policy.device, policy.model)
        if why_not is None:
            use_kernels(policy.model)
        self._chosen["kernels"] = f"none: {why_not}" if why_not else "fused"
        self.recipe, self.world = recipe.model, world
        self.tokenizer, self.max_length = policy.tokenizer, policy.max_length
        self.trainer = Trainer(policy, recipe, world, objective)
        self.sampler = PolicySampler(self.trainer, recipe.sampling)
        self._thread = ThreadPoolExecutor(1, "sampling")
        self.fleet: Fleet | None = None
        self.in_flight = isinstance(recipe.sampling.backend, VllmServers)
        self.pausable = recipe.sampling.backend == "transformers" and world.size == 1
        if self.in_flight:
            self.fleet = Fleet(self.trainer, recipe, folder)
            self.max_length = min(self.max_length or self.fleet.max_length, self.fleet.max_length)

    @property
    def retries(self) -> int:
        return sum(counts["failed"] for counts in self.fleet.tally.values()) if self.fleet else 0

    @property
    def notes(self) -> Mapping[str, Any]:
        return {**self._chosen, "servers": self.fleet.tally} if self.fleet else self._chosen

    async def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seed: int,
        *,
        limits: Sequence[int] | None = None,
        enough: Enough | None = None,
        ready: Ready | None = None,
    ) -> list[Completion]:
        if self.fleet:
            return await self.fleet.sample(prompts, sampling, seed, ready)
        sample = partial(self.sampler.sample, prompts, sampling, seed, limits=limits, enough=enough, ready=ready)
        if ready is None:
            return sample()
        # In a thread, so that finished completions can be graded meanwhile.
        return await asyncio.get_running_loop().run_in_executor(self._thread, sample)

    def prepare(self, checkpoint: Path | None = None) -> None:
        if checkpoint is None:
            self.trainer.prepare()
        else:
            files.resume(self.trainer, checkpoint)
        if self.trainer.sharded:
            self.sampler.shares = None  # what was sampled before had all weights in one process
        if checkpoint is not None and self.trainer.teacher:
            self.trainer.teacher.load(checkpoint)
        if self.fleet:
            self.fleet.sync()

    def update(self, update: Update) -> Numbers:
        numbers = self.trainer.step(update)
        return {**numbers, "sync_seconds": self.fleet.sync() if self.fleet else self.sampler.sync()}

    def score(self, turns: Sequence[Turn]) -> list[TokenScores]:
        return score_turns(self.trainer, turns)

    def freeze_teacher(self) -> None:
        assert self.trainer.teacher is not None, "the recipe's method"
        self.trainer.teacher.freeze()

    def load(self, checkpoint: Path) -> None:
        files.load(self.trainer, checkpoint)
        if self.fleet:
            self.fleet.sync()

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        files.save(self.trainer, folder)
        if teacher and self.trainer.teacher and self.world.main:
            self.trainer.teacher.save(folder)

    def export(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory() as weights:
            files.save_model(self.trainer, Path(weights))
            if self.world.main:
                model, tokenizer = load_trained(self.recipe, Path(weights))
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)

    def close(self) -> None:
        if self.fleet:
            self.fleet.close()
        self._thread.shutdown(wait=False)


def with_sampler(recipe: Recipe, policy: Policy) -> tuple[Recipe, dict[str, Any]]:
    """The recipe with what `sampling.backend=auto` becomes, and what run.json says of it."""
    sampling = recipe.sampling
    if isinstance(sampling.backend, VllmServers):
        return recipe, {"backend": "vllm servers", "why": "set in the recipe"}
    if sampling.backend != "auto":
        return recipe, {"backend": sampling.backend, "why": "set in the recipe"}
    card = torch.cuda.get_device_properties(0).total_memory if policy.device == "cuda" else None
    kernels = own_kernels(recipe.model, policy.device, policy.model)
    choice = choose(sampling, policy.model.num_parameters(), card, kernels)
    chosen = recipe.model_copy(update={"sampling": sampling.model_copy(update={"backend": choice.backend})})
    return chosen, {"backend": choice.backend, "why": choice.why}
