"""`fastslow rollouts`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from typer import Option

from fastslow.base.errors import FastSlowError
from fastslow.commands.shared import Json, RunPath, console, results


def rollouts(
    run: RunPath,
    worst: Annotated[bool, Option("--worst", help="The lowest scores first.")] = False,
    best: Annotated[bool, Option("--best", help="The highest scores first.")] = False,
    step: Annotated[int | None, Option(metavar="N", help="A step; the newest by default.")] = None,
    cycle: Annotated[int | None, Option(metavar="N", help="A cycle of the fast loop instead.")] = None,
    context: Annotated[str | None, Option(metavar="ID", help="Rollouts of the whole run under this context.")] = None,
    problem: Annotated[str | None, Option(metavar="ID", help="Rollouts of the whole run on this problem.")] = None,
    limit: Annotated[int, Option(min=1, metavar="N", help="Number of rollouts to show.")] = 8,
    as_json: Json = False,
) -> None:
    """Show what the policy answered: question, context, answer, score and the grader's words."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.rollouts import Choice, choose_rollouts, show_rollouts

    if worst and best:
        raise FastSlowError("--worst and --best are both given; give one of them")
    if step is not None and cycle is not None:
        raise FastSlowError("--step and --cycle are both given; give one of them")
    order: Literal["worst", "best"] | None = "worst" if worst else "best" if best else None
    chosen = choose_rollouts(RunFolder.open(run), Choice(step, cycle, context, problem, order, limit))
    with results(as_json) as write:
        if as_json:
            write(asdict(chosen))
        else:
            show_rollouts(chosen, console)
