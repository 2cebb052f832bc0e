"""The shape of the house: layers, the files that a cycle enters, the path of a rollout, and what is relied on of others."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import make_loop, recipe_of
from helpers import ROOT

import fastslow
from fastslow import loop as method
from fastslow.rollouts.play import Player
from fastslow.slow.steady import Course

SOURCE = Path(fastslow.__file__).parent
STANDARD = {"_exit", "_is_mkldnn_bf16_supported"}
"""Of the standard library, and of torch, where there is no public way to ask."""
STACK = ["loop", "fast/evolution", "fast/optimizers/base", "fast/optimizers/gepa", "fast/evaluator", "rollouts/play"]


def test_contributing_lists_the_layers_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(re.findall(r"\w+", layer)) for layer in contracts[0]["layers"]]
    page = (ROOT / "CONTRIBUTING.md").read_text().split("## Layout")[1].split("\n## ")[0]
    shown = [set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in page.splitlines() if row.startswith("| `")]
    assert shown == layers
    assert len(layers) <= 10
    assert len(list(SOURCE.glob("*.py"))) <= 8


@pytest.fixture(scope="module")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], list[str]]:
    """The files that the second cycle of a run enters, and those on the stack of one rollout of its fast loop."""
    entered: set[str] = set()
    stack: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(SOURCE):
            entered.add(_name(frame.f_code.co_filename))

    recipe = recipe_of("fst", evaluation={"every": 0}, output={"checkpoint_every": 50})
    loop = make_loop(tmp_path_factory.mktemp("house") / "run", recipe, FakeEngine())
    assert loop.evolution is not None
    evolve, play = loop.evolution.evolve, Player.play

    def traced(*arguments: Any) -> Any:
        sys.setprofile(note if loop.state.cycle == 1 else None)
        return evolve(*arguments)

    def played(*arguments: Any, **named: Any) -> Any:
        if not stack and any(frame.filename.endswith("gepa.py") for frame in inspect.stack()):
            files = [frame.filename for frame in reversed(inspect.stack()[1:])]
            names = [_name(file) for file in files if Path(file).is_relative_to(SOURCE)]
            stack.extend(name for place, name in enumerate(names) if names[place - 1 : place] != [name])
        return play(*arguments, **named)

    loop.evolution.evolve = traced  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Player, "play", played)
        patch.setattr(Course, "improved", lambda *_: False)  # no checkpoint in this cycle, by reward as by schedule
        try:
            loop.run()
        finally:
            sys.setprofile(None)
    return entered, [*stack, "rollouts/play"]


def _name(file: str) -> str:
    return str(Path(file).relative_to(SOURCE).with_suffix(""))


def test_a_rollout_of_the_fast_loop_enters_no_file_twice(cycle: tuple[set[str], list[str]]) -> None:
    assert cycle[1] == STACK


def test_a_cycle_enters_few_files_and_the_loop_names_each(cycle: tuple[set[str], list[str]]) -> None:
    entered, _ = cycle
    assert len(entered) <= 25, sorted(entered)
    named = set(re.findall(r"([\w/]+)\.py", str(method.__doc__)))
    assert named == entered - {"loop"} | {"engine/base"}  # a protocol, which the engine of the test implements


def test_few_private_names_of_other_libraries_are_used() -> None:
    """Attributes and imports that begin with one underscore and are defined nowhere in the package."""
    used: set[str] = set()
    defined: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    used.add(name)
                case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    defined.add(name)
                case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    defined.add(name)
                case ast.ImportFrom(module=module, names=names) if not str(module).startswith("fastslow"):
                    used |= {each.name for each in names}
    private = {name for name in used - defined if re.match(r"_[a-zA-Z]", name)} - STANDARD
    assert len(private) <= 3, sorted(private)
