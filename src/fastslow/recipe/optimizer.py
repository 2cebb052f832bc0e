"""Whether the settings of the fast loop fit its optimizer and the method; what does not is one ValueError in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastslow.fast.allowance import Allowance

if TYPE_CHECKING:
    from fastslow.recipe.model import FastRecipe, Method

_BY_MINIBATCH = ("gepa", "evoprompt", "textgrad", "reflexion", "ace")
"""Their proposer sees nothing of the rollouts that contexts are scored by: these may be trained on, or be missing."""
_FITTING = {
    "rescore=from-rollouts": ("gepa", "evoprompt"),
    "rescore=never": _BY_MINIBATCH,
    "race=true": ("gepa", "ape", "opro", "evoprompt", "promptbreeder", "textgrad"),
    "paired=true": ("gepa", "ape", "textgrad"),
    "reuse=true": _BY_MINIBATCH,
    "overlap=true": ("gepa",),
}
"""The optimizers that a setting works with; one that is not here works with all."""
READS_ROLLOUTS = ("digest",)
"""They learn from what the slow loop has drawn, whatever `rescore` says, and score no carried context anew."""
_UNDER_CONTEXTS = {
    "reuse=true": "has no use for rollouts under the contexts",
    "rescore=from-rollouts": "leaves no rollouts under the contexts to score them by",
    "overlap=true": "leaves no rollouts under the contexts to draft edits from",
}
"""What needs a slow loop that plays under the contexts, and what stands against it where the slow loop does not."""


def check_optimizer(fast: FastRecipe, method: Method, ahead: int) -> None:
    """Refuse what the optimizer or the method cannot do, in a cycle with so many problems ahead."""
    for setting, reason in _UNDER_CONTEXTS.items():
        if method == "distill" and _is_set(fast, setting):
            raise ValueError(
                f"fast.{setting} does not go with method=distill, whose weights learn under the seed text, which "
                f"{reason}; {_without(setting)}, or set method=fst"
            )
    for setting, fitting in _FITTING.items():
        if _is_set(fast, setting) and fast.optimizer not in fitting:
            raise ValueError(
                f"fast.{setting} does not go with fast.optimizer={fast.optimizer}; {_without(setting)}, or set "
                f"fast.optimizer to one of {', '.join(fitting)}"
            )
    if fast.optimizer in ("evoprompt", "promptbreeder") and fast.population < 2:
        raise ValueError(
            f"fast.optimizer={fast.optimizer} breeds from two texts, but fast.population={fast.population}; raise "
            "fast.population, or choose another fast.optimizer"
        )
    _check_budget(fast, min(fast.anchors, ahead))


def _check_budget(fast: FastRecipe, anchors: int) -> None:
    """gepa begins with whatever it has; all others begin a step only if the budget pays for it."""
    least = (2 * min(fast.minibatch, anchors) + anchors) * fast.samples
    budget = Allowance.smallest(fast.budget) if fast.adaptive else fast.budget
    if fast.optimizer != "gepa" and 0 < budget < least:
        shrunken = f", of which fast.adaptive may leave {budget}," if fast.adaptive else ""
        raise ValueError(
            f"fast.budget={fast.budget}{shrunken} does not pay for one new text under fast.optimizer={fast.optimizer}: two "
            f"minibatches and all {anchors} anchors, fast.samples={fast.samples} times, are {least} rollouts; raise "
            "fast.budget, or lower fast.anchors, fast.minibatch or fast.samples"
        )


def _is_set(fast: FastRecipe, setting: str) -> bool:
    name, value = setting.split("=")
    chosen = getattr(fast, name)
    return chosen is True if value == "true" else bool(chosen == value)


def _without(setting: str) -> str:
    name, value = setting.split("=")
    return f"set fast.{name}={'false' if value == 'true' else 'all'}"
