"""The command that looks for the best solution of one problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fastslow.commands.shared import Json, Overrides, console, loading, results


def discover(
    problem: Annotated[
        str | None,
        Argument(metavar="PROBLEM", help="A problem file, a folder with problem.py, or an included problem."),
    ] = None,
    overrides: Overrides = None,
    learn: Annotated[
        str | None, Option(metavar="NAMES", help="What learns: some of archive,text,weights, or none; all by default.")
    ] = None,
    evaluations: Annotated[int | None, Option(min=1, help="End after so many evaluations; 1000 by default.")] = None,
    tokens: Annotated[int | None, Option(min=1, help="End after so many tokens of prompts and completions.")] = None,
    seconds: Annotated[float | None, Option(min=0, help="End after so many seconds.")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="The run folder.")] = None,
    export: Annotated[
        str | None, Option(metavar="FORMAT", help="Write the result as `openevolve` or `gepa` does, too.")
    ] = None,
    resume: Annotated[Path | None, Option(metavar="RUN", help="Resume this search instead.")] = None,
    as_json: Json = False,
) -> None:
    """Look for the best solution of one problem: an archive of candidates, the text and the weights of the model that
    proposes them.

    The result is best.py in the run folder, with its score in best.json, evaluated again from scratch.
    """
    given = list(overrides or [])
    if resume is not None and problem is not None and "=" in problem:  # no problem: the first KEY=VALUE
        given.insert(0, problem)
        problem = None
    loading()
    from fastslow.launch.discovery import discover as search
    from fastslow.launch.discovery import exported
    from fastslow.recipe.read import read_setting

    settings = dict(read_setting(each) for each in given)
    with results(as_json) as write:
        found = search(
            problem,
            learn=learn,
            evaluations=evaluations,
            tokens=tokens,
            seconds=seconds,
            folder=out,
            resume=resume,
            **settings,
        )
        theirs = exported(found.folder, export) if export and found.score is not None else None
        if as_json:
            write(
                {
                    "run": found.folder,
                    "score": found.score,
                    "file": found.file,
                    "words": found.words,
                    "evaluations": found.evaluations,
                    "exported": theirs,
                }
            )
            return
        of = f"{found.evaluations:,} evaluations"
        said = f"no valid candidate was found in {of}; see {found.folder}/candidates.jsonl"
        if found.score is not None:
            said = f"the best of {of} scores {found.score:.10g}, evaluated again from scratch: {found.file}"
        from rich.text import Text

        console().print(Text(said), soft_wrap=True)
        if theirs is not None:
            console().print(Text(f"as {export} writes it: {theirs}"), soft_wrap=True)
