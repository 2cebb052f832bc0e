"""A package in a folder adds a loss, an optimizer, a reflector and an engine; a recipe uses each by name or `module:Name`."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from fastslow.base.errors import RecipeError, RunError
from fastslow.launch import start
from fastslow.recipe import build_recipe, load_recipe
from fastslow.recipe.parts import LOSS, SLOTS
from fastslow.runs.folder import RunFolder
from fastslow.runs.trust import code_of
from fastslow.runs.view import make_view

PACKAGE = '''
from fastslow.base.world import World
from fastslow.engine.base import Engine, TokenScores
from fastslow.engine.kind import EngineKind, Source
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.reflection import Lessons
from fastslow.fast.reflection.kinds import ReflectorKind
from fastslow.models.tokenizer import describe
from fastslow.recipe import Part
from fastslow.recipe.parts import LOSS
from fastslow.records import Completion
from fastslow.slow.rescue.kinds import Retry

open("loaded.txt", "a").write("loaded")


def squared(batch, *, power: float = 2.0, floor: float = 0.0):
    """Not a policy loss, but a loss."""
    return sum(max(abs(each), floor) ** power for each in batch)


class Longer(Steps):
    class Options(Part):
        line: str = "Think first."

    reads_feedback = False
    covers_budget = False

    def propose(self):
        best = self.ranked()[0].context
        text = f"{self.text(best)}\\n{self.recipe.optimizer.line}"
        return self.child([best], self.component, lambda seed: self.reflector.shout(f"{text} {seed}"))


class Loud(Lessons):
    def __init__(self, mark):
        super().__init__()
        self.mark = mark

    def shout(self, text):
        return text + self.mark


class Shouting(ReflectorKind):
    class Options(Part):
        mark: str = "!"

    @classmethod
    def build(cls, recipe, engine, chat):
        return Loud(recipe.fast.reflection.mark)


class Second(Retry):
    """Help where a group failed."""


class Clever(ReflectorKind):
    """A teacher."""

    @classmethod
    def chat(cls, options, device):
        raise AssertionError("nobody is asked here")


class Echo(Engine):
    in_flight = False
    max_length = None
    retries, notes = 0, {}

    def __init__(self, recipe, tokenizer):
        self.recipe, self.tokenizer, self.world = recipe, tokenizer, World()

    async def sample(self, prompts, sampling, seed, *, limits=None, enough=None, ready=None):
        return [Completion((prompt[-1],), (0.0,)) for prompt in prompts]

    def update(self, update):
        loss = self.recipe.slow.loss
        value = LOSS.registry.find(loss.name)([row.advantage for row in update.rows] or [3.0], **loss.options)
        open("losses.txt", "a").write(f"{value}\\n")
        return {"loss": value, "grad_norm": 0.0, "learning_rate": 0.0}

    def score(self, turns):
        zeros = [(0.0,) * len(turn.completion.ids) for turn in turns]
        return [TokenScores(zero, zero, zero) for zero in zeros]

    def save(self, folder, *, teacher=False):
        (folder / "echo.txt").write_text("nothing to restore")


class Echoing(EngineKind):
    class Options(Part):
        volume: int = 1

    local = False

    @classmethod
    def refuse(cls, recipe):
        if recipe.engine.volume > 11:
            raise ValueError(f"engine.volume={recipe.engine.volume} is too loud; set it to at most 11")

    @classmethod
    def load(cls, recipe, folder, world):
        model = describe(recipe.model.name, trust_remote_code=False)
        return Source(model.tokenizer, model.max_length, lambda loss: Echo(recipe, model.tokenizer))
'''
ENTRY_POINTS = """[fastslow.losses]
squared = extension_package:squared
[fastslow.optimizers]
longer = extension_package:Longer
[fastslow.reflectors]
shouting = extension_package:Shouting
[fastslow.engines]
echo = extension_package:Echoing
"""
NAMES = {"slow.loss": "squared", "fast.optimizer": "longer", "fast.reflection": "shouting", "engine": "echo"}
OBJECTS = {
    "slow.loss": "squared",
    "slow.rescue": "Second",
    "fast.optimizer": "Longer",
    "fast.reflection": "Shouting",
    "engine": "Echoing",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package, as pip would leave it."""
    (tmp_path / "extension_package.py").write_text(PACKAGE)
    metadata = tmp_path / "extension_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: extension-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "extension_package", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recipe_with(parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": "nano",
        "task": {"name": "rulebook", "book": "library"},
        "engine": parts["engine"],
        "slow": {"steps": 2, "problems": 2, "group": 4, "microbatch": 8}
        | {"loss": parts["slow.loss"], "rescue": parts.get("slow.rescue", "none")},
        "fast": {"population": 2, "cycle": 2, "anchors": 2, "budget": 12, "minibatch": 1}
        | {"optimizer": parts["fast.optimizer"], "reflection": parts["fast.reflection"]},
        "sampling": {"max_tokens": 4},
        "evaluation": {"every": 0},
    }


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("kind", ["names", "objects"])
def test_a_recipe_trains_with_the_parts_of_another_package(kind: str, tmp_path: Path) -> None:
    parts = NAMES if kind == "names" else {key: f"extension_package:{name}" for key, name in OBJECTS.items()}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_with(parts)))
    recipe = load_recipe(path, ["slow.loss.power=3", "fast.optimizer.line=Then answer.", "engine.volume=5"])
    run = start.train(recipe, tmp_path / "run", make_view(Console(file=io.StringIO())))
    stored = yaml.safe_load((run / "recipe.yaml").read_text())
    named = {
        key: name if kind == "names" else f"{tmp_path}/extension_package.py:{OBJECTS[key]}"
        for key, name in parts.items()
    }
    assert stored["slow"]["loss"] == {"name": named["slow.loss"], "power": 3.0, "floor": 0.0}
    assert stored["fast"]["optimizer"] == {"name": named["fast.optimizer"], "line": "Then answer."}
    assert stored["fast"]["reflection"] == {"kind": named["fast.reflection"], "mark": "!"}
    assert stored["engine"] == {"kind": named["engine"], "volume": 5}
    opened = RunFolder.open(run)
    assert (tmp_path / "losses.txt").read_text().split() == ["27.0", "27.0"]
    texts = [text for cycle in opened.cycles() for context in cycle["contexts"] for text in context["texts"].values()]
    assert any("Then answer." in text and text.endswith("!") for text in texts)
    assert len(code_of(opened.recipe)) == (0 if kind == "names" else 5)


