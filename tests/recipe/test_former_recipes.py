"""Keys and values of earlier versions: recipes that use them are refused, run folders that hold them still load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import EXAMPLE, ROOT

from fastslow.base.errors import RecipeError
from fastslow.launch import start
from fastslow.recipe import Recipe, build_recipe, dump_recipe, load_recipe, read_stored_recipe, removed_settings, walk
from fastslow.recipe.former import KEYS, VALUES, Removed
from fastslow.runs.folder import RunFolder

BASE = {"model": "some-model", "task": "star-graph"}
GONE = {key: new for key, new in KEYS.items() if key not in dict(walk(Recipe))}
FORMER = [(key, {"slowly": True}, new.now if isinstance(new, Removed) else new) for key, new in GONE.items()] + [
    (key, value, new or "removed") for (key, value), new in VALUES.items()
]


def nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    if "model" in value:
        value["model"] = {"name": BASE["model"], **value["model"]}
    return {**BASE, **value}


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
        (
            "fast.race",
            True,
            "fast.race was removed: leave it out; fast.optimizer=digest spends the fewest rollouts",
        ),
        (
            "slow.allocation",
            "informative",
            "slow.allocation was removed: leave it out; graded rewards, or a higher sampling.temperature, give more groups a "
            "gradient",
        ),
        ("fast.rescore", "front", "fast.rescore=front was removed: use 'all' or 'from-rollouts'"),
        ("slow.loss.aggregation", "prompt", "slow.loss.aggregation=prompt is now slow.loss.aggregation=problem"),
        ("slow.ratio_cap", 3.0, "slow.ratio_cap is now slow.loss.ratio_cap"),
        ("fast.proposals", 2, "fast.proposals is now fast.optimizer.proposals"),
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
        "engine": {"kind": "local", "rank": 32, "base_url": None, "timeout": 5.0, "prices": None},
        "slow": {
            "loss": "cispo",
            "aggregation": "prompt",
            "ratio_cap": 3.0,
            "clip": 0.2,
            "rounds": 2,
            "fill": 0.0,
            "fill_cap": 2.0,
        },
        "fast": {
            "rescore": "all",
            "paired": False,
            "reuse_age": None,
            "optimizer": "gepa",
            "proposals": 4,
            "proposer": "full",
            "reflection": {"kind": "lessons", "model": None, "temperature": 1.0},
        },
        "sampling": {"chat": {"enable_thinking": False}, "vllm_server": None, "ahead_age": None},
    }
    recipe = read_stored_recipe(stored(tmp_path, data), exact=True)
    assert recipe.sampling.chat_template_kwargs == {"enable_thinking": False}
    assert recipe.slow.loss.options == {"ratio_cap": 3.0, "aggregation": "problem"}
    assert recipe.fast.optimizer.options == {"proposals": 4, "proposer": "full"}
    assert recipe.engine.options == {"timeout": 5.0}
    assert not recipe.fast.reflection.options
    grpo = {**BASE, "slow": {"loss": "grpo", "aggregation": "problem", "ratio_cap": 4.0, "clip": 0.3}}
    assert read_stored_recipe(stored(tmp_path, grpo), exact=True).slow.loss.options == {"clip": 0.3}
    assert read_stored_recipe(stored(tmp_path, yaml.safe_load(dump_recipe(recipe)))) == recipe


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fast.paired", True),
        ("fast.race", True),
        ("slow.rounds", 3),
        *(pair for pair, new in VALUES.items() if not new),
    ],
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
        recipe = read_stored_recipe(path)
        assert removed_settings(path).keys() <= {"fast.race", "slow.allocation"}
        if (path.parent / "run.json").exists():
            assert RunFolder.open(path.parent).recipe == recipe


def test_of_a_stored_part_only_what_others_of_its_slot_have_is_dropped(tmp_path: Path) -> None:
    def options(option: str) -> dict[str, Any]:
        loss = {"name": "cispo", option: 0.3}
        return read_stored_recipe(stored(tmp_path, {**BASE, "slow": {"loss": loss}})).slow.loss.options

    assert options("ratio_cap")["ratio_cap"] == 0.3
    assert "clip" not in options("clip"), "an option of grpo's"
    with pytest.raises(RecipeError, match="clir"):
        options("clir")
