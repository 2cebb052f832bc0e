"""Whether the settings of a recipe fit each other; each `ValueError` names the settings and what to change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fastslow.base.text import has_credentials

if TYPE_CHECKING:
    from fastslow.recipe.model import FastRecipe, Recipe

MOST_ROLLOUTS = 10**6
"""Rollouts of one step."""
LEAST_SHARE = 1 / 8
"""The share of `fast.budget` that `fast.adaptive` always leaves."""

_BY_MINIBATCH = ("gepa", "evoprompt", "textgrad", "reflexion", "ace")
"""Their proposer never reads the rollouts that contexts are scored by, so these may be trained on."""
_FITTING = {
    "rescore=from-rollouts": ("gepa", "evoprompt"),
    "race=true": ("gepa", "ape", "opro", "evoprompt", "promptbreeder", "textgrad"),
    "reuse=true": _BY_MINIBATCH,
}
"""The optimizers that a setting works with; a setting that is not here works with all of them."""
READS_ROLLOUTS = ("digest",)
"""They learn from the slow loop's rollouts whatever `rescore` says, and do not score carried contexts again."""
_UNDER_CONTEXTS = {
    "reuse=true": "has no use for rollouts under the contexts",
    "rescore=from-rollouts": "leaves no rollouts under the contexts to score them by",
}
"""Settings that need a slow loop whose rollouts are played under the contexts, and why `distill` has none for them."""


def check_recipe(recipe: Recipe) -> None:
    """Raise where settings of different sections contradict each other."""
    _check_tasks(recipe)
    _check_credentials(recipe)
    _check_size(recipe)
    _check_engine(recipe)
    if recipe.method in ("fst", "distill"):
        _check_population(recipe)
    if recipe.method != "rl":
        _check_optimizer(recipe)
    if recipe.method != "gepa":
        _check_allocation(recipe)
        _check_ahead(recipe)
    slow = recipe.slow
    rollouts = slow.problems * slow.group
    if slow.microbatch != "auto" and rollouts % slow.microbatch:
        raise ValueError(
            f"slow.microbatch={slow.microbatch} does not divide the {rollouts} rollouts of a step "
            f"(slow.problems={slow.problems} × slow.group={slow.group}); choose a divisor of {rollouts}, or auto"
        )
    full = recipe.model.lora is None and recipe.engine.kind == "local"
    if recipe.evaluation.divergence and not slow.kl and full and recipe.method != "gepa":
        raise ValueError(
            "evaluation.divergence compares with the base model, which slow.kl=0 does not load; set slow.kl above 0"
        )


def _check_engine(recipe: Recipe) -> None:
    """What vLLM servers and a training service cannot do."""
    if recipe.engine.kind == "local":
        servers = not isinstance(recipe.sampling.backend, str)
        if servers and recipe.method != "gepa" and recipe.model.lora is None:
            raise ValueError(
                "sampling.backend={vllm: …} hands LoRA adapters to the servers, but the recipe trains all weights; set "
                "model.lora.rank=32, or sampling.backend=vllm, which runs vLLM in this process"
            )
        return
    slow, sampling = recipe.slow, recipe.sampling
    if recipe.method == "distill":
        raise ValueError(
            "engine.kind=tinker cannot run method=distill: the API returns log-probabilities of tokens, and distillation "
            "needs those of the whole vocabulary; set engine=local, or method=fst"
        )
    if recipe.model.lora is not None:
        raise ValueError(
            "engine.kind=tinker trains the server's own adapter, but the recipe has model.lora; remove it and set engine.rank"
        )
    if sampling.backend not in ("auto", "transformers"):
        named = sampling.backend if isinstance(sampling.backend, str) else sampling.backend.model_dump()
        raise ValueError(
            f"engine.kind=tinker samples on the server; remove sampling.backend={named}, or set engine=local"
        )
    if recipe.method == "gepa":
        return
    if slow.loss != "cispo":
        raise ValueError(f"engine.kind=tinker has slow.loss=cispo only, not {slow.loss}; set it, or set engine=local")
    if sampling.temperature != 1:
        raise ValueError(
            f"engine.kind=tinker trains on log-probabilities at temperature 1, but sampling.temperature="
            f"{sampling.temperature:g}; set it to 1, or set engine=local"
        )


def _check_size(recipe: Recipe) -> None:
    """A step is held in memory."""
    slow = recipe.slow
    if slow.problems * slow.group > MOST_ROLLOUTS:
        raise ValueError(
            f"slow.problems={slow.problems} × slow.group={slow.group} are {slow.problems * slow.group:,} rollouts a step; "
            f"expected at most {MOST_ROLLOUTS:,}"
        )


def _check_credentials(recipe: Recipe) -> None:
    """A recipe is stored in the run folder, in the exported card and in reports: no place for keys."""
    for task in recipe.tasks:
        if has_credentials(repr(task.options)):
            raise ValueError(
                f"an option of task '{task.name}' holds a credential; keep it in the environment, where the task's code can "
                "read it"
            )


