"""`fastslow tasks`."""

from __future__ import annotations

from typing import Annotated

import typer

from fastslow.commands.shared import console


def tasks(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The task to show.")] = None,
    options: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the task.")] = None,
    count: Annotated[int, typer.Option("--count", help="Number of examples to show.")] = 2,
) -> None:
    """List the tasks, or show one: its options, its seed text and rendered examples."""
    from fastslow.tasks.show import list_tasks, show_task

    if name is None:
        list_tasks(console)
    else:
        show_task(name, options or [], count, console)
