"""The runs of a study: what each of them changes in the recipe that it starts from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.errors import FastSlowError
from fastslow.recipe import Recipe, build_recipe
from fastslow.recipe.read import apply_override
from fastslow.study.equal_rollouts import UNTIL_SPENT


@dataclass(frozen=True)
class Variant:
    """One kind of run, made once for every seed. A name means the same settings in every study, so studies share runs."""

    name: str
    """Names its folders."""
    label: str
    """Names it in tables and figures."""
    overrides: tuple[str, ...] = ()
    """What it changes, as dotted KEY=VALUE."""
    after: Variant | None = None
    """It starts from the weights that this one ended with, with the same seed."""


def recipe_of(variant: Variant, base: Recipe, seed: int, folder: Path, weights: Path | None) -> Recipe:
    """The recipe of a variant and a seed; `weights` is the model that it starts from, where not the recipe's own."""
    data: dict[str, Any] = base.model_dump(mode="json")
    for override in (*variant.overrides, f"seed={seed}"):
        apply_override(data, override)
    if data["stages"]:
        data["task"] = None
        del data["slow"]["steps"]
    if weights is not None:
        data["model"]["name"] = str(weights.absolute())
    data["output"]["folder"] = str(folder.absolute())
    return build_recipe(data)


def fst_rollouts(base: Recipe) -> int:
    """The most rollouts that FST may spend under a recipe: those of the updates, re-scoring, and every cycle's budget."""
    slow, fast = base.slow, base.fast
    cycles = math.ceil(slow.steps / fast.cycle)
    rescored = (1 + (cycles - 1) * fast.population) * fast.anchors * fast.samples
    return slow.steps * slow.problems * slow.group + rescored + cycles * fast.budget


def equal_rollouts(base: Recipe) -> tuple[str, ...]:
    """Overrides that let a method go on until it has spent as many rollouts as FST may."""
    return (f"rollouts={fst_rollouts(base)}", f"slow.steps={UNTIL_SPENT}")


def refuse_wrong_base(base: Recipe) -> None:
    """Raise where a recipe is not one that the variants of a study can start from."""
    if base.method != "fst":
        raise FastSlowError(f"method={base.method}, but a study runs several methods; leave it out")
    if base.stages or isinstance(base.task, list):
        raise FastSlowError("a study starts from a recipe with one task; give further ones with --task")
    if not base.evaluation.every:
        raise FastSlowError("evaluation.every=0, but a study compares evaluations; set it to 1 or more")
    if base.output.folder is not None:
        raise FastSlowError(f"output.folder={base.output.folder}, but every run of a study has its own; leave it out")