def _check_tasks(recipe: Recipe) -> None:
    if recipe.task == []:
        raise ValueError("task is an empty list; name at least one task")
    if recipe.task is None and not recipe.stages:
        raise ValueError("the recipe has no 'task'; add it (task: …)")
    if recipe.task is not None and recipe.stages:
        raise ValueError("task and stages both say what to train on; keep one of them")
    steps = sum(stage.steps for stage in recipe.stages)
    if recipe.stages and recipe.slow.steps != steps:
        raise ValueError(
            f"slow.steps={recipe.slow.steps}, but the steps of the stages add up to {steps}; leave slow.steps out, or "
            "change the stages"
        )


def _check_population(recipe: Recipe) -> None:
    group, population = recipe.slow.group, recipe.fast.population
    if group % population:
        right = [k for k in range(1, group + 1) if group % k == 0]
        raise ValueError(
            f"fast.population={population} does not divide slow.group={group}: every context gets the same number "
            f"of rollouts in a group; set fast.population to one of {right}"
        )
    if recipe.method == "fst" and recipe.slow.baseline == "prompt" and group // population < 2:
        raise ValueError(
            f"slow.baseline=prompt compares rollouts that share a context, but slow.group={group} over "
            f"fast.population={population} leaves one each; raise slow.group or lower fast.population"
        )


def _check_allocation(recipe: Recipe) -> None:
    slow, fast = recipe.slow, recipe.fast
    if slow.allocation == "even":
        return
    chosen = "slow.allocation=informative"
    if recipe.method == "distill":
        raise ValueError(
            f"{chosen} looks for differing rewards, but method=distill does not train on rewards; remove it or set method=fst"
        )
    if slow.baseline == "prompt":
        raise ValueError(
            f"{chosen} plays groups of unequal sizes, in which slow.baseline=prompt may find one rollout of a context alone; "
            "set slow.baseline=problem"
        )
    for setting, used in (("rescore=from-rollouts", fast.rescore == "from-rollouts"), ("adaptive", fast.adaptive)):
        if recipe.method == "fst" and used:
            raise ValueError(
                f"fast.{setting} takes the training rewards for a fair sample of the problems, but {chosen} chooses "
                f"those that are neither easy nor hard; remove fast.{setting.partition('=')[0]}, or set slow.allocation=even"
            )


def _check_ahead(recipe: Recipe) -> None:
    sampling, slow = recipe.sampling, recipe.slow
    if not sampling.ahead:
        return
    chosen, without = f"sampling.ahead={sampling.ahead:g}", "sampling.ahead=0"
    refused = {
        "engine.kind=tinker": (recipe.engine.kind == "tinker", "whose requests cannot be stopped and continued"),
        f"sampling.backend={sampling.backend}": (
            sampling.backend not in ("auto", "transformers"),
            "whose calls return finished answers only",
        ),
        "method=distill": (recipe.method == "distill", "which trains on answers of the present weights only"),
        "slow.allocation=informative": (
            slow.allocation == "informative",
            "which chooses problems by this step's rewards",
        ),
    }
    for setting, (used, reason) in refused.items():
        if used:
            raise ValueError(
                f"{chosen} cannot be combined with {setting}, {reason}; set {without}, or change the other"
            )


def _check_optimizer(recipe: Recipe) -> None:
    """Whether the optimizer and the method support the settings of the fast loop."""
    fast = recipe.fast
    for setting, reason in _UNDER_CONTEXTS.items():
        if recipe.method == "distill" and _is_set(fast, setting):
            raise ValueError(
                f"fast.{setting} cannot be combined with method=distill, whose weights learn under the seed text, which "
                f"{reason}; {_without(setting)}, or set method=fst"
            )
    for setting, fitting in _FITTING.items():
        if _is_set(fast, setting) and fast.optimizer not in fitting:
            raise ValueError(
                f"fast.{setting} cannot be combined with fast.optimizer={fast.optimizer}; {_without(setting)}, or set "
                f"fast.optimizer to one of {', '.join(fitting)}"
            )
    if fast.optimizer in ("evoprompt", "promptbreeder") and fast.population < 2:
        raise ValueError(
            f"fast.optimizer={fast.optimizer} breeds from two texts, but fast.population={fast.population}; raise "
            "fast.population, or choose another fast.optimizer"
        )
    if fast.optimizer not in ("gepa", "digest"):
        _check_budget(fast, min(fast.anchors, fast.cycle * recipe.slow.problems))


def _check_budget(fast: FastRecipe, anchors: int) -> None:
    """gepa and digest start with any budget; the others start a step only if the budget covers it."""
    least = (2 * min(fast.minibatch, anchors) + anchors) * fast.samples
    budget = math.ceil(fast.budget * LEAST_SHARE) if fast.adaptive else fast.budget
    if 0 < budget < least:
        shrunken = f", of which fast.adaptive may leave {budget}," if fast.adaptive else ""
        raise ValueError(
            f"fast.budget={fast.budget}{shrunken} does not cover one new text under fast.optimizer={fast.optimizer}: two "
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
