"""The local engine: a model in the processes of the run, sampled with shared prefixes or by vLLM, in the same process or on
servers; and the files of its checkpoints: model or adapter, tokenizer, optimizer, schedule; with FSDP also the weights by
shard names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import is_peft_model, load_fsdp_model, load_fsdp_optimizer, save_fsdp_model, save_fsdp_optimizer
from accelerate.utils.constants import FSDP_MODEL_NAME
from safetensors.torch import load_file

from fastslow.base.errors import RecipeError, RunError, cause
from fastslow.base.world import World
from fastslow.engine.base import Numbers, Objective, TokenScores, Update
from fastslow.engine.local.estimate import choose, own_kernels
from fastslow.engine.local.fleet import Fleet
from fastslow.engine.local.sampler import PolicySampler
from fastslow.engine.local.scoring import score_turns
from fastslow.engine.local.trainer import Trainer
from fastslow.models.kernels import use_kernels, why_no_kernels
from fastslow.models.load import Policy
from fastslow.recipe import Recipe, VllmServers
from fastslow.records import Completion, Enough, Ready, Sampling, Turn

SHARDED = f"{FSDP_MODEL_NAME}.bin"
"""The file that FSDP adds to a checkpoint."""
OPTIMIZER, SCHEDULE = "optimizer.pt", "scheduler.pt"


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
        self.world = world
        self.tokenizer, self.max_length = policy.tokenizer, policy.max_length
        self.trainer = Trainer(policy, recipe, world, objective)
        self.sampler = PolicySampler(self.trainer, recipe.sampling)
        self._thread = ThreadPoolExecutor(1, "sampling")
        self.fleet: Fleet | None = None
        self.in_flight = isinstance(recipe.sampling.backend, VllmServers)
        self.pausable = recipe.sampling.backend == "transformers" and world.size == 1
        if self.in_flight:
            self.fleet = Fleet(self.trainer, recipe, folder)
            served = self.fleet.servers.max_length
            self.max_length = min(self.max_length or served, served)

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
            resume_trainer(self.trainer, checkpoint)
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
        load_weights(self.trainer, checkpoint)
        if self.fleet:
            self.fleet.sync()

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        save_trainer(self.trainer, folder)
        if teacher and self.trainer.teacher and self.world.main:
            self.trainer.teacher.save(folder)

    def close(self) -> None:
        if self.fleet:
            self.fleet.close()
        self._thread.shutdown(wait=False)


def with_sampler(recipe: Recipe, policy: Policy) -> tuple[Recipe, dict[str, Any]]:
    """The recipe with what `sampling.backend=auto` becomes, and what run.json says of it."""
    sampling = recipe.sampling
    if sampling.backend != "auto":
        named = "vllm servers" if isinstance(sampling.backend, VllmServers) else sampling.backend
        return recipe, {"backend": named, "why": "set in the recipe"}
    card = torch.cuda.get_device_properties(0).total_memory if policy.device == "cuda" else None
    kernels = own_kernels(recipe.model, policy.device, policy.model)
    choice = choose(sampling, policy.model.num_parameters(), card, kernels)
    chosen = recipe.model_copy(update={"sampling": sampling.model_copy(update={"backend": choice.backend})})
    return chosen, {"backend": choice.backend, "why": choice.why}


# Checkpoints -----------------------------------------------------------------------------------------------------------


def save_trainer(trainer: Trainer, folder: Path) -> None:
    """Write model or adapter, optimizer and schedule; raises on every process if one fails."""
    problem = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_model(trainer, folder)
        if trainer.sharded:
            plugin = trainer.accelerator.state.fsdp_plugin
            save_fsdp_model(plugin, trainer.accelerator, trainer.model, str(folder), adapter_only=True)
            save_fsdp_optimizer(plugin, trainer.accelerator, trainer.optimizer, trainer.model, str(folder))
        elif trainer.world.main:
            torch.save(trainer.optimizer.state_dict(), folder / OPTIMIZER)
        if trainer.world.main:
            torch.save(trainer.scheduler.state_dict(), folder / SCHEDULE)
    except Exception as error:  # a full disk raises OSError, RuntimeError or a safetensors error
        problem = cause(error)
    if problems := [text for text in trainer.world.gather(problem) if text]:
        raise RunError(problems[0])


def save_model(trainer: Trainer, folder: Path) -> None:
    state = trainer.accelerator.get_state_dict(trainer.model) if trainer.sharded else None
    if trainer.world.main:
        trainer.model.save_pretrained(folder, state_dict=state)
        trainer.tokenizer.save_pretrained(folder)


def load_weights(trainer: Trainer, folder: Path) -> None:
    model = trainer.model
    if trainer.sharded and trainer.optimizer is not None:
        plugin = trainer.accelerator.state.fsdp_plugin
        load_fsdp_model(plugin, trainer.accelerator, model, str(folder), adapter_only=True)
    elif is_peft_model(model):
        model.load_adapter(str(folder), model.active_adapters[0], is_trainable=True)
    else:
        for file in sorted(folder.glob("model*.safetensors")):
            model.load_state_dict(load_file(file), strict=False)
    trainer.version += 1


def resume_trainer(trainer: Trainer, folder: Path) -> None:
    """Prepare the trainer with the weights, the optimizer and the schedule of a checkpoint."""
    if (folder / SHARDED).exists() != trainer.sharded:
        saved, now = ("without FSDP", "with it") if trainer.sharded else ("with FSDP", "without")
        raise RunError(
            f"'{folder}' was saved {saved} and cannot be resumed {now}: its optimizer state has another format; launch it as "
            "before"
        )
    if trainer.sharded:
        trainer.prepare()
        load_weights(trainer, folder)
        plugin = trainer.accelerator.state.fsdp_plugin
        load_fsdp_optimizer(
            plugin, trainer.accelerator, trainer.optimizer, trainer.model, str(folder), adapter_only=True
        )
    else:
        load_weights(trainer, folder)
        trainer.prepare()
        place = trainer.device if trainer.world.size > 1 and trainer.device.type != "cpu" else "cpu"
        trainer.optimizer.load_state_dict(torch.load(folder / OPTIMIZER, map_location=place, weights_only=True))
    trainer.scheduler.load_state_dict(torch.load(folder / SCHEDULE, weights_only=True))
    trainer.version = trainer.scheduler.last_epoch
