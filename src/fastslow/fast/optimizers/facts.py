"""What each optimizer is called with and supports: its options, the settings that work with it, and its class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from fastslow.fast.allowance import LEAST_SHARE
from fastslow.recipe.parts import OPTIMIZER, Part

if TYPE_CHECKING:
    from fastslow.recipe import FastRecipe, Recipe

SETTINGS = {
    "rescore": ("rescore=from-rollouts", "leaves no rollouts under the contexts to score them by"),
    "race": ("race=true", ""),
    "reuse": ("reuse=true", "has no use for rollouts under the contexts"),
    "overlap": ("overlap=true", "leaves no rollouts under the contexts to draft edits from"),
}
"""Settings that only some optimizers support, with why `distill`, which trains under the seed text, has none of them."""


class Facts:
    """An optimizer in a recipe."""

    Options: ClassVar[type[Part]] = Part
    search: ClassVar[str]
    """Its module and class."""
    supports: ClassVar[frozenset[str]] = frozenset()
    """`reuse` needs a proposer that never reads the rollouts that contexts are scored by: these may be trained on."""
    any_budget: ClassVar[bool] = False
    """It starts with any budget; the others start a step only if the budget covers it."""
    reads_rollouts: ClassVar[bool] = False
    """It learns from the slow loop's rollouts whatever `rescore` says, and does not score carried contexts again."""
    parents: ClassVar[int] = 1

    @classmethod
    def refuse(cls, recipe: Recipe) -> None:
        fast = recipe.fast
        for name, (setting, reason) in SETTINGS.items():
            if getattr(fast, name) not in (True, "from-rollouts"):
                continue
            without = f"set fast.{name}={'all' if name == 'rescore' else 'false'}"
            if recipe.method == "distill" and reason:
                raise ValueError(
                    f"fast.{setting} cannot be combined with method=distill, whose weights learn under the seed text, which "
                    f"{reason}; {without}, or set method=fst"
                )
            if name not in cls.supports:
                fitting = [
                    each for each in OPTIMIZER.registry.built_in if name in OPTIMIZER.registry.find(each).supports
                ]
                raise ValueError(
                    f"fast.{setting} cannot be combined with fast.optimizer={fast.optimizer.name}; {without}, or set "
                    f"fast.optimizer to one of {', '.join(fitting)}"
                )
        if fast.population < cls.parents:
            raise ValueError(
                f"fast.optimizer={fast.optimizer.name} breeds from two texts, but fast.population={fast.population}; raise "
                "fast.population, or choose another fast.optimizer"
            )
        if not cls.any_budget:
            _check_budget(fast, min(fast.anchors, fast.cycle * recipe.slow.problems))


def _check_budget(fast: FastRecipe, anchors: int) -> None:
    least = (2 * min(fast.minibatch, anchors) + anchors) * fast.samples
    budget = math.ceil(fast.budget * LEAST_SHARE) if fast.adaptive else fast.budget
    if 0 < budget < least:
        shrunken = f", of which fast.adaptive may leave {budget}," if fast.adaptive else ""
        raise ValueError(
            f"fast.budget={fast.budget}{shrunken} does not cover one new text under fast.optimizer={fast.optimizer.name}: "
            f"two minibatches and all {anchors} anchors, fast.samples={fast.samples} times, are {least} rollouts; raise "
            "fast.budget, or lower fast.anchors, fast.minibatch or fast.samples"
        )


class ProposerOptions(Part):
    proposer: Literal["light", "full"] = "light"
    """`light` may only make incremental edits to the parent, `full` may rewrite it."""


class GepaOptions(ProposerOptions):
    proposals: int = Field(default=1, ge=1)
    """Children proposed per generation; more fill a GPU better."""


class OproOptions(Part):
    proposals: int = Field(default=1, ge=1)
    """Texts proposed per step."""


class Gepa(Facts):
    Options = GepaOptions
    search = "gepa:Gepa"
    supports = frozenset({"rescore", "race", "reuse", "overlap"})
    any_budget = True


class Digest(Facts):
    search = "digest:Digest"
    any_budget = True
    reads_rollouts = True


class Ape(Facts):
    search = "ape:Ape"
    supports = frozenset({"race"})


class Opro(Facts):
    Options = OproOptions
    search = "opro:Opro"
    supports = frozenset({"race"})


class EvoPrompt(Facts):
    search = "evoprompt:EvoPrompt"
    supports = frozenset({"rescore", "race", "reuse"})
    parents = 2


class Promptbreeder(Facts):
    search = "promptbreeder:Promptbreeder"
    supports = frozenset({"race"})
    parents = 2


class TextGrad(Facts):
    search = "textgrad:TextGrad"
    supports = frozenset({"race", "reuse"})


class Reflexion(Facts):
    search = "reflexion:Reflexion"
    supports = frozenset({"reuse"})


class Ace(Facts):
    search = "ace:Ace"
    supports = frozenset({"reuse"})


class Mipro(Facts):
    search = "mipro:Mipro"


class DSPyGepa(Facts):
    Options = ProposerOptions
    search = "dspy_gepa:DSPyGepa"
