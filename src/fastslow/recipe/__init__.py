"""What a run is: typed, validated, loaded from YAML, overridden by dotted `key=value`."""

from fastslow.recipe.model import (
    EvaluationRecipe,
    FastRecipe,
    GradingRecipe,
    LoraRecipe,
    ModelRecipe,
    OutputRecipe,
    Recipe,
    ReflectionRecipe,
    SamplingRecipe,
    SlowRecipe,
    StageRecipe,
    TaskByName,
    TaskRecipe,
)
from fastslow.recipe.read import (
    MACHINE_SETTINGS,
    build_recipe,
    dump_recipe,
    flat,
    load_recipe,
    read_stored_recipe,
    walk,
)

__all__ = [
    "MACHINE_SETTINGS",
    "EvaluationRecipe",
    "FastRecipe",
    "GradingRecipe",
    "LoraRecipe",
    "ModelRecipe",
    "OutputRecipe",
    "Recipe",
    "ReflectionRecipe",
    "SamplingRecipe",
    "SlowRecipe",
    "StageRecipe",
    "TaskByName",
    "TaskRecipe",
    "build_recipe",
    "dump_recipe",
    "flat",
    "load_recipe",
    "read_stored_recipe",
    "walk",
]
