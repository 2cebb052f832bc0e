"""Showing tasks to a person: the list of them, and one with its options and rendered examples."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import islice
from typing import Any

import yaml
from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from fastslow.errors import FastSlowError, RecipeError
from fastslow.recipe import build_recipe
from fastslow.tasks.base import Task
from fastslow.tasks.registry import build_task, task_class, task_classes
from fastslow.tasks.scripted import scripted_rollout


def list_tasks(console: Console) -> None:
    table = Table("task", "what it is", "options")
    for name, task in task_classes().items():
        table.add_row(name, (inspect.getdoc(task) or "").partition("\n")[0], ", ".join(task.Options.model_fields))
    console.print(table)
    console.print("`fastslow tasks NAME` shows one; packages add theirs by the entry point group `fastslow.tasks`.")


def show_task(name: str, overrides: Sequence[str], count: int, console: Console) -> None:
    chosen = task_class(name)
    table = Table("option", "default", "meaning", title=f"{name}: options")
    for option, field in chosen.Options.model_fields.items():
        default = "required" if field.is_required() else repr(field.default)
        table.add_row(option, escape(default), " ".join((field.description or "").split()))
    console.print(table)
    try:
        task = build_task(build_recipe({"model": "none", "task": {"name": name, **_options(overrides)}}))
    except FastSlowError as error:
        if overrides or "/" in name:
            raise
        console.print(f"No examples to show without options: {escape(str(error))}")
        return
    _show_examples(task, count, console)


def _options(overrides: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator:
            raise RecipeError(f"option '{override}' is not KEY=VALUE")
        options[key] = yaml.safe_load(value)
    return options


def _show_examples(task: Task, count: int, console: Console) -> None:
    for component, text in task.seed_texts.items():
        console.print(Panel(escape(text), title=f"seed text of '{component}'"))
    for example in islice(task.examples("train"), count):
        played = scripted_rollout(task, example, [""])
        shown = [f"[bold]{message['role']}:[/] {escape(message['content'])}" for message in played.asks[0].messages]
        if played.feedback is None:
            graded = "asks again after the first answer"
        else:
            graded = f"an empty answer scores {played.feedback.score:g}: {played.feedback.text}"
        console.print(Panel(Group(*shown, f"[dim]{escape(graded)}[/]"), title=escape(example.id)))
