"""The studies: which runs each needs, and what was published about the same question.

Published numbers are from the Fast-Slow Training paper (arXiv 2605.12484), on far larger models and other tasks, without
seeds or intervals: they say what to look for, not what to expect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastslow.recipe import Recipe
from fastslow.study.jobs import Variant

Tasks = Sequence[dict[str, Any]]
"""The recipe's task and the further ones that were given, as settings."""


@dataclass(frozen=True)
class Study:
    """A question, the runs that answer it and what the paper says."""

    name: str
    question: str
    variants: Callable[[Recipe, Tasks], list[Variant]]
    published: Mapping[str, str]
    """Published values, by what was measured."""
    tasks: int = 1
    """How many tasks it needs, including the recipe's own."""


FST = Variant("fst", "FST")
RL = Variant("rl", "RL only", ("method=rl",), equal_to=FST)
GEPA = Variant("gepa", "GEPA only", ("method=gepa",), equal_to=FST)
DISTILL = Variant("distill", "FST-distill", ("method=distill",))
REUSE = Variant("fst-reuse", "FST, rollouts reused", ("fast.reuse=true",))


def _always(*variants: Variant) -> Callable[[Recipe, Tasks], list[Variant]]:
    """Variants that depend neither on the recipe nor on further tasks."""
    return lambda base, tasks: list(variants)


def _plasticity(base: Recipe, tasks: Tasks) -> list[Variant]:
    """FST and RL on the first task, with equal steps; then plain RL on the second, from each of them and from base."""
    first_rl = Variant("rl-same-steps", "RL on the first task", ("method=rl",))
    then = ("method=rl", f"task={json.dumps(tasks[1])}")
    return [
        Variant("plasticity-base", "from the base model", then),
        Variant("plasticity-rl", "after RL on another task", then, after=first_rl),
        Variant("plasticity-fst", "after FST on another task", then, after=FST),
    ]


def _continual(base: Recipe, tasks: Tasks) -> list[Variant]:
    stages = json.dumps([{**task, "steps": base.slow.steps} for task in tasks])
    return [
        Variant("continual-fst", "FST", (f"stages={stages}",)),
        Variant("continual-rl", "RL only", ("method=rl", f"stages={stages}")),
    ]


def _star_graph(base: Recipe, tasks: Tasks) -> list[Variant]:
    task = f"task={json.dumps(tasks[1])}"
    fst = Variant("star-graph-fst", "FST", (task,))
    return [fst, Variant("star-graph-rl", "RL only", (task, "method=rl"), equal_to=fst)]


def _ablations(base: Recipe, tasks: Tasks) -> list[Variant]:
    group, cycle = base.slow.group, base.fast.cycle
    sizes = [size for size in (1, 2, 4, 8) if group % size == 0 and size != base.fast.population]
    proposer = {"light": "full", "full": "light"}.get(base.fast.optimizer.options.get("proposer", ""))
    shared = next(size for size in (base.fast.population, 2, 1) if group % size == 0 and group > size)
    own = ("slow.baseline=prompt", f"fast.population={shared}")
    half = max(1, cycle // 2)
    return [
        *(FST, RL),
        *(Variant(f"fst-k{size}", f"K = {size}", (f"fast.population={size}",)) for size in sizes),
        Variant("fst-prompt-baseline", f"baseline of each context, K = {shared}", own),
        Variant("fst-t-double", f"T = {2 * cycle}", (f"fast.cycle={2 * cycle}",)),
        Variant("fst-t-half", f"T = {half}", (f"fast.cycle={half}",)),
        *(
            [Variant(f"fst-{proposer}", f"{proposer} proposer", (f"fast.optimizer.proposer={proposer}",))]
            if proposer
            else []
        ),
        Variant("fst-policy-reflection", "the policy reflects", ("fast.reflection=policy",)),
        Variant("fst-no-feedback", "scores without feedback text", ("fast.feedback=false",)),
        replace(REUSE, label="rollouts reused"),
    ]


_STUDIES = (
    Study(
        "data-efficiency",
        "How many rollouts and steps does FST need to reach what RL only reaches?",
        _always(FST, RL, GEPA),
        {
            "times fewer steps to RL's peak": "CodeIO 3.0, math 1.4, HoVer-hard 3.0",
            "rollouts of RL divided by those of FST, from its settings": "CodeIO 1.85, math 0.94, HoVer-hard 1.85",
        },
    ),
    Study(
        "asymptote",
        "Where does training level off?",
        _always(FST, RL),
        {"asymptote, FST / RL": "CodeIO 47.4 / 43.0, math 49.2 / 46.4, HoVer-hard 25.0 / 17.3"},
    ),
    Study(
        "divergence",
        "How far from the base model must the weights move for the same reward?",
        _always(FST, RL, DISTILL),
        {"KL at matched reward": "up to 70% lower with FST; not on math"},
    ),
    Study(
        "plasticity",
        "After training on one task, how well does the model still learn another?",
        _plasticity,
        {
            "physics, then HoVer-hard at step 400": "24.2 after FST, 19.9 after RL",
            "math, then HoVer-hard": "about 0 after RL",
        },
        tasks=2,
    ),
    Study(
        "continual",
        "When the task changes within one run, which method keeps learning?",
        _continual,
        {"CodeIO, the second of three stages": "FST 37.7, RL 20.7"},
        tasks=3,
    ),
    Study(
        "star-graph",
        "Where the base model never scores, which method leaves zero reward?",
        _star_graph,
        {"leaves zero reward": "FST by step 50 or so, RL by step 300 or so"},
        tasks=2,
    ),
    Study(
        "ceiling",
        "What do weights alone, text alone and both together reach?",
        _always(FST, RL, GEPA),
        {"weights / prompt / both": "HoVer-hard 11.6 / 10.6 / 21.2, CodeIO 25.1 / 34.5 / 43.3"},
    ),
    Study(
        "ablations",
        "Which parts of FST matter?",
        _ablations,
        {
            "CodeIO at step 500, RL only": "39.65",
            "K = 1 / 2 / 4 / 8": "41.1 / 40.6 / 40.2 / 42.8",
            "K = 2 with a baseline of each context": "39.3",
            "T = 12": "41.1",
            "full proposer": "39.85",
        },
    ),
    Study(
        "reuse",
        "What does it save to train on the fast loop's rollouts?",
        _always(FST, REUSE, RL),
        {"seconds a step, reused / not": "47 / 66", "from the cache": "17k of 77k; accuracy within noise"},
    ),
)
STUDIES = {study.name: study for study in _STUDIES}
