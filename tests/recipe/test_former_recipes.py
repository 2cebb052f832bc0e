"""Keys and values of earlier versions: recipes that use them are refused, run folders that hold them still load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import EXAMPLE, ROOT

from fastslow.base.errors import RecipeError
from fastslow.launch import start
from fastslow.recipe import build_recipe, dump_recipe, load_recipe, read_stored_recipe
from fastslow.recipe.former import KEYS, VALUES
from fastslow.runs.folder import RunFolder

BASE = {"model": "some-model", "task": "star-graph"}
FORMER = [(key, {"slowly": True}, new or "removed") for key, new in KEYS.items()] + [
    (key, value, new or "removed") for (key, value), new in VALUES.items()
]


def nested(key: str, value: Any) -> dict[str, Any]:
    section, *names = key.split(".")
    inner = value
    for name in reversed(names):
        inner = {name: inner}
    return {**BASE, section: {"name": BASE["model"], **inner} if section == "model" else inner}


def stored(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(("key", "value", "new"), FORMER)
def test_a_former_setting_is_one_error_wherever_it_is_written(key: str, value: Any, new: str, tmp_path: Path) -> None:
    ways = [
        lambda: build_recipe(nested(key, value)),
        lambda: load_recipe(stored(tmp_path, nested(key, value))),
        lambda: load_recipe(EXAMPLE, [f"{key}={value}"]),
        lambda: read_stored_recipe(stored(tmp_path, BASE), [f"{key}={value}"]),
    ]
    messages = set()
    for way in ways:
        with pytest.raises(RecipeError) as caught:
            way()
        messages.add(str(caught.value))
    (message,) = messages
    assert "\n" not in message
    assert message.startswith(key)
    assert new in message


def test_the_error_says_what_to_write() -> None:
    for key, value, message in [
        ("sampling.chat", {}, "sampling.chat is now sampling.chat_template_kwargs"),
        ("fast.paired", True, "fast.paired was removed: leave it out"),
        ("fast.rescore", "front", "fast.rescore=front was removed: use 'all' or 'from-rollouts'"),
        ("slow.aggregation", "prompt", "slow.aggregation=prompt is now slow.aggregation=problem"),
    ]:
        with pytest.raises(RecipeError) as caught:
            build_recipe(nested(key, value))
        assert str(caught.value) == message


def test_an_override_inside_a_renamed_mapping_is_explained_too() -> None:
    with pytest.raises(RecipeError, match=r"^sampling\.chat is now sampling\.chat_template_kwargs$"):
        load_recipe(EXAMPLE, ["sampling.chat.enable_thinking=false"])


def test_a_stored_recipe_is_translated(tmp_path: Path) -> None:
    data = {
        **BASE,
        "slow": {"aggregation": "prompt", "rounds": 2, "fill": 0.0, "fill_cap": 2.0},
        "fast": {"rescore": "all", "paired": False, "reuse_age": None},
        "sampling": {"chat": {"enable_thinking": False}, "vllm_server": None, "ahead_age": None},
    }
    recipe = read_stored_recipe(stored(tmp_path, data), exact=True)
    assert recipe.sampling.chat_template_kwargs == {"enable_thinking": False}
    assert recipe.slow.aggregation == "problem"
    assert read_stored_recipe(stored(tmp_path, yaml.safe_load(dump_recipe(recipe)))) == recipe


@pytest.mark.parametrize(
    ("key", "value"),
    [("fast.paired", True), ("slow.rounds", 3), *(pair for pair, new in VALUES.items() if not new)],
)
def test_a_removed_setting_in_use_can_be_read_but_not_resumed(key: str, value: Any, tmp_path: Path) -> None:
    path = stored(tmp_path, nested(key, value))
    assert read_stored_recipe(path) == build_recipe(BASE)
    with pytest.raises(RecipeError, match=rf"cannot be resumed: it uses {key}={value}, which was removed"):
        read_stored_recipe(path, exact=True)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RecipeError, match="cannot be resumed"):
        start.resume(tmp_path)


def test_every_run_folder_in_the_repository_loads() -> None:
    found = sorted((ROOT / "docs" / "results").glob("**/recipe.yaml"))
    assert len(found) > 100
    for path in found:
        recipe = read_stored_recipe(path, exact=True)
        if (path.parent / "run.json").exists():
            assert RunFolder.open(path.parent).recipe == recipe
