"""Showing tasks to a person: the list of them, and one with its options and rendered examples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fastslow.base.errors import FastSlowError
from fastslow.recipe import build_recipe, read_setting
from fastslow.tasks.base import Example, Task
from fastslow.tasks.registry import build_task, task_class, task_classes
from fastslow.tasks.scripted import scripted_rollout


def list_tasks() -> list[dict[str, Any]]:
    """Name, meaning and options of every task."""
    return [
        {
            "task": name,
            "meaning": (inspect.getdoc(task) or "").partition("\n")[0],
            "options": list(task.Options.model_fields),
        }
        for name, task in task_classes().items()
    ]


def show_tasks(tasks: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = Table("task", "what it is", "options")
    for task in tasks:
        table.add_row(task["task"], task["meaning"], ", ".join(task["options"]))
    console.print(table)
    console.print("`fastslow tasks NAME` shows one; packages add theirs by the entry point group `fastslow.tasks`.")


def describe_task(name: str, overrides: Sequence[str], count: int) -> dict[str, Any]:
    """A task's options, its seed texts and rendered examples. One that cannot be built without options has none of the
    latter, and the reason."""
    options = [
        {
            "option": option,
            "default": "required" if field.is_required() else repr(field.default),
            "meaning": " ".join((field.description or "").split()),
        }
        for option, field in task_class(name).Options.model_fields.items()
    ]
    described: dict[str, Any] = {"task": name, "options": options, "seed_texts": {}, "examples": [], "needs": None}
    try:
        task = build_task(build_recipe({"model": "none", "task": {"name": name, **dict(map(read_setting, overrides))}}))
    except FastSlowError as error:
        if overrides or "/" in name:
            raise
        return described | {"needs": str(error)}
    examples = [_example(task, example) for example in islice(task.examples("train"), count)]
    return described | {"seed_texts": dict(task.seed_texts), "examples": examples}


def _example(task: Task, example: Example) -> dict[str, Any]:
    """A problem as the model sees it, and how an empty answer is graded."""
    played = scripted_rollout(task, example, [""])
    if played.feedback is None:
        graded = "asks again after the first answer"
    else:
        graded = f"an empty answer scores {played.feedback.score:g}: {played.feedback.text}"
    messages = [dict(message) for asked in played.asks[:1] for message in asked.messages]
    return {"id": example.id, "messages": messages, "graded": graded if messages else "asks when it is played"}


def show_task(described: Mapping[str, Any], console: Console) -> None:
    table = Table("option", "default", "meaning", title=f"{described['task']}: options")
    for option in described["options"]:
        table.add_row(*(Text(option[name]) for name in ("option", "default", "meaning")))
    console.print(table)
    if described["needs"]:
        console.print(Text(f"No examples to show without options: {described['needs']}"))
    for component, text in described["seed_texts"].items():
        console.print(Panel(Text(text), title=Text(f"seed text of '{component}'")))
    for example in described["examples"]:
        shown = [Text.assemble((f"{each['role']}:", "bold"), " ", each["content"]) for each in example["messages"]]
        console.print(Panel(Group(*shown, Text(example["graded"], style="dim")), title=Text(example["id"])))
