"""Refusing contamination: no validation or test problem shows the model what a training problem shows.

Splits in memory, such as those read from files, are compared in full before a run starts, across all tasks of a mixture or
of stages; a shared problem is an error. Generated problems are too many to compare and are kept apart where they are drawn
(see data/generated.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Split, Task
from fastslow.tasks.data.source import content_id
from fastslow.tasks.stages import Mixture

HELD_OUT: tuple[Split, ...] = ("validation", "test")


def refuse_contamination(task: Task) -> None:
    """Raise where a training problem shows the model what a validation or test problem shows."""
    held_out = {
        content_id(shown): f"{split} problem '{example.id}'{owner}"
        for split in HELD_OUT
        for owner, example, shown in _in_memory(task, split)
    }
    trained_on = _in_memory(task, "train") if held_out else ()
    shared = [
        (f"training problem '{example.id}'{owner}", held_out[name], shown)
        for owner, example, shown in trained_on
        if (name := content_id(shown)) in held_out
    ]
    if shared:
        trained, measured, shown = shared[0]
        last = shown[-1] if isinstance(shown, list) and shown else shown
        quoted = last["content"] if isinstance(last, Mapping) else last
        others = f"; so do {len(shared) - 1} more" if len(shared) > 1 else ""
        raise TaskError(
            f"{trained} shows the model the same as {measured} ('{one_line(quoted, 80)}'){others}: "
            "what is trained on cannot be measured on; take these problems out of one of the two"
        )


def _in_memory(task: Task, split: Split) -> Iterator[tuple[str, Example, object]]:
    """The problems of a split that can be compared: whose they are, where there are several tasks, and what they show."""
    if isinstance(task, Mixture):
        for part in task.parts:
            yield from ((f" of '{part.name}'", example, shown) for _, example, shown in _in_memory(part.task, split))
        return
    examples = task.examples(split)
    if isinstance(examples, list | tuple):
        yield from (("", example, shown) for example in examples if (shown := task.shown(example)) is not None)