@pytest.mark.usefixtures("package")
def test_mistakes_in_the_options_of_another_packages_parts() -> None:
    for changes, said in [
        ({"engine": {"kind": "echo", "volum": 3}}, "unknown recipe key 'engine.volum'; did you mean engine.volume?"),
        ({"engine": {"kind": "echo", "volume": "loud"}}, "engine.volume='loud': input should be a valid integer"),
        ({"engine": {"kind": "echo", "volume": 12}}, "engine.volume=12 is too loud"),
        ({"slow.loss": {"name": "squared", "powr": 1}}, "'slow.loss.powr'; did you mean slow.loss.power?"),
        ({"fast.optimizer": "longr"}, "there is no optimizer 'longr'; did you mean 'longer'?"),
        ({"fast.reflection": {"kind": "extension_package:Echo2"}}, "has no 'Echo2'; define it there"),
    ]:
        with pytest.raises(RecipeError) as refused:
            build_recipe(recipe_with({**NAMES, **changes}))
        assert said in str(refused.value)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("key", SLOTS)
def test_code_that_a_run_folder_names_needs_trust(key: str, tmp_path: Path) -> None:
    parts = {key: slot.default for key, slot in SLOTS.items()} | {key: f"extension_package:{OBJECTS[key]}"}
    folder = RunFolder.create(tmp_path / "run", build_recipe(recipe_with(parts)))
    folder.close()
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere")
    (tmp_path / "loaded.txt").unlink()
    sys.modules.pop("extension_package")
    opened = RunFolder.open(tmp_path / "elsewhere")
    assert code_of(opened.recipe) == [f"{key}=extension_package:{OBJECTS[key]}"]
    with pytest.raises(RunError, match=rf"executes code: {key}=extension_package:{OBJECTS[key]}; .*--trust"):
        start.resume(tmp_path / "elsewhere")
    assert not (tmp_path / "loaded.txt").exists()


@pytest.mark.usefixtures("package")
def test_a_teacher_is_code_that_needs_trust_too(tmp_path: Path) -> None:
    rescue = {"name": "teachers", "models": ["openai/small", "extension_package:Clever"]}
    parts = {key: slot.default for key, slot in SLOTS.items()} | {"slow.rescue": rescue}
    recipe = build_recipe(recipe_with(parts))
    assert [part.name for part in recipe.slow.rescue.models] == ["litellm", "extension_package:Clever"]
    RunFolder.create(tmp_path / "run", recipe).close()
    (tmp_path / "loaded.txt").unlink()
    sys.modules.pop("extension_package")
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"executes code: slow.rescue.models=extension_package:Clever; .*--trust"):
        start.resume(tmp_path / "elsewhere")
    assert not (tmp_path / "loaded.txt").exists()


def test_a_run_of_a_package_that_is_gone_can_be_read_but_not_resumed(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFolder.create(tmp_path / "run", build_recipe(recipe_with(NAMES))).close()
    shutil.rmtree(package / "extension_package-1.0.dist-info")
    recipe = RunFolder.open(tmp_path / "run").recipe
    assert (recipe.engine.kind, recipe.slow.loss.options) == ("echo", {"power": 2.0, "floor": 0.0})
    with pytest.raises(RecipeError, match="there is no engine 'echo'; the engines are: local, tinker"):
        start.resume(tmp_path / "run")


def test_a_loss_is_a_function_of_its_batch_and_options() -> None:
    assert LOSS.options("cispo").model_validate({"name": "cispo"}).options == {
        "ratio_cap": 4.0,
        "aggregation": "problem",
    }
