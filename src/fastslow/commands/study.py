"""`fastslow study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fastslow.base.errors import FastSlowError
from fastslow.commands.shared import Json, Tasks, console, loading, results


def study(
    name: Annotated[str, Argument(metavar="NAME", help="A study, or all.")],
    settings: Annotated[
        list[str] | None,
        Argument(metavar="[RECIPE] [KEY=VALUE]...", help="The recipe to start from; by default nano on a rulebook."),
    ] = None,
    seeds: Annotated[str, Option(help="Seeds, separated by commas.")] = "0,1,2",
    task: Tasks = None,
    jobs: Annotated[int, Option(min=1, help="Runs to train in parallel.")] = 1,
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the runs.")] = Path("runs/studies"),
    as_json: Json = False,
) -> None:
    """Answer a question about the method on your model and task.

    Trains the runs that the question needs, then shows a figure and a table beside the published numbers. Studies share runs.
    Repeat the command to resume.

    data-efficiency: how many fewer steps and rollouts does FST need than RL?

    asymptote: where does training level off?

    divergence: how far do the weights move for the same reward?

    plasticity: how well does a trained model still learn another task?

    continual: which method keeps learning when the task changes?

    star-graph: which method leaves zero reward?

    ceiling: what do weights, text and both reach?

    ablations: which parts of FST matter?

    reuse: what does it save to train on the fast loop's rollouts?
    """
    numbers = _numbers(seeds)
    loading("the study")
    from fastslow.study.studies import run_study

    given = settings or []
    recipe = Path(given.pop(0)) if given and "=" not in given[0] else None
    with results(as_json) as write:
        found = run_study(
            name, console, recipe=recipe, overrides=given, tasks=task or [], seeds=numbers, parallel=jobs, out=out
        )
        if as_json:
            write(found)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise FastSlowError(f"--seeds {text}: expected whole numbers separated by commas, such as 0,1,2") from None
