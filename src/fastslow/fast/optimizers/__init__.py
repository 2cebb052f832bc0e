"""Fast optimizers: how new texts are found. Each is a `Search` in a file that says what it keeps of the published method."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fastslow.recipe.parts import OPTIMIZER

if TYPE_CHECKING:
    from fastslow.fast.search import Search


def find_optimizer(name: str) -> type[Search]:
    """The optimizer of a name. A package that is not installed is one error with the command that installs it."""
    found = OPTIMIZER.registry.find(name)
    if not hasattr(found, "search") or callable(found.search):
        return found
    module, _, kind = found.search.partition(":")
    search: type[Search] = getattr(import_module(f"fastslow.fast.optimizers.{module}"), kind)
    return search
