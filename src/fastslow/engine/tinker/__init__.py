"""The engine behind the Tinker API: a policy that a server samples and trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from fastslow.base.errors import FastSlowError
from fastslow.base.text import has_credentials
from fastslow.base.world import World
from fastslow.engine.kind import EngineKind, Finding, Rollouts, Source
from fastslow.recipe import Part, PricesRecipe, Recipe
from fastslow.recipe.sections import Seconds


class TinkerOptions(Part):
    base_url: str | None = None
    """Address of the server; by default the hosted service, or TINKER_BASE_URL."""
    model: str | None = None
    """The name by which the server knows the model; by default `model.name`, which also names the tokenizer."""
    rank: int = Field(default=32, ge=1, le=4096)
    """Rank of the adapter. The server chooses the adapted layers and alpha; `model.lora` must not be set."""
    reduction: Literal["auto", "sum", "sequence-mean"] = "auto"
    """How the server combines token losses: `sum` is the API's own, `sequence-mean` is that of SkyRL's JAX backend; `auto`
    measures it on a separate adapter before the first step."""
    save_every: int = Field(default=1, ge=1)
    """Steps between saved states on the server. After a lost session, later updates are repeated from them."""
    timeout: Seconds = 600.0
    """Seconds to wait for one request, also while the server is down."""
    prices: PricesRecipe | None = None
    """What the service charges, in dollars for a million tokens, as in `{prompt: 0.1, completion: 0.3, training: 0.4}`; the
    ledger then shows costs. `prompt` are tokens of rollouts, and of completions that are scored under the base model;
    `completion` sampled tokens; `training` tokens of an update, prompts included, twice with a KL penalty."""

    @field_validator("base_url")
    @classmethod
    def _no_credentials(cls, value: str | None) -> str | None:
        if value is not None and has_credentials(value):
            raise ValueError(
                "the address holds a user, a password or a key, which would end up in the run folder; set TINKER_API_KEY in "
                "the environment"
            )
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("expected an address that starts with http:// or https://")
        return value


class Tinker(EngineKind):
    Options = TinkerOptions
    local = False

    @classmethod
    def refuse(cls, recipe: Recipe) -> None:
        slow, sampling = recipe.slow, recipe.sampling
        if recipe.teaches:
            own = recipe.method == "distill"
            asked, other = ("method=distill", "method=fst") if own else ("slow.feedback=distil", "slow.feedback=rank")
            raise ValueError(
                f"engine.kind=tinker cannot run {asked}: the API returns log-probabilities of tokens, and distillation "
                f"needs those of the whole vocabulary; set engine=local, or {other}"
            )
        if recipe.model.lora is not None:
            raise ValueError(
                "engine.kind=tinker trains the server's own adapter, but the recipe has model.lora; remove it and set "
                "engine.rank"
            )
        if sampling.backend not in ("auto", "transformers"):
            named = sampling.backend if isinstance(sampling.backend, str) else sampling.backend.model_dump()
            raise ValueError(
                f"engine.kind=tinker samples on the server; remove sampling.backend={named}, or set engine=local"
            )
        if recipe.method == "gepa":
            return
        if slow.loss.name != "cispo":
            raise ValueError(
                f"engine.kind=tinker has slow.loss=cispo only, not {slow.loss.name}; set it, or set engine=local"
            )
        if slow.rescue.name != "none":
            raise ValueError(
                f"engine.kind=tinker cannot train on slow.rescue={slow.rescue.name}: a server needs log-probabilities of "
                "sampling under the same prompt; set slow.rescue=none, or set engine=local"
            )
        if sampling.temperature != 1:
            raise ValueError(
                f"engine.kind=tinker trains on log-probabilities at temperature 1, but sampling.temperature="
                f"{sampling.temperature:g}; set it to 1, or set engine=local"
            )
        sampling.refuse_ahead("engine.kind=tinker", "whose requests cannot be stopped and continued")

    @classmethod
    def require(cls, recipe: Recipe) -> None:
        from fastslow.engine.tinker.sdk import require_package

        require_package()

    @classmethod
    def load(cls, recipe: Recipe, folder: Path, world: World) -> Source:
        from fastslow.engine.tinker.engine import TinkerEngine
        from fastslow.engine.tinker.sdk import connect
        from fastslow.models.tokenizer import describe

        model = describe(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code)
        return Source(model.tokenizer, model.max_length, lambda _: TinkerEngine(recipe, model, connect(recipe)))

    @classmethod
    def estimate(
        cls, recipe: Recipe, rollouts: Rollouts, prompt: float, fits: Callable[[int], object]
    ) -> Iterator[Finding]:
        from fastslow.engine.tinker.sdk import connect

        yield _cost(recipe, rollouts, prompt)
        try:
            connect(recipe).close()
        except FastSlowError as error:
            yield Finding("server", str(error), missing=True)
        else:
            yield Finding("server", f"{recipe.engine.base_url or 'the hosted service'} has the model")


def _cost(recipe: Recipe, rollouts: Rollouts, prompt: float) -> Finding:
    prices = recipe.prices
    if prices is None:
        return Finding("cost", "unknown: set engine.prices to what the service charges")
    completion = recipe.sampling.max_tokens
    sampled = rollouts.total * (prices.prompt * prompt + prices.completion * completion)
    passes = 2 * prices.training + prices.prompt if recipe.slow.kl else prices.training
    trained = rollouts.slow * (prompt + completion) * passes
    return Finding(
        "cost",
        f"about ${(sampled + trained) / 1e6:,.2f}: ${sampled / 1e6:,.2f} to sample, ${trained / 1e6:,.2f} to train, "
        "with the seed text and completions of full length, without the reflection model",
    )
