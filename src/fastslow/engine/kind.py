"""An engine in a recipe: its options, what it cannot do, and how it is loaded. Nothing here imports torch, so that a mistake
which can be seen without it need not wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fastslow.base.world import World
from fastslow.engine.base import Engine, Objective
from fastslow.recipe.parts import ENGINE, PartKind

if TYPE_CHECKING:
    from fastslow.recipe import Recipe


@dataclass(frozen=True)
class Source:
    """What an engine is made from; the prompts are checked before it is."""

    tokenizer: Any
    max_length: int | None
    open: Callable[[Objective], Engine]
    """Called with the recipe's loss."""


@dataclass(frozen=True)
class Rollouts:
    """The most rollouts of a whole run by purpose."""

    slow: int
    fast: int
    evaluation: int

    @property
    def total(self) -> int:
        return self.slow + self.fast + self.evaluation


@dataclass(frozen=True)
class Finding:
    """A line of `fastslow check`; `missing` if the run cannot start because of it, `warning` if it may be for nothing."""

    what: str
    found: str
    missing: bool = False
    warning: bool = False


class EngineKind(PartKind):
    """Subclasses are found by the name of `engine.kind`."""

    local: ClassVar[bool] = True
    """The weights are in the processes of the run, of which a launcher may start several, and in its folder."""

    @classmethod
    def load(cls, recipe: Recipe, folder: Path, world: World) -> Source:
        """The tokenizer and the length of the model, and what opens the engine."""
        raise NotImplementedError

    @classmethod
    def estimate(
        cls, recipe: Recipe, rollouts: Rollouts, prompt: float, fits: Callable[[int], object]
    ) -> Iterator[Finding]:
        """What a run would need: memory, a server, money. `prompt` is the mean length of prompts; `fits` raises if one does
        not fit a number of tokens."""
        yield from ()


def find_engine(recipe: Recipe) -> type[EngineKind]:
    found: type[EngineKind] = ENGINE.registry.find(recipe.engine.kind)
    return found
