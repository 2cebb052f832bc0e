"""What a recipe accepts, how it explains mistakes, and that a dumped recipe loads as the same recipe."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import RecipeError
from fastslow.base.text import printable
from fastslow.recipe import (
    ModelRecipe,
    Recipe,
    build_recipe,
    dump_recipe,
    load_recipe,
    make_recipe,
    read_stored_recipe,
    walk,
)
from fastslow.tasks.adapters.dataset import load_grader

BASE = {"model": "some-model", "task": "star-graph"}
KEYS = [key for key, _ in walk(Recipe)]


def write(folder: Path, data: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def nested(dotted: str, value: Any) -> dict[str, Any]:
    for name in reversed(dotted.split(".")):
        value = {name: value}
    return value


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    result = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def complaint(data: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        build_recipe(data)
    return str(caught.value)


# What it accepts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["2e-6", "2.0e-6", "0.000002"])
def test_every_way_to_write_a_small_number_is_a_number(written: str, tmp_path: Path) -> None:
    """YAML itself reads 2e-6, which has no dot, as a text."""
    in_file = load_recipe(write(tmp_path, f"model: m\ntask: star-graph\nslow:\n  learning_rate: {written}\n"))
    overridden = load_recipe(write(tmp_path, BASE), [f"slow.learning_rate={written}"])
    assert in_file.slow.learning_rate == overridden.slow.learning_rate == 2e-6


def test_short_forms_are_the_long_ones() -> None:
    short = build_recipe({"model": "m", "task": "star-graph", "fast": {"reflection": "policy"}})
    long = {"model": {"name": "m"}, "task": {"name": "star-graph"}, "fast": {"reflection": {"kind": "policy"}}}
    assert short == build_recipe(long)
    several = build_recipe({"model": "m", "task": ["star-graph", {"name": "dataset", "path": "x", "weight": 2}]})
    assert [(task.name, task.weight, task.options) for task in several.tasks] == [
        ("star-graph", 1.0, {}),
        ("dataset", 2.0, {"path": "x"}),
    ]


def test_stages_add_up_to_the_steps_and_short_ones_are_long_ones(tmp_path: Path) -> None:
    recipe = load_recipe(
        write(tmp_path, {"model": "m", "stages": ["hover@200", {"name": "rulebook", "steps": 5, "book": "orchard"}]})
    )
    assert [(stage.name, stage.steps, stage.options) for stage in recipe.stages] == [
        ("hover", 200, {}),
        ("rulebook", 5, {"book": "orchard"}),
    ]
    assert recipe.slow.steps == 205
    assert recipe.tasks == recipe.stages
    assert recipe.task is None
    again = load_recipe(write(tmp_path, dump_recipe(recipe)))
    assert again == recipe
    agreed = build_recipe({"model": "m", "stages": ["mine:task@7", "env@2.0@3"], "slow": {"steps": 10}})
    assert [(stage.name, stage.steps) for stage in agreed.stages] == [("mine:task", 7), ("env@2.0", 3)]
    assert agreed.slow.steps == 10


def test_stages_are_found_beside_the_recipe_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "rows.jsonl").touch()
    stages = [
        "mine:first@3",
        {"name": "mine.py:second", "steps": 2},
        {"name": "dataset", "steps": 1, "path": "rows.jsonl"},
    ]
    recipe = load_recipe(write(tmp_path, {"model": "m", "stages": stages}))
    assert [stage.name for stage in recipe.stages] == [
        f"{tmp_path}/mine.py:first",
        f"{tmp_path}/mine.py:second",
        "dataset",
    ]
    assert recipe.stages[2].options == {"path": str(tmp_path / "rows.jsonl")}
    listed = load_recipe(write(tmp_path, {"model": "m", "task": ["mine:first", "star-graph"]}))
    assert [task.name for task in listed.tasks] == [f"{tmp_path}/mine.py:first", "star-graph"]


def test_reflection_by_name_is_a_litellm_model() -> None:
    reflection = build_recipe({**BASE, "fast": {"reflection": "openai/gpt-5.2"}}).fast.reflection
    assert (reflection.kind, reflection.model) == ("litellm", "openai/gpt-5.2")


def test_overrides_grow_short_forms_and_missing_sections(tmp_path: Path) -> None:
    path = write(tmp_path, {"model": "m", "task": "star-graph", "fast": {"reflection": "openai/gpt-5.2"}})
    recipe = load_recipe(
        path,
        [
            "model.lora.rank=4",
            "task.degree=3",
            "fast.reflection.temperature=0.5",
            "model.lora.target_modules=[q_proj, v_proj]",
            "fast.seed_text=Think first: then answer",
            "slow.group=16",
            "slow.group=8",
        ],
    )
    assert recipe.model.name == "m"
    assert recipe.model.lora is not None
    assert recipe.model.lora.rank == 4
    assert recipe.tasks[0].name == "star-graph"
    assert recipe.tasks[0].options == {"degree": 3}
    assert (recipe.fast.reflection.kind, recipe.fast.reflection.model) == ("litellm", "openai/gpt-5.2")
    assert recipe.fast.reflection.temperature == 0.5
    assert recipe.model.lora.target_modules == ["q_proj", "v_proj"]
    assert recipe.slow.group == 8  # the last one counts


def test_an_override_may_hold_anything(tmp_path: Path) -> None:
    recipe = load_recipe(
        write(tmp_path, BASE), ["fast.seed_text=[unclosed", "output.folder=a=b", "model={name: other}"]
    )
    assert recipe.fast.seed_text == "[unclosed"
    assert recipe.output.folder == "a=b"
    assert recipe.model.name == "other"


# The way there and back --------------------------------------------------------------------------------------------------

divisors = st.sampled_from([1, 2, 4, 8])
numbers = st.floats(1e-9, 1e3)
shares = st.floats(0, 1, exclude_max=True)
# Without control characters and Unicode's own line breaks, which PyYAML writes as spaces.
words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"], include_characters="\n\t"), max_size=8
)
names = words.map("m{}".format)


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, Any]:
    task = st.fixed_dictionaries({"name": words}, optional={"weight": numbers, "depth": st.integers(), "text": words})
    return {
        "method": draw(st.sampled_from(["fst", "rl", "gepa"])),
        "model": draw(names | st.fixed_dictionaries({"name": names, "lora": st.none() | st.just({"rank": 3})})),
        "task": draw(words | task | st.lists(words | task, min_size=1, max_size=3)),
        "slow": {"learning_rate": min(100.0, draw(numbers)), "kl": draw(shares), "group": 8},
        "fast": {
            "population": draw(divisors),
            "seed_text": draw(st.none() | words | st.dictionaries(words, words)),
            "reflection": draw(
                st.sampled_from(["lessons", "policy", "openai/gpt-5.2", {"kind": "local", "model": "x"}])
            ),
        },
        "sampling": {"chat_template_kwargs": draw(st.dictionaries(words, st.booleans() | words | st.integers()))},
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@settings(deadline=None, max_examples=40)
@given(recipes())
def test_dumped_recipes_load_as_the_same_recipe(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> None:
    recipe = build_recipe(data)
    text = dump_recipe(recipe)
    path = tmp_path_factory.getbasetemp() / "round-trip" / "recipe.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    again = load_recipe(path)
    assert again == recipe
    assert dump_recipe(again) == text


def test_files_beside_the_recipe_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "weights").mkdir(parents=True)
    (home / "tools").mkdir()
    for name in ("train.jsonl", "held.jsonl", "reflector.gguf"):
        (home / name).touch()
    (home / "grading.py").write_text("def grade(answer, row):\n    return 1.0\n")
    (home / "tools" / "strict.py").write_text("def grade(answer, row):\n    return 0.5\n")
    data = {
        "model": "weights",
        "task": [
            {"name": "dataset", "path": "train.jsonl", "validation_path": "held.jsonl", "grader": "grading:grade"},
            {"name": "dataset", "path": "not-here.jsonl", "grader": "tools.strict:grade"},
            {"name": "dataset", "path": str(home / "train.jsonl"), "grader": "grading.py:grade"},
            {"name": "dataset", "path": "owner/name", "grader": "math:sqrt", "question": "weights"},
        ],
        "fast": {"reflection": {"kind": "local", "model": "reflector.gguf"}},
    }
    path = write(home, data)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recipe = load_recipe(Path("..") / "home" / path.name)
    assert recipe.model.name == str(home / "weights")
    assert recipe.fast.reflection.model == str(home / "reflector.gguf")
    first, second, third, fourth = (task.options for task in recipe.tasks)
    assert (first["path"], first["validation_path"]) == (str(home / "train.jsonl"), str(home / "held.jsonl"))
    assert second["path"] == "not-here.jsonl"
    assert third["path"] == str(home / "train.jsonl")
    assert fourth == {"path": "owner/name", "grader": "math:sqrt", "question": "weights"}
    assert first["grader"] == third["grader"] == f"{home / 'grading.py'}:grade"
    assert [load_grader(task["grader"])("", {}) for task in (first, second, third)] == [1.0, 0.5, 1.0]
    resolved = tmp_path / "elsewhere" / "resolved.yaml"
    resolved.write_text(dump_recipe(recipe))
    assert load_recipe(resolved) == recipe


def test_the_long_form_of_a_model_beside_the_recipe_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    recipe = load_recipe(write(tmp_path, {"model": {"name": "weights"}, "task": "star-graph"}))
    assert recipe.model.name == str(tmp_path / "weights")


def test_paths_of_overrides_are_those_of_the_current_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    for folder in (home, here):
        (folder / "weights").mkdir(parents=True)
        for name in ("rows.jsonl", "grading.py"):
            (folder / name).touch()
    (home / "held.jsonl").touch()
    task = {"name": "dataset", "path": "rows.jsonl", "grader": "grading:grade"}
    path = write(home, {"model": "weights", "task": task})
    monkeypatch.chdir(here)
    written = load_recipe(path)
    assert written.model.name == str(home / "weights")
    assert written.tasks[0].options == {"path": f"{home}/rows.jsonl", "grader": f"{home}/grading.py:grade"}
    given = load_recipe(
        path,
        ["model.name=weights", "task.path=rows.jsonl", "task.grader=grading:strict", "task.validation_path=held.jsonl"],
    )
    assert given.model.name == str(here / "weights")
    assert given.tasks[0].options == {
        "path": f"{here}/rows.jsonl",
        "grader": f"{here}/grading.py:strict",
        "validation_path": f"{home}/held.jsonl",  # there is none in the current folder
    }
    whole = load_recipe(path, ["task={name: dataset, path: rows.jsonl}", "model=weights"])
    assert whole.model.name == str(here / "weights")
    assert whole.tasks[0].options == {"path": f"{here}/rows.jsonl"}


def test_merged_keys_may_be_given_again(tmp_path: Path) -> None:
    text = "model: m\ntask:\n- &first {name: star-graph, degree: 2}\n- {<<: *first, degree: 3, weight: 2}\n"
    assert [task.options["degree"] for task in load_recipe(write(tmp_path, text)).tasks] == [2, 3]


# What it refuses ---------------------------------------------------------------------------------------------------------


OPTIONS = ("task.", "stages.")  # where any other key is an option of the task


def test_a_slip_in_any_key_is_answered_with_that_key() -> None:
    """At every depth: two letters of the last name change places."""
    for key in KEYS:
        *parents, name = key.split(".")
        if key.startswith(OPTIONS) or len(name) <= 4:
            continue
        at = random.Random(key).randrange(1, len(name) - 2)
        slip = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
        wrong = ".".join([*parents, slip if slip != name else name + "x"])
        message = complaint(merged({**BASE, "model": {"name": "m"}}, nested(wrong, 1)))
        assert message == f"unknown recipe key '{wrong}'; did you mean {key}?"


def test_a_value_of_the_wrong_type_is_named_by_its_key() -> None:
    """No key takes a list of lists."""
    for key in KEYS:
        if key.startswith(OPTIONS):
            continue
        message = complaint(merged({**BASE, "model": {"name": "m"}}, nested(key, [[], []])))
        lines = message.splitlines()
        assert lines
        assert all(line.startswith((f"{key}=", f"{key}.")) for line in lines), message
        assert "Recipe" not in message  # the reader knows keys, not classes


@pytest.mark.parametrize(
    ("given_key", "expected"),
    [
        ("learning_rate", "slow.learning_rate"),
        ("slow.population", "fast.population"),
        ("slow.minibatch", "fast.minibatch"),
        ("fast.rank", "model.lora.rank or engine.rank"),
        ("model.lora.precision", "model.precision"),
        ("temperature", "fast.reflection.temperature or sampling.temperature or evaluation.temperature"),
        ("lerning_rate", "slow.learning_rate"),
    ],
)
def test_a_key_at_the_wrong_level_is_answered_with_the_right_one(given_key: str, expected: str) -> None:
    message = complaint(merged({**BASE, "model": {"name": "m"}}, nested(given_key, 1)))
    assert message == f"unknown recipe key '{given_key}'; did you mean {expected}?"


def test_a_slip_in_an_option_of_a_part_is_answered_with_that_option() -> None:
    for part, wrong, right in [
        ({"engine": {"kind": "tinker", "reductoin": "sum"}}, "engine.reductoin", "engine.reduction"),
        ({"slow": {"loss": {"ratoi_cap": 1}}}, "slow.loss.ratoi_cap", "slow.loss.ratio_cap"),
        ({"fast": {"optimizer": {"proposalss": 1}}}, "fast.optimizer.proposalss", "fast.optimizer.proposals"),
        ({"fast": {"reflection": {"kind": "policy", "max_token": 1}}}, "fast.reflection.max_token", "max_tokens"),
    ]:
        message = complaint({**BASE, **part})
        assert message.startswith(f"unknown recipe key '{wrong}'; did you mean ")
        assert message.endswith(f"{right}?")


@pytest.mark.parametrize("key", ["zzz", "slow.zzz", "fast.reflection.zzz"])
def test_a_key_like_no_other_is_answered_with_where_they_are_listed(key: str) -> None:
    assert complaint(merged(BASE, nested(key, 1))) == f"unknown recipe key '{key}'; `docs/recipe.md` lists every key"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fast": {"population": 3}}, ["fast.population=3", "slow.group=8", "[1, 2, 4, 8]"]),
        ({"slow": {"baseline": "prompt"}}, ["slow.baseline=prompt", "slow.group=8", "lower fast.population"]),
        ({"slow": {"microbatch": 7}}, ["slow.microbatch=7", "256", "divisor"]),
        ({"fast": {"reflection": "local"}}, ["reflector 'local' needs model: set fast.reflection.model="]),
        (
            {"fast": {"reflection": {"kind": "lessons", "model": "m"}}},
            ["reflector 'lessons' has no such option, but litellm, local have: set fast.reflection=litellm"],
        ),
        (
            {"engine": {"rank": 8}},
            ["'engine.rank'; engine 'local' has no such option, but tinker has: set engine=tinker"],
        ),
        ({"slow": {"loss": {"name": "grpo", "ratio_cap": 3}}}, ["loss 'grpo' has no such option, but cispo has"]),
        ({"slow": {"loss": {"ratio_cap": 0}}}, ["slow.loss.ratio_cap=0", "greater than 0"]),
        ({"slow": {"loss": "cispoo"}}, ["slow.loss='cispoo': there is no loss 'cispoo'; did you mean 'cispo'?"]),
        ({"slow": {"loss": {"name": 3}}}, ["slow.loss", "expected a name"]),
        ({"fast": {"optimizer": "nowhere:Mine"}}, ["there is no module 'nowhere'"]),
        ({"engine": {"kind": "tinker", "rank": 2**40}}, ["engine.rank=", "less than or equal to 4096"]),
        ({"fast": {"seed_text": {"system": 5}}}, ["fast.seed_text.system=5", "string"]),
        ({"slow": {"learning_rate": float("inf")}}, ["slow.learning_rate=inf", "finite"]),
        ({"slow": {"kl": float("nan")}}, ["slow.kl=nan", "finite"]),
        ({"slow": None}, ["slow=None", "mapping"]),
        ({"model": {"device": "cpu"}}, ["no 'model.name'", "model.name: …"]),
        ({"task": {}}, ["no 'task.name'"]),
        ({"task": ["star-graph", {"name": "dataset", "weight": 0}]}, ["task.1.weight=0", "greater than 0"]),
        ({"task": []}, ["task", "empty", "name at least one"]),
        ({"task": None}, ["the recipe has no 'task'; add it (task: …)"]),
        ({"stages": ["star-graph@5"]}, ["task and stages both", "keep one"]),
        ({"task": None, "stages": ["star-graph@5", "math"]}, ["'math' is not NAME@STEPS, as in rulebook@200"]),
        ({"task": None, "stages": ["@5"]}, ["'@5' is not NAME@STEPS"]),
        ({"task": None, "stages": ["math@many"]}, ["'math@many' is not NAME@STEPS"]),
        ({"task": None, "stages": ["math@0"]}, ["stages.0.steps=0", "greater than or equal to 1"]),
        ({"task": None, "stages": [{"name": "math"}]}, ["no 'stages.0.steps'"]),
        (
            {"task": None, "stages": ["math@5", "hover@4"], "slow": {"steps": 10}},
            ["slow.steps=10", "the stages add up to 9", "leave slow.steps out"],
        ),
    ],
)
def test_what_does_not_fit_together_is_named_with_what_was_expected(change: dict[str, Any], said: list[str]) -> None:
    message = complaint({**BASE, **change})
    for part in said:
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"engine": "tinker"}, ["engine.kind=tinker"]),
        ({"sampling": {"ahead": 1, "backend": "vllm"}}, ["sampling.backend=vllm"]),
        ({"method": "distill"}, ["method=distill"]),
    ],
)
def test_what_cannot_be_combined_with_ahead(change: dict[str, Any], said: list[str]) -> None:
    data = {**BASE, "sampling": {"ahead": 1}, **change}
    message = complaint(data)
    for part in ["sampling.ahead", *said]:
        assert part in message
    assert "\n" not in message
    assert build_recipe({**data, "method": "gepa", "engine": "local"}).sampling.ahead  # it has no slow loop


@pytest.mark.parametrize("ahead", [-1, 101, 1e308, float("inf"), float("nan")])
def test_ahead_has_bounds(ahead: float) -> None:
    with pytest.raises(RecipeError, match=r"sampling\.ahead"):
        build_recipe({**BASE, "sampling": {"ahead": ahead}})


def test_only_the_method_that_has_a_population_must_divide_by_it() -> None:
    for method in ("rl", "gepa"):
        assert build_recipe({**BASE, "method": method, "fast": {"population": 3}}).fast.population == 3
    assert build_recipe({**BASE, "method": "rl", "slow": {"baseline": "prompt"}}).slow.baseline == "prompt"
    assert build_recipe({**BASE, "slow": {"baseline": "prompt"}, "fast": {"population": 4}}).fast.population == 4


@settings(deadline=None, max_examples=100)
@given(
    group=st.integers(2, 24), population=st.integers(1, 24), problems=st.integers(1, 6), microbatch=st.integers(1, 50)
)
def test_the_arithmetic_of_a_step(group: int, population: int, problems: int, microbatch: int) -> None:
    data = {
        **BASE,
        "slow": {"group": group, "problems": problems, "microbatch": microbatch},
        "fast": {"population": population},
    }
    if group % population == 0 and (group * problems) % microbatch == 0:
        assert build_recipe(data).slow.group == group
    else:
        assert "divi" in complaint(data)


def test_all_mistakes_are_said_at_once() -> None:
    message = complaint({"task": "star-graph", "sloww": {}, "slow": {"steps": 0}})
    assert len(message.splitlines()) == 3
    for part in ("no 'model'", "'sloww'", "slow.steps=0"):
        assert part in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- model\n- task\n", ["list", "mapping"]),
        ("just words", ["str", "mapping"]),
        ("", ["NoneType", "mapping"]),
        ("model: [unclosed\ntask: x", ["cannot be read as YAML", "line 2"]),
        ("a: b: c", ["cannot be read as YAML"]),
        ("model: m\n1: 2\ntask: star-graph", ["the key 1 is not text"]),
        (
            "model: m\ntask: star-graph\nslow: {steps: 3}\nseed: 1\nslow: {problems: 2}",
            ["recipe.yaml'", "the key 'slow' is given twice (lines 3 and 5); keep one, with all of its settings"],
        ),
        ("model: m\ntask:\n- {name: star-graph, degree: 2, 'degree': 3}", ["the key 'degree' is given twice (line 3)"]),
        ("task: star-graph", ["no 'model'", "model: …"]),
        ("model: m", ["no 'task'", "task: …"]),
    ],
)
def test_files_that_are_no_recipe(text: str, said: list[str], tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, text))
    message = str(caught.value)
    assert "\n" not in message
    for part in said:
        assert part in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no recipe file '.*nowhere\.yaml'; give the path"):
        load_recipe(tmp_path / "nowhere.yaml")
    with pytest.raises(RecipeError, match="is not a file; give the path"):
        load_recipe(tmp_path)
    (tmp_path / "noise.yaml").write_bytes(b"\xff\xfe\x00model")
    with pytest.raises(RecipeError, match=r"noise\.yaml' cannot be read"):
        load_recipe(tmp_path / "noise.yaml")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("slow.group", ["'slow.group'", "KEY=VALUE", "e.g."]),
        ("=5", ["'=5'", "KEY=VALUE"]),
        ("seed.value=5", ["'seed.value=5'", "'seed' holds 3", "no keys"]),
        ("slow.group.size=5", ["'group' holds 8"]),
        ("task.0.name=x", ["'task' holds", "no keys"]),
        ("slow.gruop=5", ["'slow.gruop'", "did you mean slow.group?"]),
        ("slow.group=many", ["slow.group='many'", "integer"]),
        ("model=", ["model=None"]),
        ("slow={steps: 1, steps: 2}", ["override 'slow={", "the key 'steps' is given twice (line 1)"]),
    ],
)
def test_overrides_that_do_not_fit(override: str, said: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, {"model": "m", "task": ["star-graph"], "slow": {"group": 8}, "seed": 3})
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, [override])
    message = str(caught.value)
    assert "\n" not in message
    for part in said:
        assert part in message


# The reference page ------------------------------------------------------------------------------------------------------


def test_the_reference_page_is_up_to_date() -> None:
    script = ROOT / "docs" / "reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (script.parent / "recipe.md").read_text()
    for key, field in walk(Recipe):
        assert f"| `{key}` |" in page
        assert field.description, f"{key} has no docstring"


def test_every_recipe_in_the_repository_loads() -> None:
    found = [*ROOT.glob("recipes/**/*.yaml"), *ROOT.glob("examples/**/recipe.yaml")]
    assert found
    for path in found:
        assert load_recipe(path).tasks


@pytest.mark.parametrize(
    "changes",
    [
        {"fast": {"reflection": {"kind": "litellm", "model": "m", "base_url": "https://me:hunter2@host/v1"}}},
        {"fast": {"reflection": {"kind": "litellm", "model": "m", "base_url": "https://host/v1?key=hunter2"}}},
        {"task": {"name": "verifiers", "environment": "e", "arguments": {"key": "sk-hunter2hunter2hunter2"}}},
        {"task": {"name": "dataset", "path": "https://me:hunter2@host/rows.jsonl"}},
    ],
)
def test_a_recipe_holds_no_credentials(changes: dict[str, Any], tmp_path: Path) -> None:
    data = {"model": "nano", "task": "rulebook", **changes}
    with pytest.raises(RecipeError, match="environment") as refused:
        build_recipe(data)
    assert "hunter2" not in printable(str(refused.value))
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(data))
    assert "hunter2" not in dump_recipe(read_stored_recipe(tmp_path / "recipe.yaml"))  # of an earlier version


# From Python values -----------------------------------------------------------------------------------------------------


def test_python_values_make_the_recipe_that_a_file_of_them_makes(tmp_path: Path) -> None:
    values = {
        "model": ModelRecipe(name="nano", device="cpu"),
        "task": {"name": "star-graph", "arms": 3},
        "slow": {"steps": 7, "kl": 0},
        "fast.reflection": "openai/gpt-5.2",
        "output": {"folder": Path("runs/mine")},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "model: {name: nano, device: cpu}\ntask: {name: star-graph, arms: 3}\nslow: {steps: 7, kl: 0}\n"
        "fast: {reflection: openai/gpt-5.2}\noutput: {folder: runs/mine}\n"
    )
    assert make_recipe(values) == load_recipe(path)
    changed = make_recipe({"task": "rulebook", "slow": {"steps": 8}, "model": {"device": "auto"}}, path)
    assert changed == load_recipe(path, ["task=rulebook", "slow.steps=8", "model.device=auto"])
    assert make_recipe({"slow.steps": 8}, load_recipe(path)) == make_recipe({"slow": {"steps": 8}}, path)
    assert make_recipe({"model": {"device": "cpu"}}, {"model": "nano", "task": "rulebook"}).model.device == "cpu"
    with pytest.raises(RecipeError, match=r"'seed' holds 3, which has no keys of its own"):
        make_recipe({"seed.x": 1}, {"seed": 3})


@pytest.mark.parametrize(
    ("group", "baseline", "population"),
    [(8, "problem", 8), (16, "prompt", 8), (4, "problem", 4), (12, "problem", 6), (4, "prompt", 2), (7, "problem", 7)],
)
def test_a_population_that_is_not_given_divides_the_group(group: int, baseline: str, population: int) -> None:
    recipe = build_recipe({"model": "nano", "task": "rulebook", "slow": {"group": group, "baseline": baseline}})
    assert recipe.fast.population == population
    assert build_recipe(recipe.model_dump(mode="json"), stored=True) == recipe


@pytest.mark.parametrize(("group", "fast"), [(8, {"population": 3}), (4, {"population": 8}), (11, {})])
def test_a_population_that_does_not_divide_the_group_is_refused(group: int, fast: dict[str, int]) -> None:
    with pytest.raises(RecipeError, match=f"does not divide slow.group={group}"):
        build_recipe({"model": "nano", "task": "rulebook", "slow": {"group": group}, "fast": fast})
