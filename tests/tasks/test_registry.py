"""Tasks are found by name, built-in or installed, and mistakes in a recipe's task are told in one line each."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fastslow.base.errors import RecipeError, TaskError
from fastslow.recipe import Recipe, build_recipe
from fastslow.tasks.adapters.dataset import DatasetTask
from fastslow.tasks.families.star_graph import StarGraph
from fastslow.tasks.registry import build_task, task_class, task_classes
from fastslow.tasks.stages import Mixture

PLUGIN = """
from fastslow.tasks import Example, Feedback, QuestionTask

class Ping(QuestionTask):
    def examples(self, split):
        return [Example(f"{split}/{n}", {}) for n in range(3)]

    def messages(self, example):
        return [{"role": "user", "content": "ping"}]

    def grade(self, example, answer):
        return Feedback(float(answer == "pong"))

class Unfinished(QuestionTask):
    pass

def function():
    pass
"""
ENTRY_POINTS = """[fastslow.tasks]
ping = registry_plugin:Ping
gone = registry_plugin:Gone
broken = registry_plugin_broken:Task
unfinished = registry_plugin:Unfinished
function = registry_plugin:function
star-graph = registry_plugin:Ping
"""


def recipe(task: Any) -> Recipe:
    return build_recipe({"model": "nano", "task": task})


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package, as pip would leave it: a module and the metadata that names its tasks."""
    (tmp_path / "registry_plugin.py").write_text(PLUGIN)
    (tmp_path / "registry_plugin_broken.py").write_text("import no_such_library\n")
    metadata = tmp_path / "registry_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: registry-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("registry_plugin", "registry_plugin_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_built_in_tasks_are_there() -> None:
    classes = task_classes()
    assert classes["star-graph"] is StarGraph
    assert classes["dataset"] is DatasetTask
    assert {"codeio", "math", "hover", "physics"} <= set(classes)


def test_one_task_is_built_with_its_options() -> None:
    task = build_task(recipe({"name": "star-graph", "degree": 3, "path": 4, "nodes": 20, "train": 5}))
    assert isinstance(task, StarGraph)
    assert task.examples("train")[4].id == "star-graph-3-4-20-s0/train/4"
    assert isinstance(build_task(recipe("star-graph")), StarGraph)
    assert isinstance(build_task(recipe(["star-graph"])), StarGraph)


def test_several_tasks_become_a_mixture_by_weight(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps([{"question": str(n), "answer": str(n)} for n in range(20)]))
    task = build_task(
        recipe([{"name": "star-graph", "weight": 3, "train": 30}, {"name": "dataset", "path": str(path)}])
    )
    assert isinstance(task, Mixture)
    names = [example.id.split("/")[0] for example in task.examples("train")]
    assert names.count("star-graph") == 3 * names.count("dataset") == 48
    assert dict(task.seed_texts) == {"system": "Answer the question."}


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("star-grap", r"there is no task 'star-grap'; did you mean 'star-graph'\? the tasks are: star-graph, dataset"),
        ("xyz", "there is no task 'xyz'; the tasks are: star-graph, dataset"),
        ({"name": "star-graph", "train": 0}, "task 'star-graph' has no training problems; expected at least one"),
        ({"name": "dataset", "path": "none.jsonl"}, "there is no data file 'none.jsonl'"),
    ],
)
def test_tasks_that_cannot_be_used_are_explained(task: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        build_task(recipe(task))


def test_every_wrong_option_gets_a_line() -> None:
    with pytest.raises(RecipeError) as caught:
        build_task(recipe({"name": "star-graph", "degre": 3, "zzz": 1, "path": "long", "train": -1}))
    known = "its options are: degree, path, nodes, form_told, train, validation, test, seed"
    assert str(caught.value).split("\n") == [
        "task 'star-graph': path='long': input should be a valid integer, unable to parse string as an integer",
        "task 'star-graph': train=-1: input should be greater than or equal to 0",
        f"task 'star-graph' has no option 'degre'; did you mean 'degree'? {known}",
        f"task 'star-graph' has no option 'zzz'; {known}",
    ]


def test_missing_and_contradicting_options_are_explained() -> None:
    with pytest.raises(RecipeError, match=r"^task 'dataset' needs the option 'path'; add it beside the task's name"):
        build_task(recipe("dataset"))
    with pytest.raises(RecipeError, match=r"^task 'star-graph': degree=99 arms with path=20 need 1882 nodes"):
        build_task(recipe({"name": "star-graph", "degree": 99}))


@pytest.mark.usefixtures("plugin")
def test_an_installed_package_offers_a_task() -> None:
    task = build_task(recipe("ping"))
    assert [example.id for example in task.examples("test")] == ["test/0", "test/1", "test/2"]
    with pytest.raises(RecipeError, match="task 'ping' has no option 'size'; its options are: none"):
        build_task(recipe({"name": "ping", "size": 3}))


@pytest.mark.usefixtures("plugin")
def test_a_broken_package_is_left_out_of_the_list_and_explained_when_asked_for() -> None:
    classes = task_classes()
    assert classes["ping"].__name__ == "Ping"
    assert classes["star-graph"] is StarGraph
    assert not {"gone", "broken", "unfinished", "function"} & set(classes)
    for name, message in {
        "gone": "of package 'registry-plugin' cannot be loaded from registry_plugin:Gone .AttributeError",
        "broken": "cannot be loaded from registry_plugin_broken:Task .ModuleNotFoundError: No module named 'no_such_library'",
        "unfinished": "expected a subclass of fastslow.tasks.Task with nothing left abstract",
        "function": "registry_plugin:function is <function .*; expected a subclass",
    }.items():
        with pytest.raises(TaskError, match=f"^task '{name}' ?.*{message}"):
            task_class(name)
    with pytest.raises(TaskError, match=r"did you mean 'ping'\?") as caught:
        task_class("pin")
    assert str(caught.value).count("star-graph") == 1
