"""What a model card may say of a recipe: whoever reads it has neither this machine's folders nor `smollm2`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from fastslow.models import smollm2
from fastslow.recipe import Recipe, dump_recipe
from fastslow.recipe.read import EMBEDDED

PLACES = ("name", "kind", "path", "folder", "code", "grader", "rewards", "tools", "agent", "environment", "model")
"""Keys whose values may be files, as `NAME_path` may."""
HUB_ID = re.compile(r"([\w.-]+/)?[\w.-]+")


def base_model(name: str) -> str:
    """The hub id of a model, empty if it has none."""
    if name == smollm2.NAME:
        return smollm2.HUB_ID
    known = HUB_ID.fullmatch(name) and name != EMBEDDED and not name.endswith(".gguf") and not Path(name).exists()
    return name if known else ""


def shown_recipe(recipe: Recipe) -> str:
    """The recipe with the names of files only, as they would lie beside it."""
    return yaml.safe_dump(_beside(yaml.safe_load(dump_recipe(recipe))), sort_keys=False, allow_unicode=True, width=100)


def _beside(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _beside(each, str(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_beside(each, key) for each in value]
    place = isinstance(value, str) and (key in PLACES or key.endswith("_path"))
    return Path(value).name if place and Path(value).is_absolute() else value
