"""`fastslow tasks`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from fastslow.commands.shared import Json, console, results


def tasks(
    name: Annotated[str | None, Argument(metavar="NAME", help="The task to show.")] = None,
    options: Annotated[list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Options of the task.")] = None,
    count: Annotated[int, Option(help="Number of examples to show.")] = 2,
    as_json: Json = False,
) -> None:
    """List the tasks, or show one: its options, its seed text and rendered examples."""
    from fastslow.tasks.show import describe_task, list_tasks, show_task, show_tasks

    with results(as_json) as write:
        if name is None:
            listed = list_tasks()
            if as_json:
                write(listed)
            else:
                show_tasks(listed, console)
            return
        described = describe_task(name, options or [], count)
        if as_json:
            write(described)
        else:
            show_task(described, console)
