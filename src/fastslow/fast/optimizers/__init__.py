"""Fast optimizers: how new texts are found. Each is an `Optimizer` whose file says what it keeps of the published method."""

from __future__ import annotations

from importlib import import_module

from fastslow.fast.optimizers.base import Optimizer

OPTIMIZERS = {
    "gepa": "fastslow.fast.optimizers.gepa:Gepa",
    "digest": "fastslow.fast.optimizers.digest:Digest",
    "ape": "fastslow.fast.optimizers.ape:Ape",
    "opro": "fastslow.fast.optimizers.opro:Opro",
    "evoprompt": "fastslow.fast.optimizers.evoprompt:EvoPrompt",
    "promptbreeder": "fastslow.fast.optimizers.promptbreeder:Promptbreeder",
    "textgrad": "fastslow.fast.optimizers.textgrad:TextGrad",
    "reflexion": "fastslow.fast.optimizers.reflexion:Reflexion",
    "ace": "fastslow.fast.optimizers.ace:Ace",
    "mipro": "fastslow.fast.optimizers.mipro:Mipro",
    "dspy-gepa": "fastslow.fast.optimizers.dspy_gepa:DSPyGepa",
}
"""The module and class of every `fast.optimizer`; only the one in use is imported."""


def find_optimizer(name: str) -> type[Optimizer]:
    """The optimizer of a name. A package that is not installed is one error with the command that installs it."""
    module, _, kind = OPTIMIZERS[name].partition(":")
    found: type[Optimizer] = getattr(import_module(module), kind)
    return found
