"""Fast optimizers: how new texts are found. Each is a `Search` in a file that says what it keeps of the published method."""

from __future__ import annotations

from importlib import import_module

from fastslow.fast.search import Search

OPTIMIZERS = {
    "gepa": ("gepa", "Gepa"),
    "digest": ("digest", "Digest"),
    "ape": ("ape", "Ape"),
    "opro": ("opro", "Opro"),
    "evoprompt": ("evoprompt", "EvoPrompt"),
    "promptbreeder": ("promptbreeder", "Promptbreeder"),
    "textgrad": ("textgrad", "TextGrad"),
    "reflexion": ("reflexion", "Reflexion"),
    "ace": ("ace", "Ace"),
    "mipro": ("mipro", "Mipro"),
    "dspy-gepa": ("dspy_gepa", "DSPyGepa"),
}
"""The file and class of every `fast.optimizer`; only the one in use is imported."""


def find_optimizer(name: str) -> type[Search]:
    """The optimizer of a name. A package that is not installed is one error with the command that installs it."""
    module, kind = OPTIMIZERS[name]
    found: type[Search] = getattr(import_module(f"fastslow.fast.optimizers.{module}"), kind)
    return found
