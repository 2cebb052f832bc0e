"""The policy in the processes of the run: trained with accelerate, sampled by transformers or vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fastslow.base.errors import RecipeError
from fastslow.base.world import World
from fastslow.engine.kind import EngineKind, Finding, Rollouts, Source
from fastslow.engine.local.estimate import vllm_installed
from fastslow.recipe import Part, Recipe, VllmServers
from fastslow.recipe.sections import Seconds


class LocalOptions(Part):
    timeout: Seconds = 600.0
    """vLLM servers: seconds to wait for one request, also while every server is down."""


class Local(EngineKind):
    Options = LocalOptions

    @classmethod
    def refuse(cls, recipe: Recipe) -> None:
        if recipe.method == "gepa":
            return
        sampling, full = recipe.sampling, recipe.model.lora is None
        if isinstance(sampling.backend, VllmServers) and full:
            raise ValueError(
                "sampling.backend={vllm: …} hands LoRA adapters to the servers, but the recipe trains all weights; set "
                "model.lora.rank=32, or sampling.backend=vllm, which runs vLLM in this process"
            )
        if sampling.backend not in ("auto", "transformers"):
            sampling.refuse_ahead(f"sampling.backend={sampling.backend}", "whose calls return finished answers only")

    @classmethod
    def require(cls, recipe: Recipe) -> None:
        if recipe.sampling.backend == "vllm" and not vllm_installed():
            raise RecipeError("sampling.backend=vllm needs the package vllm: pip install 'fastslow[vllm]'")

    @classmethod
    def load(cls, recipe: Recipe, folder: Path, world: World) -> Source:
        from fastslow.engine.local.engine import LocalEngine
        from fastslow.engine.local.servers import connect
        from fastslow.models.load import load_policy

        served = connect(recipe).max_length if isinstance(recipe.sampling.backend, VllmServers) else None
        policy = load_policy(recipe.model)
        longest = min((length for length in (policy.max_length, served) if length), default=None)
        return Source(policy.tokenizer, longest, lambda loss: LocalEngine(policy, recipe, folder, world, loss))

    @classmethod
    def estimate(
        cls, recipe: Recipe, rollouts: Rollouts, prompt: float, fits: Callable[[int], object]
    ) -> Iterator[Finding]:
        from fastslow.engine.local.estimate import memory, sampler

        yield from sampler(recipe, fits)
        yield from memory(recipe, prompt)
